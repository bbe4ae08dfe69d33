"""Compiled kernels for tests: PTX written by hand, cubins and code objects compiled by Triton."""

import functools

import pytest

SAXPY_SIGNATURE = "x: in *fp32, y: inout *fp32, n: i32, alpha: fp32"
ADD_SIGNATURE = "x: in *fp32, y: in *fp32, out: out *fp32, n: i32, scratch: null, profile: null"


def saxpy_ptx(target="sm_80", directives=".maxntid 256", parameters=None, name="saxpy"):
    """Return the PTX of y = alpha * x + y, with one element for each thread."""
    declared = ".param .u64 .ptr .global .align 4 x,\n .param .u64 y,\n .param .u32 n,\n .param .f32 alpha"
    return f"""// saxpy, by hand
.version 8.0
.target {target}
.address_size 64
.visible .entry {name}(
 {declared if parameters is None else parameters}
)
{directives}
{{
    .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<5>; .reg .b64 %rd<5>;
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.s32 %p, %r4, %r0;
    @%p ret;
    ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [y];
    cvta.to.global.u64 %rd2, %rd0; cvta.to.global.u64 %rd3, %rd1;
    mul.wide.s32 %rd4, %r4, 4;
    add.s64 %rd2, %rd2, %rd4; add.s64 %rd3, %rd3, %rd4;
    ld.global.f32 %f0, [%rd2]; ld.global.f32 %f1, [%rd3]; ld.param.f32 %f2, [alpha];
    fma.rn.f32 %f3, %f2, %f0, %f1;
    st.global.f32 [%rd3], %f3;
    ret;
}}
"""


@functools.cache
def add_by_triton(target):
    """Compile ``add`` with blocks of 256 by Triton; return the binary and its launch info."""
    pytest.importorskip("triton", reason="Triton makes the binaries of these tests")
    from silo.core.argument_facts import ArgumentFacts
    from silo.core.config import Config
    from silo.core.device import Target
    from silo.core.signature import Signature
    from silo.core.specialization import Specialization
    from silo.core.variant import Variant
    from silo.kinds.triton.front.triton_source import TritonSource
    from silo.kinds.triton.gpu.gpu_compiler import TritonCompiler
    from triton_samples import add

    source = TritonSource.of(add)
    array = ArgumentFacts.array("fp32", 8)
    signature, _ = source.specialize(
        {"x": array, "y": array, "out": array, "n": ArgumentFacts(1001), "BLOCK": ArgumentFacts(256)}
    )
    variant = Variant(
        "add",
        source.fingerprint,
        Signature(signature.parameters),
        Specialization(constants=(("BLOCK", 256),)),
        Config(),
        Target.parse(target),
    )
    compiler = TritonCompiler()
    made = compiler.compile(compiler.lower(source, variant).job)
    return made.blob.data, made.launch

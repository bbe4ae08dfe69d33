"""Metal kernels for Metal: what the artifact is, and that torch is called with what a launch means, on its double."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import silo
from emulator_jobs import require_clang
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.drivers.metal.metal_device import runs_version
from silo.errors import ArgumentError, CompileError, DeviceError
from silo.kinds.metal.metal_loader import ShaderCall, load_msl, torch_call
from silo.kinds.metal.shader_compiler import ShaderBuffer, ShaderCompiler, ShaderLayout

TEXT = """
#include <metal_stdlib>
using namespace metal;
constant int N [[function_constant(0)]];
kernel void shift(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(3)]],
                  threadgroup float* room [[threadgroup(0)]], uint i [[thread_position_in_grid]],
                  uint t [[thread_position_in_threadgroup]]) {
  room[t] = i < n ? x[i] : 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i < n) out[i] = room[t] + N;
}
"""


def compiled(**config):
    kernel = silo.metal(TEXT, constants={"N": 3}, group_size=64, threadgroup_bytes=256)
    source = kernel.kernel.source
    facts = {"x": ArgumentFacts.array("float32", 64), "out": ArgumentFacts.array("float32", 64), "n": ArgumentFacts(9)}
    signature, specialization = source.specialize(facts)
    made = Config.of(config) if config else Config()
    variant = Variant("shift", source.fingerprint, signature, specialization, made, Target.parse("metal:3.1"))
    compiler = ShaderCompiler()
    return compiler.compile(compiler.lower(source, variant).job)


def test_the_artifact_is_the_text_with_its_constants_and_a_plan_of_launches():
    made = compiled()
    text = made.blob.data.decode()
    assert made.blob.kind == "msl"
    assert "constant int N = 3;" in text
    assert "function_constant" not in text
    assert "[[threadgroup(0)]]" not in text
    assert text.count("\n") == TEXT.count("\n")
    plan = ShaderLayout.from_text(made.launch.loader)
    assert plan == ShaderLayout(
        "shift", (64, 1, 1), (ShaderBuffer(0, 0), ShaderBuffer(1, 1), ShaderBuffer(3, 2, dtype("uint32"))), read=(0,)
    )


def test_torch_is_given_threads_and_casts_and_the_emulator_computes_what_the_kernel_means():
    require_clang()
    made = compiled()
    with silo.emulated_metal() as emulated:
        call = load_msl(None, made.launch, made.blob.data, "shift")
        x, out = torch.arange(100, dtype=torch.float32), torch.zeros(128)
        call((x, out, 100, 3), (2, 1, 1), None)
    assert torch.equal(out[:100], x + 3)
    (record,) = emulated.libraries[0].calls
    assert (record.threads, record.group_size) == ((128, 1, 1), (64, 1, 1))
    assert record.arguments[2:] == (0, 100)  # the index 2, which nothing reads


class Function:
    """Torch's, as far as a launch asks it."""

    max_threads_per_threadgroup = 512

    def __call__(self, *args, **options):
        self.called = (args, options)


def test_numbers_have_the_bits_of_their_width():
    names = ("uint32", "int64", "float16", "bool", "uint8", "float32")
    function = Function()
    plan = ShaderLayout("f", (8, 1, 1), tuple(ShaderBuffer(at, at, dtype(name)) for at, name in enumerate(names)))
    torch_call(function, plan, "f")((2**32 - 1, -5, 2, True, 255, 1), (3, 2, 1), None)
    args, options = function.called
    assert args == (-1, -5, 2.0, 1, 255, 1.0)
    assert options["arg_casts"] == {0: "int32", 2: "fp16", 3: "uint8", 4: "uint8"}
    assert options["threads"] == (24, 2, 1)


def test_limits_are_checked_before_anything_is_dispatched():
    plan = ShaderLayout("f", (1024, 1, 1), ())
    with pytest.raises(DeviceError, match="this GPU runs at most 512 threads of this kernel"):
        torch_call(Function(), plan, "f")
    with pytest.raises(ArgumentError, match="the library's own stream"):
        ShaderCall(ShaderLayout("f", (8, 1, 1), ()), "", "f")((), (1, 1, 1), 7)


def test_a_text_needs_its_version_or_a_later_one():
    built = Target.parse("metal:3.1")
    assert runs_version(built, Target.parse("metal:4.0"))
    assert "needs Metal 3.1" in runs_version(built, Target.parse("metal:3.0")).reason


def test_a_damaged_plan_is_refused():
    made = compiled()
    with pytest.raises(ValueError, match="plan of a shader"):
        ShaderLayout.from_text(made.launch.loader.replace('"version":1', '"version":2'))
    with pytest.raises(ValueError, match="effects of a shader"):
        ShaderLayout.from_text(made.launch.loader.replace('"read":[0]', '"read":[7]'))


def test_a_call_on_the_cpu_computes_the_same():
    require_clang()
    kernel = silo.metal(TEXT, constants={"N": 3}, group_size=64, threadgroup_bytes=256)
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    kernel[2,](x, out, 100, N=5)
    assert (out == x + 5).all()


def test_a_pointer_of_another_address_space_is_refused_where_clang_is():
    require_clang()
    text = (
        "#include <metal_stdlib>\nusing namespace metal;\nfloat first(threadgroup float* p) { return p[0]; }\n"
        "kernel void k(device float* x [[buffer(0)]]) { x[0] = first(x); }\n"
    )
    source = silo.metal(text, group_size=1).kernel.source
    signature, specialization = source.specialize({"x": ArgumentFacts.array("float32", 64)})
    variant = Variant("k", source.fingerprint, signature, specialization, Config(), Target.parse("metal:3.1"))
    compiler = ShaderCompiler()
    job = compiler.lower(source, variant).job
    with pytest.raises(CompileError, match=r"k.metal:4: .*device memory.*threadgroup memory.*Metal refuses"):
        compiler.compile(job)


def test_a_constant_with_a_value_is_no_function_constant_any_more():
    text = TEXT.replace("+ N", "+ (is_function_constant_defined(N) ? N : 0)")
    source = silo.metal(text, constants={"N": 3}, group_size=64, threadgroup_bytes=256).kernel.source
    made = source.metal({"N": 3})
    assert "+ (true ? N : 0)" in made

"""Metal kernels through MLX: what it is given for a text, and that its double computes what the kernel means."""

import importlib

import numpy as np
import pytest

import silo
from emulator_jobs import require_clang
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.variant import Variant
from silo.errors import ArgumentError, DeviceError
from silo.kinds.metal.metal_loader import load_msl, mlx_body
from silo.kinds.metal.shader_compiler import ShaderCompiler, ShaderLayout

TEXT = """
#include <metal_stdlib>
using namespace metal;
constant int N [[function_constant(0)]];
kernel void shift(device const float* x [[buffer(0)]], constant half& by [[buffer(1)]], device float* out [[buffer(2)]],
                  constant float* table [[buffer(4)]], constant uint& n [[buffer(3)]],
                  threadgroup float* room [[threadgroup(0)]], uint2 at [[thread_position_in_grid]],
                  ushort thread_index_in_threadgroup [[thread_index_in_threadgroup]]) {
  room[thread_index_in_threadgroup] = at.x < n ? x[at.x] : 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (at.x < n) out[at.x] = room[thread_index_in_threadgroup] + N + float(by) + table[1];
}
"""


def compiled(text=TEXT, effects=None, **given):
    kernel = silo.metal(text, group_size=64, effects=effects or {"out": "out"}, **given)
    source = kernel.kernel.source
    facts = {
        one.name: ArgumentFacts(1) if one.type in ("uint", "half") else ArgumentFacts.array("float32", 64)
        for one in source.kernel.buffers
    }
    signature, specialization = source.specialize(facts)
    variant = Variant("k", source.fingerprint, signature, specialization, Config(), Target.parse("metal:3.1"))
    compiler = ShaderCompiler()
    return compiler.compile(compiler.lower(source, variant).job)


def body_of(made, name="k"):
    return mlx_body(made.blob.data.decode(), ShaderLayout.from_text(made.launch.loader), name)


def shift():
    return compiled(constants={"N": 3}, threadgroup_bytes=256)


def test_the_body_declares_what_the_kernel_has_from_what_mlx_passes():
    made = body_of(shift())
    assert [one.name for one in made.inputs] == ["silo_in_x", "silo_in_by", "silo_in_n", "silo_in_table"]
    assert [name for name, _ in made.outputs] == ["silo_out_out"]
    assert "device float* out = (device float*)silo_out_out;" in made.source
    assert "const constant float* table = (const constant float*)silo_in_table;" in made.source
    assert "const constant half& by = silo_in_by;" in made.source
    assert "uint2 at = uint2(silo_thread_position_in_grid.xy);" in made.source
    assert "constant int N = 3;" in made.header
    # A name that MLX declares too: both mean their own.
    assert "ushort thread_index_in_threadgroup = ushort(silo_thread_index_in_threadgroup);" in made.source
    assert made.source.index("{ ") < made.source.index("ushort thread_index")
    assert made.source.rstrip().endswith("}")


SIMPLE = "#include <metal_stdlib>\nusing namespace metal;\n"
READS = "device const float* x [[buffer(0)]]"


@pytest.mark.parametrize(
    ("text", "effects", "why"),
    [
        (f"kernel void k({READS}, device float* y [[buffer(1)]]) {{ y[0] += x[0]; }}", {"x": "in"}, "read and written"),
        (f"kernel void k({READS}) {{ }}", {"x": "in"}, "it writes no array"),
        (
            (
                "template <typename T> kernel void f(device T* y [[buffer(0)]]) { y[0] = 1; }\n"
                'template [[host_name("k")]] kernel void f<float>(device float* y [[buffer(0)]]);'
            ),
            {"y": "out"},
            "the instance of a template",
        ),
        (
            "kernel void k(device float* y [[buffer(0)]], uint i [[thread_position_in_nowhere]]) { y[0] = 1; }",
            {"y": "out"},
            "which MLX does not pass",
        ),
    ],
)
def test_what_mlx_cannot_launch_is_said(text, effects, why):
    with pytest.raises(DeviceError, match=why):
        body_of(compiled(SIMPLE + text, effects))


@pytest.fixture
def mx():
    try:
        return importlib.import_module("mlx.core")
    except ImportError:
        pytest.skip("mlx is not installed")


def test_mlx_is_called_with_what_the_kernel_means(mx):
    require_clang()
    made = shift()
    with silo.emulated_metal() as emulated:
        call = load_msl(None, made.launch, made.blob.data, "shift")
        for size in (100, 5, 1):
            x, out, table = mx.arange(size, dtype=mx.float32), mx.zeros((size,)), mx.array([1.0, 2.0])
            kept = out
            call((x, 0.5, out, size, table), (2, 1, 1), None)
            assert np.array_equal(np.array(kept), np.arange(size) + 3 + 0.5 + 2), size
    (kernel,) = emulated.kernels
    assert "const constant float16_t& silo_in_by" in kernel.texts[0]
    assert "const constant float* silo_in_table" in kernel.texts[0]
    assert "const device float* silo_in_x" in kernel.texts[0]


def test_arrays_that_mlx_passes_elsewhere_than_the_kernel_reads_them_are_refused(mx):
    require_clang()
    made = shift()
    with silo.emulated_metal():
        call = load_msl(None, made.launch, made.blob.data, "shift")
        x, out = mx.zeros((64,)), mx.zeros((64,))
        with pytest.raises(ArgumentError, match=r"table is in constant memory.*declare it device const"):
            call((x, 1.0, out, 64, mx.zeros((9,))), (1, 1, 1), None)
        with pytest.raises(ArgumentError, match="arrays of torch and of MLX"):
            call((x, 1.0, np.zeros(64), 64, mx.zeros((2,))), (1, 1, 1), None)
        with pytest.raises(ArgumentError, match="own stream"):
            call((x, 1.0, out, 64, mx.zeros((2,))), (1, 1, 1), 7)


def test_the_double_takes_mlx_calls_as_mlx_does(mx):
    require_clang()
    with silo.emulated_metal() as emulated:
        source = "uint i = thread_position_in_grid.x; out[i] = x[i] * x_shape[0] + x_strides[0] + x_ndim + n;"
        kernel = mx.fast.metal_kernel("scale", ["x", "n"], ["out", "unwritten"], source)
        x = mx.arange(10, dtype=mx.float32)
        out, unwritten = kernel(
            inputs=[x, 4],
            output_shapes=[(10,), (2,)],
            output_dtypes=[mx.float32] * 2,
            grid=(10, 1, 1),
            threadgroup=(4, 1, 1),
        )
        assert np.array_equal(np.array(out), np.arange(10) * 10 + 1 + 1 + 4)
        assert np.isnan(np.array(unwritten)).all()
        given = {"output_shapes": [(10,)], "output_dtypes": [mx.float32], "grid": (10, 1, 1), "threadgroup": (4, 1, 1)}
        with pytest.raises(ValueError, match="`inputs` to have size 2 but got size 1"):
            kernel(inputs=[x], **given)
        with pytest.raises(ValueError, match="Unknown compile option"):
            mx.fast.metal_kernel("k", [], ["out"], "", compile_options={"speed": "fast"})
        with pytest.raises(ValueError, match="at least one output"):
            mx.fast.metal_kernel("k", ["x"], [], "")
    assert len(emulated.kernels) == 1  # the others were refused
    with pytest.raises(RuntimeError, match="No Metal back-end"):
        mx.fast.metal_kernel("scale", ["x"], ["out"], "out[0] = 1;")(inputs=[x], **given)


def test_arrays_of_mlx_on_the_cpu_are_those_of_the_emulator(mx):
    require_clang()
    kernel = silo.metal(
        SIMPLE + "kernel void twice(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] *= 2; }",
        group_size=32,
    )
    y = mx.arange(64, dtype=mx.float32)
    mx.eval(y)
    kernel[2,](y)
    assert np.array_equal(np.array(y), np.arange(64) * 2)

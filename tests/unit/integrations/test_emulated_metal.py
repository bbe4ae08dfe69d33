"""The double of torch's shader libraries: what it takes as torch does, what it refuses, and what it computes."""

import pytest

pytest.importorskip("torch")

import torch

import silo
from emulator_jobs import require_clang
from silo.errors import ArgumentError, SourceError
from silo.kinds.metal.programs.shader_library import EmulatedLibrary

TEXT = """
#include <metal_stdlib>
using namespace metal;
kernel void add(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], constant float& a [[buffer(2)]],
                constant uint& n [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  if (i < n) out[i] = x[i] + a;
}
"""


def arrays():
    return torch.arange(100, dtype=torch.float32), torch.zeros(110)


def test_a_grid_that_ends_within_a_threadgroup_runs_so_many_threads_and_no_more():
    require_clang()
    with silo.emulated_metal() as emulated:
        library = torch.mps.compile_shader(TEXT)
        x, out = arrays()
        library.add(x, out, 1.5, 1000, threads=100, group_size=32, arg_casts={3: "int32"})
        torch.mps.synchronize()
    assert torch.equal(out[:100], x + 1.5)
    assert not out[100:].any()
    (call,) = emulated.libraries[0].calls
    assert (call.function, call.threads, call.group_size) == ("add", (100,), (32,))
    assert dir(library) == ["add"]


def test_torchs_function_is_back_after_the_block():
    before = torch.mps.compile_shader
    with silo.emulated_metal():
        assert torch.mps.compile_shader is not before
    assert torch.mps.compile_shader is before
    assert not hasattr(torch._C, "_mps_get_name") or torch.backends.mps.is_available()


@pytest.mark.parametrize(
    ("a", "options", "error", "message"),
    [
        (3, {}, ArgumentError, "a is a float, and the call passes 3 as int64"),
        (3.0, {"arg_casts": "fp16"}, ArgumentError, "of 2 bytes: the kernel reads 4"),
        (3.0, {"arg_casts": "uint32"}, ValueError, "cast to 'uint32'; torch casts to int32"),
        (3.0, {"group_size": [8, 8]}, ValueError, "threads has 1 axes and group_size 2"),
        (3.0, {"group_size": 2048}, ValueError, "a threadgroup has 1 to 1024 threads"),
    ],
)
def test_what_a_mac_would_misread_or_refuse_is_an_error(a, options, error, message):
    x, out = arrays()
    with pytest.raises(error, match=message):
        EmulatedLibrary(TEXT).add(x, out, a, 100, threads=100, **options)


def test_a_missing_argument_and_a_missing_function_are_errors():
    x, out = arrays()
    with pytest.raises(ArgumentError, match="n is missing: 3 arguments"):
        EmulatedLibrary(TEXT).add(x, out, 1.0, threads=100)
    with pytest.raises(AttributeError, match="no function 'sub'; it has add"):
        EmulatedLibrary(TEXT).sub()
    with pytest.raises(SourceError, match="no kernel is defined"):
        EmulatedLibrary("int f() { return 1; }")

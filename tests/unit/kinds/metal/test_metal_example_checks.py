"""The examples have no fault in any order of their threads, as kernels of this process and as a bundle's."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silo
import warm_python
from repetitions import repetitions
from silo.emulation.clang import find_clang
from silo.errors import CheckError, CompilerMissingError


def _no_clang() -> bool:
    try:
        find_clang()
    except CompilerMissingError:
        return True
    return platform.machine() not in ("x86_64", "aarch64")


pytestmark = pytest.mark.skipif(_no_clang(), reason="needs clang 16 or later")
# A sample of the 200 schedules that SILO_TEST_SCHEDULES=200 runs.
SEEDS = range(repetitions("SILO_TEST_SCHEDULES", 2, 6))


def _add(rng: np.random.Generator) -> tuple[tuple[Any, ...], int, Any]:
    x, y, out = rng.standard_normal((3, 1000)).astype(np.float32)
    return (x, y, out, 1000), 2, x + y


def _softmax(rng: np.random.Generator) -> tuple[tuple[Any, ...], int, Any]:
    x = rng.standard_normal((2, 300)).astype(np.float32)
    values = np.exp(x - x.max(axis=1, keepdims=True))
    return (x, np.zeros_like(x), 300), 1, values / values.sum(axis=1, keepdims=True)


def _matmul(rng: np.random.Generator) -> tuple[tuple[Any, ...], int, Any]:
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 34), (34, 20)))
    return (a, b, np.zeros((40, 20), np.float32), 40, 20, 34), 2, a @ b


def _histogram(rng: np.random.Generator) -> tuple[tuple[Any, ...], int, Any]:
    values = rng.integers(0, 256, 2000, dtype=np.uint8)
    return (values, np.zeros(256, np.uint32), 2000), 1, np.bincount(values, minlength=256)


@pytest.mark.parametrize("made", [_add, _softmax, _matmul, _histogram], ids=lambda one: one.__name__[1:])
def test_an_example_has_no_fault_in_any_schedule(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[4] / "examples")
    import metal_kernels

    monkeypatch.setattr("silo.emulation.checked_runs.SCHEDULES", tuple(SEEDS))
    arguments, at, expected = made(np.random.default_rng(0))
    silo.check(getattr(metal_kernels, made.__name__[1:]), nan=True)(*arguments)
    np.testing.assert_allclose(arguments[at], expected, rtol=1e-4, atol=1e-5)


FAULTY = """#include <metal_stdlib>
using namespace metal;
kernel void shifted(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  out[i] = x[i + 1];
}
"""


def test_a_fault_of_a_kernel_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "shifted.metal").write_text(FAULTY)
    kernel = silo.metal(tmp_path / "shifted.metal", effects={"out": "out"}, group_size=32, grid=(2,))
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(CheckError) as caught:
        silo.check(kernel)(x, out)
    assert (caught.value.kind, caught.value.argument, caught.value.place) == ("out of bounds", "x", "shifted.metal:5")
    assert (caught.value.program, caught.value.index) == ((1, 0, 0), (31, 0, 0))
    assert not out.any()


KERNELS = """
import silo
shifted = silo.metal("shifted.metal", effects={"out": "out"}, group_size=32, grid=(2,))
"""


def test_a_fault_of_a_kernel_of_a_bundle_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "shifted.metal").write_text(FAULTY)
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "home"), "SILO_TUNE": "off"}
    command = [sys.executable, "-m", "silo", "build", "kernels.py", "-o", "kernels.silo", "--target", "cpu"]
    declared = "@shifted.cases(n=[65])\ndef _(n, make):\n    return silo.Case(args=(make.normal(n), make.empty(64)))\n"
    (tmp_path / "kernels.py").write_text(KERNELS + declared)
    warm_python.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
    kernels = silo.load(tmp_path / "kernels.silo", trust=True)
    x, out = np.ones(65, np.float32), np.zeros(64, np.float32)
    silo.check(kernels.shifted)(x, out)
    assert out.all()
    with pytest.raises(CheckError) as caught:
        silo.check(kernels.shifted)(x[:64].copy(), out)
    assert (caught.value.kind, caught.value.argument, caught.value.place) == ("out of bounds", "x", "shifted.metal:5")


REDUCED = """#include <metal_stdlib>
#include <c10/metal/reduction_utils.h>
using namespace metal;
kernel void row_sum(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    constant uint& n [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32];
  float sum = 0;
  for (uint c = t; c < n; c += 128) sum += x[row * n + c];
  sum = c10::metal::threadgroup_sum(shared, sum, t, 128);
  if (t == 0) out[row] = sum;
}
"""


def test_headers_that_add_up_what_some_lanes_have_are_no_fault() -> None:
    """The last of the partial sums are added by the first lanes alone, which is defined."""
    pytest.importorskip("torch", reason="the headers come with torch")
    kernel = silo.metal(REDUCED, effects={"out": "out"}, group_size=128, grid=(3,))
    x, out = np.ones((3, 300), np.float32), np.zeros(3, np.float32)
    silo.check(kernel)(x, out, 300)
    assert list(out) == [300] * 3

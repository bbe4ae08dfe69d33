"""Checks of Metal kernels on the emulator: faults that were planted are found, and nothing else is."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from metal_checks import check_launch, checked_kernel
from metal_faults import FAULTS, MetalFault
from silo.emulation.clang import find_clang
from silo.errors import CheckError, CompilerMissingError


def _no_clang() -> bool:
    try:
        find_clang()
    except CompilerMissingError:
        return True
    return platform.machine() not in ("x86_64", "aarch64")


pytestmark = pytest.mark.skipif(_no_clang(), reason="needs clang 16 or later")


def _check(fault: MetalFault, arguments: Mapping[str, Any]) -> None:
    kernel = checked_kernel(fault.text, fault.group)
    check_launch(kernel, arguments, fault.grid, uninitialized=fault.uninitialized)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}: {fault.name}")
def test_a_planted_fault_is_found(fault: MetalFault) -> None:
    arrays = fault.made()
    before = {name: one.copy() for name, one in arrays.items()}
    with pytest.raises(CheckError) as caught:
        _check(fault, {**arrays, **fault.scalars})
    error = caught.value
    assert (error.kind, error.argument) == (fault.error, fault.argument)
    file, _, line = error.place.rpartition(":")
    assert file == "k.metal"
    assert int(line) in fault.lines
    assert error.program is None or error.index is not None
    for name, one in arrays.items():
        np.testing.assert_array_equal(one, before[name])


GOOD = """#include <metal_stdlib>
using namespace metal;
float tail(thread const float* a, uint n) {
  float s = 0;
  for (uint i = 0; i < n; i++) s += a[i];
  return s;
}
kernel void k(device const float* x [[buffer(0)]], device float* o [[buffer(1)]],
    constant uint& n [[buffer(2)]], uint t [[thread_index_in_threadgroup]],
    uint g [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float s[8];
  threadgroup float4 v[96];
  float a[4];
  float sum = 0;
  for (uint i = t; i < n; i += 96) sum += x[g * n + i];
  for (uint i = 0; i < 4; i++) a[i] = sum * float(i);
  v[t] = float4(sum, a[1], a[2], tail(a, 4));
  sum = simd_sum(sum);
  if (lane == 0) s[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float junk = s[t % 8];
  float total = s[0] + s[1] + s[2];
  float4 other = v[95 - t];
  if (t % 8 < 3) total += 0.0 * junk;
  o[g * 96 + t] = total + other.y - other.x + other.z - 2.0 * other.x;
  simdgroup_barrier(mem_flags::mem_device);
}
"""


def test_a_kernel_without_faults_has_none_in_any_schedule() -> None:
    kernel = checked_kernel(GOOD, (96, 1, 1))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 1000)).astype(np.float32)
    out = np.zeros((3, 96), np.float32)
    check_launch(kernel, {"x": x, "o": out, "n": 1000}, (3, 1, 1), seeds=range(25))
    np.testing.assert_allclose(out, np.repeat(x.sum(axis=1)[:, None], 96, axis=1), rtol=1e-3, atol=1e-3)


ATOMICS = """#include <metal_stdlib>
using namespace metal;
kernel void k(device const float* x [[buffer(0)]], device atomic_uint* o [[buffer(1)]],
    uint t [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint s[64];
  threadgroup atomic_uint most[1];
  atomic_exchange_explicit(&s[t], 0u, memory_order_relaxed);
  if (t == 63) atomic_store_explicit(most, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&s[uint(x[t]) % 64], 1u, memory_order_relaxed);
  atomic_fetch_max_explicit(most, uint(x[t]), memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 0) atomic_fetch_max_explicit(&o[64], atomic_load_explicit(most, memory_order_relaxed), memory_order_relaxed);
  atomic_fetch_add_explicit(&o[t], atomic_load_explicit(&s[t], memory_order_relaxed), memory_order_relaxed);
}
"""


def test_atomics_whose_places_were_set_have_no_fault_in_any_schedule() -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(65, np.uint32)
    check_launch(checked_kernel(ATOMICS), {"x": x, "o": out}, (3, 1, 1), seeds=range(25))
    np.testing.assert_array_equal(out, [3] * 64 + [63])


def test_a_loop_that_does_not_end_and_a_nan_are_found() -> None:
    waits = """#include <metal_stdlib>
using namespace metal;
kernel void k(device const float* x [[buffer(0)]], device float* o [[buffer(1)]],
    uint t [[thread_index_in_threadgroup]]) {
  threadgroup volatile int ready[1];
  ready[0] = 0;
  while (t == 0 && ready[0] == 0) {
  }
  o[t] = log(x[t]);
}
"""
    arrays = {"x": np.full(64, -1, np.float32), "o": np.zeros(64, np.float32)}
    with pytest.raises(CheckError, match="a loop that does not end") as caught:
        check_launch(checked_kernel(waits.replace("ready[0] = 0;", "if (t == 0) ready[0] = 0;")), arrays, steps=100_000)
    assert caught.value.kind == "endless"
    quiet = waits.replace("while (t == 0 && ready[0] == 0) {\n  }\n", "").replace("ready[0] = 0;", "")
    with pytest.raises(CheckError, match="a NaN made of numbers") as caught:
        check_launch(checked_kernel(quiet), arrays, nan=True)
    assert (caught.value.kind, caught.value.argument) == ("NaN", "o")
    assert not arrays["o"].any()
    check_launch(checked_kernel(quiet), arrays)
    assert np.isnan(arrays["o"]).all()

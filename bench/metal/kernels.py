"""The Metal kernels that the benchmark measures."""

from __future__ import annotations

from typing import Any

import silo

TEXT = """
#include <metal_stdlib>
using namespace metal;

kernel void barriers(device float *out [[buffer(0)]], constant uint &n [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
  for (uint k = 0; k < n; k++) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = i;
}

kernel void sums(device float *out [[buffer(0)]], constant uint &n [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  float v = i;
  for (uint k = 0; k < n; k++) v = simd_sum(v) * 0.1;
  out[i] = v;
}

kernel void add(device const float *x [[buffer(0)]], device const float *y [[buffer(1)]],
                device float *out [[buffer(2)]], constant uint &n [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
  if (i < n) out[i] = x[i] + y[i];
}
"""


def waiting(name: str, group: int) -> Any:
    """Return a kernel whose threads wait for each other ``n`` times."""
    return silo.metal(TEXT, kernel=name, group_size=group, grid=(4,), effects={"out": "out"})


def add(group: int) -> Any:
    """Return a kernel that adds two arrays."""
    return silo.metal(
        TEXT, kernel="add", group_size=group, grid=lambda a: (silo.cdiv(a.n, group),), effects={"out": "out"}
    )


def triton_add() -> Any:
    """Return the Triton kernel that adds two arrays, compiled for the CPU. ImportError without Triton."""
    from bench.metal.triton_kernels import add as made

    return made

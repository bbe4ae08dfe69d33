"""Kernels in Metal Shading Language, each with a tuning space, a grid and cases.

They run through torch.mps or MLX on a Mac, and on any CPU by Silo's emulator, for which ``silo build
examples/metal_kernels.py -o metal.silo --target cpu`` needs clang; ``silo run metal.silo`` runs their cases wherever
the file goes. Times of the emulator are times of the CPU.
"""

import numpy as np

import silo

add = silo.metal(
    """
#include <metal_stdlib>
using namespace metal;

// out = x + y, one element a thread.
kernel void add(device const float* x [[buffer(0)]], device const float* y [[buffer(1)]],
                device float* out [[buffer(2)]], constant uint& n [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
  if (i < n) out[i] = x[i] + y[i];
}
""",
    effects={"out": "out"},
    group_size="THREADS",
    space={"THREADS": [128, 256, 512]},
    grid=lambda a: (silo.cdiv(a.n, a.THREADS),),
)

softmax = silo.metal(
    """
#include <metal_stdlib>
using namespace metal;

constant uint THREADS [[function_constant(0)]];

// What all threads of a threadgroup have at most, or in sum, in each of them; `shared` has a place for each simdgroup.
float group_max(float value, threadgroup float* shared, uint lane, uint simd) {
  value = simd_max(value);
  if (lane == 0) shared[simd] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  value = shared[0];
  for (uint i = 1; i < THREADS / 32; i++) value = max(value, shared[i]);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // before the next to use it writes there
  return value;
}

float group_sum(float value, threadgroup float* shared, uint lane, uint simd) {
  value = simd_sum(value);
  if (lane == 0) shared[simd] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  value = 0;
  for (uint i = 0; i < THREADS / 32; i++) value += shared[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return value;
}

// The softmax of each row, one threadgroup a row.
kernel void softmax(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    constant uint& columns [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float shared[32];
  device const float* from = x + ulong(row) * columns;
  device float* to = out + ulong(row) * columns;
  float most = -INFINITY;
  for (uint c = thread_index; c < columns; c += THREADS) most = max(most, from[c]);
  most = group_max(most, shared, lane, simd);
  float sum = 0;
  for (uint c = thread_index; c < columns; c += THREADS) sum += exp(from[c] - most);
  sum = group_sum(sum, shared, lane, simd);
  for (uint c = thread_index; c < columns; c += THREADS) to[c] = exp(from[c] - most) / sum;
}
""",
    effects={"out": "out"},
    group_size="THREADS",
    space={"THREADS": [64, 128, 256]},
    grid=lambda a: (a.x.shape[0],),
)

matmul = silo.metal(
    """
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

constant uint DEPTH [[function_constant(0)]];

// c = a @ b: a threadgroup makes a tile of 32 x 32, each of its four simdgroups a quarter of it, of 2 x 2 matrices.
kernel void matmul(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                   device float* c [[buffer(2)]], constant uint& rows [[buffer(3)]],
                   constant uint& columns [[buffer(4)]], constant uint& inner [[buffer(5)]],
                   uint2 tile [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float left[32 * 32], right[32 * 32], made[32 * 32];
  const uint row = tile.y * 32, column = tile.x * 32;
  const uint top = simd / 2 * 16, side = simd % 2 * 16;
  simdgroup_float8x8 sums[2][2];
  for (uint i = 0; i < 4; i++) sums[i / 2][i % 2] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < inner; k += DEPTH) {
    for (uint i = thread_index; i < 32 * DEPTH; i += 128) {
      const uint r = row + i / DEPTH, p = k + i % DEPTH;
      left[i] = r < rows && p < inner ? a[ulong(r) * inner + p] : 0.0f;
      const uint q = k + i / 32, s = column + i % 32;
      right[i] = q < inner && s < columns ? b[ulong(q) * columns + s] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint p = 0; p < DEPTH; p += 8) {
      simdgroup_float8x8 x[2], y[2];
      for (uint i = 0; i < 2; i++) {
        simdgroup_load(x[i], left + (top + i * 8) * DEPTH + p, DEPTH);
        simdgroup_load(y[i], right + p * 32 + side + i * 8, 32);
      }
      for (uint i = 0; i < 4; i++)
        simdgroup_multiply_accumulate(sums[i / 2][i % 2], x[i / 2], y[i % 2], sums[i / 2][i % 2]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (uint i = 0; i < 4; i++)
    simdgroup_store(sums[i / 2][i % 2], made + (top + i / 2 * 8) * 32 + side + i % 2 * 8, 32);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < 32 * 32; i += 128) {
    const uint r = row + i / 32, s = column + i % 32;
    if (r < rows && s < columns) c[ulong(r) * columns + s] = made[i];
  }
}
""",
    effects={"c": "out"},
    group_size=128,
    space={"DEPTH": [16, 32]},
    grid=lambda a: (silo.cdiv(a.columns, 32), silo.cdiv(a.rows, 32)),
)

histogram = silo.metal(
    """
#include <metal_stdlib>
using namespace metal;

constant uint THREADS [[function_constant(0)]];

// How often each byte occurs: counted by each threadgroup for itself, and added up at its end.
kernel void histogram(device const uchar* values [[buffer(0)]], device atomic_uint* counts [[buffer(1)]],
                      constant uint& n [[buffer(2)]], uint group [[threadgroup_position_in_grid]],
                      uint groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint own[256];
  for (uint i = thread_index; i < 256; i += THREADS) atomic_store_explicit(&own[i], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = group * THREADS + thread_index; i < n; i += groups * THREADS)
    atomic_fetch_add_explicit(&own[values[i]], 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < 256; i += THREADS) {
    const uint count = atomic_load_explicit(&own[i], memory_order_relaxed);
    if (count > 0) atomic_fetch_add_explicit(&counts[i], count, memory_order_relaxed);
  }
}
""",
    effects={"counts": "inout"},
    group_size="THREADS",
    space={"THREADS": [64, 256]},
    grid=(16,),
)


@add.cases(n=[1 << 16, (1 << 16) + 17])
def _(n, make):
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    return silo.Case(args=(x, y, out, n), expected={"out": lambda: x.host + y.host}, bytes=12 * n, flops=n)


@softmax.cases(shape=[(64, 1024), (33, 777)])
def _(shape, make):
    x, out = make.normal(shape), make.empty(shape)

    def expected():
        values = np.exp(x.host.astype(np.float64) - x.host.max(axis=1, keepdims=True))
        return values / values.sum(axis=1, keepdims=True)

    return silo.Case(args=(x, out, shape[1]), expected={"out": expected})


@matmul.cases(size=[(128, 96, 64), (70, 50, 90)])
def _(size, make):
    rows, columns, inner = size
    a, b, c = make.normal((rows, inner)), make.normal((inner, columns)), make.empty((rows, columns))
    expected = {"c": lambda: a.host.astype(np.float64) @ b.host.astype(np.float64)}
    return silo.Case(args=(a, b, c, rows, columns, inner), expected=expected, flops=2 * rows * columns * inner)


@histogram.cases(n=[10_000])
def _(n, make):
    values, counts = make.integers(n, high=256, dtype="uint8"), make.zeros(256, dtype="uint32")
    return silo.Case(args=(values, counts, n), expected={"counts": lambda: np.bincount(values.host, minlength=256)})

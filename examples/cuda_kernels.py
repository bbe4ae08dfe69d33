"""Kernels in CUDA C++, each with a grid and cases; those with a choice have a tuning space.

``silo build examples/cuda_kernels.py -o cuda.silo -t cuda:sm_80 -t cuda:sm_90a`` needs NVRTC
(``pip install kernel-silo[cuda]``) and no GPU; ``silo run cuda.silo`` runs their cases on one, without NVRTC.
"""

import numpy as np

import silo

add = silo.cuda(
    """
// out = x + y, one element a thread.
extern "C" __global__ void __launch_bounds__(THREADS) add(const float *x, const float *y, float *out, int n) {
  int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}
""",
    signature={"out": "out"},
    threads="THREADS",
    space={"THREADS": [128, 256, 512]},
    grid=lambda a: (silo.cdiv(a.n, a.THREADS),),
)


@add.cases(n=[1000, 1 << 20])
def _(n, make):
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    return silo.Case(args=(x, y, out, n), expected={"out": lambda: x.host + y.host})


scale = silo.cuda(
    """
#include <cuda_fp16.h>

// A template: its arguments are constants of the space.
template <class T, int VALUES>
__global__ void scale(const T *x, T *out, float a, int n) {
  int first = (blockIdx.x * blockDim.x + threadIdx.x) * VALUES;
#pragma unroll
  for (int i = first; i < first + VALUES; i++)
    if (i < n) out[i] = T(a * float(x[i]));
}
""",
    entry="scale<half, VALUES>",
    signature={"out": "out"},
    threads=128,
    space={"VALUES": [1, 2, 4]},
    grid=lambda a: (silo.cdiv(a.n, 128 * a.VALUES),),
)


@scale.cases(n=[5000])
def _(n, make):
    x, out = make.normal(n, dtype="float16"), make.empty(n, dtype="float16")
    return silo.Case(
        args=(x, out, 0.5, n),
        expected={"out": lambda: (np.float32(0.5) * x.host.astype(np.float32)).astype(np.float16)},
        atol=1e-3,
    )


REDUCTIONS = """
__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
  return value;
}

__device__ float block_sum(float value) {
  __shared__ float parts[32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0;
  if (threadIdx.x < 32) value = warp_sum(value);
  if (threadIdx.x == 0) parts[0] = value;
  __syncthreads();
  value = parts[0];
  __syncthreads();
  return value;
}
"""

total = silo.cuda(
    REDUCTIONS
    + """
// The sum of all elements: a part by each block, added atomically.
__global__ void total(const float *x, float *out, int n) {
  float value = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) value += x[i];
  value = block_sum(value);
  if (threadIdx.x == 0) atomicAdd(out, value);
}
""",
    entry="total",
    threads="THREADS",
    space={"THREADS": [128, 256]},
    grid=(64,),
)


@total.cases(n=[100_000])
def _(n, make):
    x, out = make.normal(n), make.zeros(1)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host.sum(keepdims=True)}, atol=0.05, rtol=1e-3)


layer_norm = silo.cuda(
    REDUCTIONS
    + """
// Each row without its mean and by its deviation; one block a row.
__global__ void layer_norm(const float *__restrict__ x, float *__restrict__ out, int columns, float eps) {
  x += (long long)blockIdx.x * columns;
  out += (long long)blockIdx.x * columns;
  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += x[i];
  float mean = block_sum(sum) / columns;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += (x[i] - mean) * (x[i] - mean);
  float scale = rsqrtf(block_sum(squares) / columns + eps);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = (x[i] - mean) * scale;
}
""",
    entry="layer_norm",
    signature={"out": "out"},
    threads="THREADS",
    space={"THREADS": [64, 256]},
    grid=lambda a: (a.x.shape[0],),
)


@layer_norm.cases(columns=[1000])
def _(columns, make):
    x, out = make.normal(64, columns), make.empty(64, columns)

    def expected():
        centred = x.host - x.host.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)

    return silo.Case(args=(x, out, columns, 1e-5), expected={"out": expected}, atol=1e-4)


softmax = silo.cuda(
    """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

// The softmax of each row, one warp a row.
__global__ void softmax(const float *x, float *out, int rows, int columns) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
  if (row >= rows) return;
  float most = -INFINITY, sum = 0;
  for (int i = warp.thread_rank(); i < columns; i += 32) most = fmaxf(most, x[row * columns + i]);
  most = cg::reduce(warp, most, cg::greater<float>());
  for (int i = warp.thread_rank(); i < columns; i += 32) sum += expf(x[row * columns + i] - most);
  sum = cg::reduce(warp, sum, cg::plus<float>());
  for (int i = warp.thread_rank(); i < columns; i += 32)
    out[row * columns + i] = expf(x[row * columns + i] - most) / sum;
}
""",
    signature={"out": "out"},
    threads=128,
    constants={"INFINITY": "__int_as_float(0x7f800000)"},
    grid=lambda a: (silo.cdiv(a.rows, 4),),
)


@softmax.cases(columns=[100])
def _(columns, make):
    x, out = make.normal(33, columns), make.empty(33, columns)

    def expected():
        powers = np.exp(x.host - x.host.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    return silo.Case(args=(x, out, 33, columns), expected={"out": expected}, atol=1e-5)


transpose = silo.cuda(
    """
// Dynamic shared memory, whose size is a function of the constants.
extern __shared__ float tile[];
__global__ void transpose(const float *x, float *out, int rows, int columns) {
  int i = blockIdx.x * TILE + threadIdx.x, j = blockIdx.y * TILE + threadIdx.y;
  if (i < columns && j < rows) tile[threadIdx.y * (TILE + 1) + threadIdx.x] = x[j * columns + i];
  __syncthreads();
  i = blockIdx.y * TILE + threadIdx.x;
  j = blockIdx.x * TILE + threadIdx.y;
  if (i < rows && j < columns) out[j * rows + i] = tile[threadIdx.x * (TILE + 1) + threadIdx.y];
}
""",
    signature={"out": "out"},
    threads=("TILE", "TILE"),
    shared=lambda c: 4 * c.TILE * (c.TILE + 1),
    space={"TILE": [16, 32]},
    grid=lambda a: (silo.cdiv(a.columns, a.TILE), silo.cdiv(a.rows, a.TILE)),
)


@transpose.cases(rows=[70])
def _(rows, make):
    x, out = make.normal(rows, 100), make.empty(100, rows)
    return silo.Case(args=(x, out, rows, 100), expected={"out": lambda: np.ascontiguousarray(x.host.T)})


histogram = silo.cuda(
    """
// How often each byte occurs: counted in shared memory, then added.
__global__ void histogram(const unsigned char *x, int *counts, int n) {
  __shared__ int own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&own[x[i]], 1);
  __syncthreads();
  atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}
""",
    threads=256,
    grid=(16,),
)


@histogram.cases(n=[50_000])
def _(n, make):
    x, counts = make.integers(n, low=0, high=256, dtype="uint8"), make.zeros(256, dtype="int32")
    return silo.Case(
        args=(x, counts, n), expected={"counts": lambda: np.bincount(x.host, minlength=256).astype(np.int32)}
    )


saxpy4 = silo.cuda(
    """
// Vectors of four: arrays begin at a multiple of 16 bytes, which is checked.
__global__ void saxpy4(const float4 *x, float4 *y, float a, int quads) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= quads) return;
  float4 v = x[i], w = y[i];
  y[i] = make_float4(a * v.x + w.x, a * v.y + w.y, a * v.z + w.z, a * v.w + w.w);
}
""",
    threads=128,
    grid=lambda a: (silo.cdiv(a.quads, 128),),
)


@saxpy4.cases(quads=[1000])
def _(quads, make):
    x, y = make.normal(4 * quads), make.normal(4 * quads)
    return silo.Case(args=(x, y, 2.0, quads), expected={"y": lambda: np.float32(2) * x.host + y.host}, atol=1e-5)


tensor_cores = silo.cuda(
    """
#include <mma.h>
using namespace nvcuda;

// c = a @ b in 16 x 16 tiles by the tensor cores, a warp a tile; sizes are multiples of 16.
__global__ void tensor_cores(const half *a, const half *b, float *c, int n, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(left, a + blockIdx.y * 16 * k + i, k);
    wmma::load_matrix_sync(right, b + i * n + blockIdx.x * 16, n);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, wmma::mem_row_major);
}
""",
    signature={"c": "out"},
    threads=32,
    grid=lambda a: (a.n // 16, a.a.shape[0] // 16),
)


@tensor_cores.cases(n=[64])
def _(n, make):
    a, b, c = make.normal(48, 32, dtype="float16"), make.normal(32, n, dtype="float16"), make.empty(48, n)
    return silo.Case(
        args=(a, b, c, n, 32), expected={"c": lambda: a.host.astype(np.float32) @ b.host.astype(np.float32)}, atol=1e-2
    )


clipped = silo.cuda(
    """
enum class Mode : int { LOW, BOTH };

// Scalars of every kind: an enumeration is passed as its number.
__global__ void clipped(const double *x, double *out, double low, double high, Mode mode, bool negate, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double value = fmax(x[i], low);
  if (mode == Mode::BOTH) value = fmin(value, high);
  out[i] = negate ? -value : value;
}
""",
    signature={"out": "out"},
    threads=64,
    grid=lambda a: (silo.cdiv(a.n, 64),),
)


@clipped.cases(n=[300])
def _(n, make):
    x, out = make.normal(n, dtype="float64"), make.empty(n, dtype="float64")
    return silo.Case(args=(x, out, -0.5, 0.75, 1, True, n), expected={"out": lambda: -np.clip(x.host, -0.5, 0.75)})


block_scan = silo.cuda(
    """
#include <cub/block/block_scan.cuh>

// The sums up to each element, within blocks of THREADS.
__global__ void block_scan(const int *x, int *out, int n) {
  using Scan = cub::BlockScan<int, THREADS>;
  __shared__ typename Scan::TempStorage storage;
  int i = blockIdx.x * THREADS + threadIdx.x, sum;
  Scan(storage).InclusiveSum(i < n ? x[i] : 0, sum);
  if (i < n) out[i] = sum;
}
""",
    signature={"out": "out"},
    threads="THREADS",
    constants={"THREADS": 128},
    grid=lambda a: (silo.cdiv(a.n, 128),),
)


@block_scan.cases(n=[1024])
def _(n, make):
    x, out = make.integers(n, low=-5, high=6, dtype="int32"), make.empty(n, dtype="int32")
    return silo.Case(
        args=(x, out, n), expected={"out": lambda: np.cumsum(x.host.reshape(-1, 128), 1).reshape(-1).astype(np.int32)}
    )


matmul = silo.cuda(
    """
#define BM (BLOCK_Y * TILE_Y)
#define BN (BLOCK_X * TILE_X)

// c = a @ b; every thread computes TILE_Y x TILE_X elements. 54 configs.
__global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
matmul(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float left[BM][BLOCK_X + 1], right[BLOCK_X][BN];
  float sum[TILE_Y][TILE_X] = {};
  int row = blockIdx.y * BM, column = blockIdx.x * BN;
  for (int at = 0; at < k; at += BLOCK_X) {
    for (int y = threadIdx.y; y < BM; y += BLOCK_Y)
      left[y][threadIdx.x] = row + y < m && at + threadIdx.x < k ? a[(row + y) * k + at + threadIdx.x] : 0;
    for (int y = threadIdx.y; y < BLOCK_X; y += BLOCK_Y)
#pragma unroll
      for (int x = 0; x < TILE_X; x++) {
        int j = column + x * BLOCK_X + threadIdx.x;
        right[y][x * BLOCK_X + threadIdx.x] = at + y < k && j < n ? b[(at + y) * n + j] : 0;
      }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BLOCK_X; i++)
#pragma unroll
      for (int y = 0; y < TILE_Y; y++)
#pragma unroll
        for (int x = 0; x < TILE_X; x++)
          sum[y][x] += left[y * BLOCK_Y + threadIdx.y][i] * right[i][x * BLOCK_X + threadIdx.x];
    __syncthreads();
  }
#pragma unroll
  for (int y = 0; y < TILE_Y; y++)
#pragma unroll
    for (int x = 0; x < TILE_X; x++) {
      int i = row + y * BLOCK_Y + threadIdx.y, j = column + x * BLOCK_X + threadIdx.x;
      if (i < m && j < n) c[i * n + j] = sum[y][x];
    }
}
""",
    signature={"c": "out"},
    threads=("BLOCK_X", "BLOCK_Y"),
    space={"BLOCK_X": [16, 32], "BLOCK_Y": [4, 8, 16], "TILE_X": [1, 2, 4], "TILE_Y": [1, 2, 4]},
    grid=lambda a: (silo.cdiv(a.n, a.BLOCK_X * a.TILE_X), silo.cdiv(a.m, a.BLOCK_Y * a.TILE_Y)),
    key=["m", "n", "k"],
)


@matmul.cases(size=[100, 1024])
def _(size, make):
    a, b, c = make.normal(size, size), make.normal(size, size), make.empty(size, size)
    return silo.Case(args=(a, b, c, size, size, size), expected={"c": lambda: a.host @ b.host}, atol=1e-2, rtol=1e-3)

"""CUDA C++ kernels for the CPU: right ones with their results by numpy, and wrong ones whose fault a check finds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import silo

__all__ = ["FAULTS", "RIGHT", "CudaFault", "RightKernel", "launcher_of", "need_clang"]


def need_clang() -> str:
    """Return the reason why CUDA C++ kernels cannot run here; "" if they can."""
    from silo.emulation.clang import find_clang
    from silo.errors import CompilerMissingError

    try:
        find_clang()
    except CompilerMissingError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class RightKernel:
    """A kernel with its launch; ``arguments`` makes its arguments, and ``expected`` the arrays after the launch."""

    name: str
    text: str
    arguments: Callable[[np.random.Generator], dict[str, Any]]
    expected: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    threads: Any = 64
    grid: tuple[int, ...] = (1,)
    entry: str = "k"
    shared: int = 0
    tolerance: float = 1e-6
    waits: bool = True
    lock: bool = False  # whether the kernel has a lock, which a check does not recognize as ordering


@dataclass(frozen=True)
class CudaFault:
    """A kernel whose fault is on the line that ends with ``// here``; ``error`` is the kind of the finding."""

    name: str
    text: str
    error: str
    threads: Any = 64
    grid: tuple[int, ...] = (1,)
    shared: int = 0
    n: int = 64
    uninitialized: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def launcher_of(one: "RightKernel | CudaFault", **options: Any) -> Any:
    """Return the Silo kernel of a sample."""
    given = {"shared": one.shared} if one.shared else {}
    entry = one.entry if isinstance(one, RightKernel) else "k"
    return silo.cuda(one.text, entry=entry, threads=one.threads, grid=one.grid, **given, **options)


def _floats(*names: str, n: int = 64, **more: Any) -> Callable[[np.random.Generator], dict[str, Any]]:
    return lambda rng: (
        {name: rng.standard_normal(n).astype(np.float32) for name in names}
        | {name: value() if callable(value) else value for name, value in more.items()}
    )


def _zeros(n: int, kind: Any = np.float32) -> Callable[[], Any]:
    return lambda: np.zeros(n, kind)


def _half_sum(given: Mapping[str, Any]) -> Mapping[str, Any]:
    a, b = given["a"].astype(np.float16), given["b"].astype(np.float16)
    return {"o": (a * b + a).astype(np.float16).astype(np.float32)}


def _bfloat(x: Any) -> Any:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def _scan(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"o": np.cumsum(given["a"].astype(np.int64)).astype(np.int32)}


def _warp_scans(rows: Any) -> Any:
    up = np.cumsum(rows, 1)
    return (up + 1000 * (up - rows) + 1000000 * up[:, -1:]).reshape(-1).astype(np.int32)


def _integers(n: int, most: int, kind: Any = np.int32) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.integers(0, most, n).astype(kind)


RIGHT = (
    RightKernel(
        "a plain loop",
        """
template <class T> __device__ T twice(T x) { return x + x; }
template <class T> __global__ void __launch_bounds__(128) k(const T *__restrict__ a, T *o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = twice(a[i]) + threadIdx.y;
}""",
        _floats("a", n=200, o=_zeros(200), n_=200),
        lambda given: {"o": 2 * given["a"]},
        128,
        (2,),
        "k<float>",
        waits=False,
    ),
    RightKernel(
        "three axes",
        """
__global__ void k(int *o) {
  dim3 at = threadIdx;
  uint3 b = blockIdx;
  int rank = at.x + blockDim.x * (at.y + blockDim.y * at.z);
  int block = b.x + gridDim.x * (b.y + gridDim.y * b.z);
  o[block * 24 + rank] = at.x + 10 * at.y + 100 * at.z + 1000 * block;
}""",
        lambda rng: {"o": np.zeros(24 * 8, np.int32)},
        lambda given: {
            "o": [
                x + 10 * y + 100 * z + 1000 * b for b in range(8) for z in range(2) for y in range(3) for x in range(4)
            ]
        },
        (4, 3, 2),
        (2, 2, 2),
        waits=False,
    ),
    RightKernel(
        "a tree in shared memory",
        """
__global__ void k(const float *a, float *o, int n) {
  __shared__ float s[128], unused[2][3];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? a[i] : 0.0f;
  __syncthreads();
  for (int step = 64; step > 0; step /= 2) {
    if (t < step) s[t] += s[t + step];
    __syncthreads();
  }
  if (t == 0) o[blockIdx.x] = s[0];
}""",
        _floats("a", n=300, o=_zeros(3), n_=300),
        lambda given: {"o": [given["a"][at : at + 128].sum() for at in (0, 128, 256)]},
        128,
        (3,),
        tolerance=1e-4,
    ),
    RightKernel(
        "dynamic shared memory of two types",
        """
extern __shared__ __align__(16) unsigned char raw[];
__global__ void k(const float *a, float *o) {
  extern __shared__ float tile[];
  int *count = reinterpret_cast<int *>(raw + 64 * sizeof(float));
  int t = threadIdx.x;
  if (t == 0) *count = 0;
  tile[t] = a[t];
  __syncthreads();
  if (a[t] > 0) atomicAdd(count, 1);
  __syncthreads();
  o[t] = tile[63 - t] + *count;
}""",
        _floats("a", o=_zeros(64)),
        lambda given: {"o": given["a"][::-1] + (given["a"] > 0).sum()},
        shared=64 * 4 + 16,
    ),
    RightKernel(
        "shuffles",
        """
__global__ void k(const float *a, float *o) {
  unsigned full = 0xffffffffu;
  int t = threadIdx.x;
  float v = a[t];
  float up = __shfl_up_sync(full, v, 1), down = __shfl_down_sync(full, v, 2, 16);
  float other = __shfl_xor_sync(full, v, 5), fixed = __shfl_sync(full, v, 9, 8);
  o[t] = up; o[64 + t] = down; o[128 + t] = other; o[192 + t] = fixed;
}""",
        _floats("a", o=_zeros(256)),
        lambda given: {
            "o": np.concatenate(
                [
                    [given["a"][t - 1 if t % 32 else t] for t in range(64)],
                    [given["a"][t + 2 if t % 16 + 2 < 16 else t] for t in range(64)],
                    [given["a"][t ^ 5] for t in range(64)],
                    [given["a"][t // 8 * 8 + 1] for t in range(64)],
                ]
            )
        },
    ),
    RightKernel(
        "votes and matches",
        """
__global__ void k(const int *a, int *o) {
  unsigned full = 0xffffffffu;
  int t = threadIdx.x, same;
  o[t] = __ballot_sync(full, a[t] > 3);
  o[32 + t] = __any_sync(full, a[t] == 7) + 2 * __all_sync(full, a[t] >= 0);
  o[64 + t] = __match_any_sync(full, a[t]);
  o[96 + t] = __match_all_sync(full, 5, &same) + same;
  o[128 + t] = __reduce_add_sync(full, a[t]);
  o[160 + t] = __popc(__activemask());
}""",
        lambda rng: {"a": _integers(32, 7)(rng), "o": np.zeros(192, np.int32)},
        lambda given: {
            "o": np.concatenate(
                [
                    np.full(32, sum(1 << i for i in range(32) if given["a"][i] > 3), np.uint32).view(np.int32),
                    np.full(32, 2, np.int32),
                    np.array(
                        [sum(1 << j for j in range(32) if given["a"][j] == given["a"][i]) for i in range(32)], np.uint32
                    ).view(np.int32),
                    np.full(32, 0, np.int32),
                    np.full(32, given["a"].sum(), np.int32),
                    np.full(32, 32, np.int32),
                ]
            )
        },
        32,
    ),
    RightKernel(
        "lanes in two branches, and lanes that ended",
        """
__global__ void k(const float *a, float *o, int n) {
  int t = threadIdx.x;
  if (t >= n) return;
  float v = a[t];
  if (t % 32 < 8) {
    for (int step = 4; step; step /= 2) v += __shfl_xor_sync(0xffu, v, step);
    __syncwarp(0xffu);
  } else {
    v = __shfl_sync(~0xffu, v, 8 + t % 4);
  }
  o[t] = v;
}""",
        _floats("a", o=_zeros(64), n_=60),
        lambda given: {
            "o": [
                0.0
                if t >= 60
                else given["a"][t // 32 * 32 : t // 32 * 32 + 8].sum()
                if t % 32 < 8
                else given["a"][t // 32 * 32 + 8 + t % 4]
                for t in range(64)
            ]
        },
        tolerance=1e-5,
    ),
    RightKernel(
        "counting barriers",
        """
__global__ void k(const int *a, int *o) {
  int t = threadIdx.x, sum = 0;
  for (int i = 0; i < 4; i++) {
    sum += __syncthreads_count(a[t] == i);
    sum += 100 * __syncthreads_or(a[t] == 9) + 1000 * __syncthreads_and(a[t] < 4);
  }
  o[t] = sum;
}""",
        lambda rng: {"a": _integers(96, 4)(rng), "o": np.zeros(96, np.int32)},
        lambda given: {"o": np.full(96, 96 + 4000)},
        96,
    ),
    RightKernel(
        "atomics",
        """
__device__ int turns;
__device__ float slowAdd(float *to, float y) {
  int *word = (int *)to, old = *word, seen;
  do {
    seen = old;
    old = atomicCAS(word, seen, __float_as_int(y + __int_as_float(seen)));
  } while (seen != old);
  return __int_as_float(old);
}
__global__ void k(const int *a, int *h, float *f, unsigned *u, double *d, unsigned long long *w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&h[a[i]], 1);
  atomicMax(&h[8], i); atomicMin(&h[9], -i); atomicOr(&h[10], 1 << a[i]); atomicXor(&h[11], i); atomicSub(&h[12], 2);
  atomicAdd(f, 0.5f); slowAdd(f + 1, 1.0f);
  atomicInc(u, 9u); atomicDec(u + 1, 5u);
  atomicAdd(d, 0.25); atomicAdd(w, 3ull); atomicExch(w + 1, 7ull);
}""",
        lambda rng: {
            "a": _integers(256, 8)(rng),
            "h": np.zeros(16, np.int32),
            "f": np.zeros(2, np.float32),
            "u": np.zeros(2, np.uint32),
            "d": np.zeros(1),
            "w": np.zeros(2, np.uint64),
        },
        lambda given: {
            "h": np.concatenate(
                [np.bincount(given["a"], minlength=8), [255, -255, 255, 0, -512, 0, 0, 0]],
            ),
            "f": [128, 256],
            "u": [256 % 10, 2],
            "d": [64],
            "w": [768, 7],
        },
        64,
        (4,),
        waits=False,
    ),
    RightKernel(
        "a lock that threads of a block hold in turn",
        """
__global__ void k(int *lock, int *o) {
  __shared__ int mine;
  if (threadIdx.x == 0) mine = 0;
  __syncthreads();
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      mine = mine + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
  __syncthreads();
  o[threadIdx.x] = mine;
}""",
        lambda rng: {"lock": np.zeros(1, np.int32), "o": np.zeros(64, np.int32)},
        lambda given: {"o": np.full(64, 64)},
        lock=True,
    ),
    RightKernel(
        "cooperative groups",
        """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void k(const float *a, float *o, int *r) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
  __shared__ float s[64];
  int t = block.thread_rank();
  s[t] = a[t];
  cg::sync(block);
  float v = s[block.size() - 1 - t];
  for (int step = tile.size() / 2; step > 0; step /= 2) v += tile.shfl_down(v, step);
  if (tile.thread_rank() == 0) o[tile.meta_group_rank()] = v;
  o[8 + t] = cg::reduce(cg::tiled_partition<32>(block), a[t], cg::greater<float>());
  r[t] = tile.ballot(t % 3 == 0);
  if (t % 2) {
    cg::coalesced_group odd = cg::coalesced_threads();
    r[64 + t] = odd.size() * 100 + odd.thread_rank();
    r[128 + t] = odd.shfl(t, 0);
  }
}""",
        _floats("a", o=_zeros(72), r=_zeros(192, np.int32)),
        lambda given: {
            "o": np.concatenate(
                [
                    given["a"][::-1].reshape(8, 8).sum(1),
                    np.repeat(given["a"].reshape(2, 32).max(1), 32),
                ]
            ),
            "r": np.concatenate(
                [
                    [sum((t // 8 * 8 + i) % 3 == 0 and 1 << i for i in range(8)) for t in range(64)],
                    [1600 + t % 32 // 2 if t % 2 else 0 for t in range(64)],
                    [t // 32 * 32 + 1 if t % 2 else 0 for t in range(64)],
                ]
            ),
        },
        tolerance=1e-5,
    ),
    RightKernel(
        "half",
        """
#include <cuda_fp16.h>
__global__ void k(const float *a, const float *b, float *o) {
  int t = threadIdx.x;
  half x = __float2half(a[t]), y = b[t];
  half2 both = __halves2half2(x, y);
  o[t] = __half2float(x * y + x);
  o[64 + t] = __half2float(__hfma(x, y, x)) + __low2float(both) + __high2float(both);
  o[128 + t] = x > y ? __half2float(hexp(x)) : float(__hmul2(both, both).y);
}""",
        _floats("a", "b", o=_zeros(192)),
        lambda given: {
            "o": np.concatenate(
                [
                    ((x := given["a"].astype(np.float16)) * (y := given["b"].astype(np.float16)) + x).astype(
                        np.float32
                    ),
                    (x.astype(float) * y + x).astype(np.float16).astype(np.float32) + x.astype(np.float32) + y,
                    np.where(x > y, np.exp(x.astype(np.float32)).astype(np.float16), y * y).astype(np.float32),
                ]
            )
        },
        tolerance=1e-3,
        waits=False,
    ),
    RightKernel(
        "bfloat16",
        """
#include <cuda_bf16.h>
__global__ void k(const float *a, const float *b, float *o) {
  int t = threadIdx.x;
  __nv_bfloat16 x = __float2bfloat16(a[t]), y = __float2bfloat16(b[t]);
  __nv_bfloat162 both = __floats2bfloat162_rn(a[t], b[t]);
  o[t] = __bfloat162float(x + y);
  o[64 + t] = float(both.x) * 2.0f + float(__hmax(x, y));
}""",
        _floats("a", "b", o=_zeros(128)),
        lambda given: {
            "o": np.concatenate(
                [
                    _bfloat(_bfloat(given["a"]) + _bfloat(given["b"])),
                    2 * _bfloat(given["a"]) + np.maximum(_bfloat(given["a"]), _bfloat(given["b"])),
                ]
            )
        },
        waits=False,
    ),
    RightKernel(
        "vectors and structs of the text",
        """
struct Pair { float x; int n; };
__device__ float4 operator*(float4 a, float s) { return make_float4(a.x * s, a.y * s, a.z * s, a.w * s); }
__constant__ float factors[2] = {2.0f, 3.0f};
__global__ void k(const float4 *a, float *o, int2 *p) {
  int t = threadIdx.x;
  float4 v = __ldg(&a[t]) * factors[t % 2];
  Pair pair = {v.x + v.y, t};
  reinterpret_cast<float4 *>(o)[t] = v;
  p[t] = make_int2(pair.n, int(sizeof(float3)));
}""",
        lambda rng: {
            "a": rng.standard_normal(64).astype(np.float32),
            "o": np.zeros(64, np.float32),
            "p": np.zeros(32, np.int32),
        },
        lambda given: {
            "o": (given["a"].reshape(16, 4) * np.tile([2, 3], 8)[:, None]).reshape(-1),
            "p": np.stack([np.arange(16), np.full(16, 12)], 1).reshape(-1),
        },
        16,
        waits=False,
    ),
    RightKernel(
        "intrinsics",
        """
__global__ void k(const int *a, int *o, float *f) {
  int t = threadIdx.x, x = a[t];
  o[t] = __popc(x) + 100 * __clz(x) + 10000 * __ffs(x);
  o[64 + t] = int(__brev(unsigned(x)));
  o[128 + t] = __mulhi(x, 1 << 20) + __float2int_rn(2.5f) + __float2int_rz(-2.5f) + min(x, 3) + max(x, 5u);
  f[t] = __int_as_float(__float_as_int(__fdividef(float(x), 4.0f))) + __expf(0.0f) + rsqrtf(4.0f);
  f[64 + t] = fmaxf(sqrtf(float(x)), 2.0f) + powf(2.0f, 3.0f) + __saturatef(-1.0f) + fabs(-0.5f) + abs(-2);
}""",
        lambda rng: {
            "a": rng.integers(1, 1 << 30, 64).astype(np.int32),
            "o": np.zeros(192, np.int32),
            "f": np.zeros(128, np.float32),
        },
        lambda given: {
            "o": np.concatenate(
                [
                    [
                        int(x).bit_count() + 100 * (32 - int(x).bit_length()) + 10000 * (int(x & -x).bit_length())
                        for x in given["a"].astype(np.int64)
                    ],
                    np.array([int(f"{x:032b}"[::-1], 2) for x in given["a"]], np.uint32).view(np.int32),
                    (given["a"].astype(np.int64) << 20 >> 32) + np.minimum(given["a"], 3) + np.maximum(given["a"], 5),
                ]
            ),
            "f": np.concatenate(
                [
                    given["a"].astype(np.float32) / 4 + 1.5,
                    np.maximum(np.sqrt(given["a"].astype(np.float32)), 2) + 10.5,
                ]
            ),
        },
        waits=False,
    ),
    RightKernel(
        "a matrix product of tiles",
        """
template <int TILE> __global__ void k(const float *a, const float *b, float *c, int n) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE + 1];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, col = blockIdx.x * TILE + x;
  float sum = 0;
  for (int at = 0; at < n; at += TILE) {
    as[y][x] = a[row * n + at + x];
    bs[y][x] = b[(at + y) * n + col];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++) sum += as[y][i] * bs[i][x];
    __syncthreads();
  }
  c[row * n + col] = sum;
}""",
        _floats("a", "b", n=1024, c=_zeros(1024), n_=32),
        lambda given: {"c": (given["a"].reshape(32, 32) @ given["b"].reshape(32, 32)).reshape(-1)},
        (8, 8),
        (4, 4),
        "k<8>",
        tolerance=1e-4,
    ),
    RightKernel(
        "a scan by warps",
        """
__device__ int warpScan(int v) {
  int lane = threadIdx.x & 31;
  for (int step = 1; step < 32; step *= 2) {
    int before = __shfl_up_sync(0xffffffffu, v, step);
    if (lane >= step) v += before;
  }
  return v;
}
__global__ void k(const int *a, int *o) {
  __shared__ int sums[32];
  int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  int v = warpScan(a[t]);
  if (lane == 31) sums[warp] = v;
  __syncthreads();
  if (warp == 0) {
    int s = lane < blockDim.x / 32 ? sums[lane] : 0;
    s = warpScan(s);
    __syncwarp();
    if (lane < blockDim.x / 32) sums[lane] = s;
  }
  __syncthreads();
  o[t] = v + (warp ? sums[warp - 1] : 0);
}""",
        lambda rng: {"a": _integers(160, 50)(rng), "o": np.zeros(160, np.int32)},
        _scan,
        160,
    ),
    RightKernel(
        "the last block adds up",
        """
__device__ unsigned arrived = 0;
__global__ void k(const float *a, float *parts, float *o) {
  __shared__ float s[64];
  __shared__ bool last;
  int t = threadIdx.x;
  s[t] = a[blockIdx.x * 64 + t];
  __syncthreads();
  for (int step = 32; step; step /= 2) {
    if (t < step) s[t] += s[t + step];
    __syncthreads();
  }
  if (t == 0) {
    parts[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) {
    float sum = 0;
    for (int i = 0; i < gridDim.x; i++) sum += parts[i];
    *o = sum;
  }
}""",
        _floats("a", n=256, parts=_zeros(4), o=_zeros(1)),
        lambda given: {"o": [given["a"].sum()]},
        64,
        (4,),
        tolerance=1e-4,
    ),
    RightKernel(
        "a softmax of rows by warps",
        """
#include <float.h>
__device__ __forceinline__ float warpMax(float v) {
  for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, step));
  return v;
}
__device__ __forceinline__ float warpSum(float v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
  return v;
}
__global__ void k(float *out, const float *in, int columns) {
  int row = blockIdx.x * (blockDim.x / warpSize) + threadIdx.x / warpSize, lane = threadIdx.x % warpSize;
  const float *x = in + row * columns;
  float most = -FLT_MAX, sum = 0.0f;
  for (int i = lane; i < columns; i += warpSize) most = fmaxf(most, x[i]);
  most = warpMax(most);
  for (int i = lane; i < columns; i += warpSize) sum += expf(x[i] - most);
  sum = warpSum(sum);
  for (int i = lane; i < columns; i += warpSize) out[row * columns + i] = expf(x[i] - most) / sum;
}""",
        lambda rng: {
            "out": np.zeros(8 * 50, np.float32),
            "in": rng.standard_normal(8 * 50).astype(np.float32),
            "columns": 50,
        },
        lambda given: {
            "out": (
                (e := np.exp((x := given["in"].reshape(8, 50)) - x.max(1, keepdims=True))) / e.sum(1, keepdims=True)
            ).reshape(-1)
        },
        64,
        (4,),
        tolerance=1e-5,
    ),
    RightKernel(
        "threads that ended before a warp's reduction",
        """
__global__ void k(const float *a, float *o, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  bool in = t < n;
  unsigned mask = __ballot_sync(0xffffffffu, in);
  if (!in) return;
  float v = a[t];
  int lane = threadIdx.x % 32, count = __popc(mask);
  for (int step = 16; step; step /= 2) {
    float other = __shfl_down_sync(mask, v, step);
    if (lane + step < count) v += other;
  }
  if (lane == 0) o[t / 32] = v;
}""",
        _floats("a", n=50, o=_zeros(2), n_=50),
        lambda given: {"o": [given["a"][:32].sum(), given["a"][32:].sum()]},
        tolerance=1e-4,
    ),
    RightKernel(
        "sums of a block by cub",
        """
#include <cub/cub.cuh>
struct Most { __device__ float operator()(float a, float b) const { return a > b ? a : b; } };
__global__ void k(const float *a, float *o) {
  using Reduce = cub::BlockReduce<float, 72>;
  using Warp = cub::WarpReduce<float, 8>;
  __shared__ union { typename Reduce::TempStorage block; typename Warp::TempStorage warp[9]; } storage;
  int t = threadIdx.x;
  float sum = Reduce(storage.block).Sum(a[t]);
  __syncthreads();
  float most = Reduce(storage.block).Reduce(a[t], Most());
  __syncthreads();
  float some = Reduce(storage.block).Sum(a[t], 40);
  __syncthreads();
  float pair[2] = {a[t], 1};
  float all = Reduce(storage.block).Sum(pair);
  float eight = Warp(storage.warp[t / 8]).Sum(a[t]);
  float five = Warp(storage.warp[t / 8]).Sum(a[t], 5);
  if (t == 0) { o[0] = sum; o[1] = most; o[2] = some; o[3] = all; }
  if (t % 8 == 0) { o[4 + t / 8] = eight; o[13 + t / 8] = five; }
}""",
        _floats("a", n=72, o=_zeros(22)),
        lambda given: {
            "o": [
                given["a"].sum(),
                given["a"].max(),
                given["a"][:40].sum(),
                given["a"].sum() + 72,
                *given["a"].reshape(9, 8).sum(1),
                *given["a"].reshape(9, 8)[:, :5].sum(1),
            ]
        },
        72,
        tolerance=1e-5,
    ),
    RightKernel(
        "scans of a block by cub",
        """
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
struct Prefix { int before; __device__ int operator()(int all) { int old = before; before += all; return old; } };
__global__ void k(const int *a, int *o, int n) {
  using Load = cub::BlockLoad<int, 48, 3, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<int, 48, 3, cub::BLOCK_STORE_TRANSPOSE>;
  using Scan = cub::BlockScan<int, 48>;
  __shared__ typename Load::TempStorage load;
  __shared__ typename Store::TempStorage store;
  __shared__ typename Scan::TempStorage scan;
  Prefix prefix{5};
  for (int at = 0; at < n; at += 144) {
    int x[3];
    Load(load).Load(a + at, x, n - at, 0);
    __syncthreads();
    Scan(scan).InclusiveSum(x, x, prefix);
    __syncthreads();
    Store(store).Store(o + at, x, n - at);
    __syncthreads();
  }
  int one = threadIdx.x, before, all;
  Scan(scan).ExclusiveSum(one, before, all);
  o[n + threadIdx.x] = before + all;
}""",
        lambda rng: {"a": rng.integers(0, 9, 200).astype(np.int32), "o": np.zeros(248, np.int32), "n": 200},
        lambda given: {"o": [*(5 + np.cumsum(given["a"])), *(np.arange(48) * (np.arange(48) - 1) // 2 + 48 * 47 // 2)]},
        48,
    ),
    RightKernel(
        "lanes of a warp scanned by cub",
        """
#include <cub/cub.cuh>
__global__ void k(const int *a, int *o) {
  using Scan = cub::WarpScan<int, 16>;
  __shared__ typename Scan::TempStorage storage[4];
  int t = threadIdx.x, up, before, all;
  Scan(storage[t / 16]).InclusiveSum(a[t], up);
  Scan(storage[t / 16]).ExclusiveSum(a[t], before, all);
  o[t] = up + 1000 * before + 1000000 * all;
}""",
        lambda rng: {"a": rng.integers(0, 9, 64).astype(np.int32), "o": np.zeros(64, np.int32)},
        lambda given: {"o": _warp_scans(given["a"].reshape(4, 16).astype(np.int64))},
        64,
    ),
)

_HEAD = (
    "__global__ void k(const float *a, float *o, int n) {\n  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n"
)


def _fault(name: str, body: str, error: str, head: str = "", **more: Any) -> CudaFault:
    return CudaFault(name, f"{head}{_HEAD}{body}\n}}\n", error, **more)


FAULTS = (
    _fault("a barrier is missing", "  __shared__ float s[64];\n  s[t] = a[t];\n  o[t] = s[63 - t]; // here", "race"),
    _fault(
        "a barrier is missing in a loop",
        "  __shared__ float s[64];\n  s[t] = a[t];\n  __syncthreads();\n"
        "  for (int k = 32; k; k /= 2)\n    if (t < k) s[t] += s[t + k]; // here\n  o[t] = s[0];",
        "race",
    ),
    _fault(
        "a counter that is read beside atomics",
        "  __shared__ int count;\n  if (t == 0) count = 0;\n  __syncthreads();\n"
        "  atomicAdd(&count, 1);\n  o[t] = count; // here",
        "race",
    ),
    _fault(
        "a storage of cub that is used again at once",
        "  using Reduce = cub::BlockReduce<float, 64>;\n  __shared__ typename Reduce::TempStorage storage;\n"
        "  float sum = Reduce(storage).Sum(a[t]);\n  float other = Reduce(storage).Sum(a[63 - t]); // here\n"
        "  if (t == 0) o[0] = sum + other;",
        "race",
        head="#include <cub/cub.cuh>\n",
    ),
    _fault("two threads write one element", "  o[t / 2] = a[t]; // here", "race"),
    _fault("blocks add without atomics", "  o[t] += a[t]; // here", "race", grid=(2,)),
    _fault(
        "a warp without __syncwarp",
        "  __shared__ float s[64];\n  s[t] = a[t];\n  o[t] = s[t ^ 1]; // here",
        "race",
    ),
    _fault(
        "a counter without an atomic",
        "  __shared__ int count;\n  if (t == 0) count = 0;\n  __syncthreads();\n  if (a[t] > 0) count++; // here\n"
        "  __syncthreads();\n  o[t] = count;",
        "race",
    ),
    _fault("one too many", "  o[t] = a[t + 1]; // here", "out of bounds"),
    _fault("no guard at the end", "  o[i] = a[i]; // here", "out of bounds", grid=(2,)),
    _fault("before the start", "  if (t < 2) o[t] = a[t - 1]; // here", "out of bounds"),
    _fault(
        "beyond shared memory",
        "  __shared__ float s[32];\n  s[t] = a[t]; // here\n  __syncthreads();\n  o[t] = s[0];",
        "out of bounds",
    ),
    _fault(
        "too little dynamic shared memory",
        "  extern __shared__ float s[];\n  s[t] = a[t]; // here\n  __syncthreads();\n  o[t] = s[0];",
        "out of bounds",
        shared=128,
    ),
    _fault(
        "beyond a variable",
        "  float mine[4] = {a[t], 1, 2, 3};\n  int at = n + t % 2 - 60;\n  o[t] = mine[at]; // here",
        "out of bounds",
    ),
    _fault("four at a time beyond the end", "  ((float4 *)o)[t] = make_float4(1, 2, 3, 4); // here", "out of bounds"),
    _fault(
        "an element of shared memory is not set",
        "  __shared__ float s[64];\n  if (t < 63) s[t] = a[t];\n  __syncthreads();\n  o[t] = s[t]; // here",
        "uninitialized",
    ),
    _fault(
        "a sum that begins with nothing",
        "  __shared__ float s;\n  atomicAdd(&s, a[t]); // here\n  __syncthreads();\n  o[t] = s;",
        "uninitialized",
    ),
    _fault("an output that is read", "  o[t] = o[t] + a[t]; // here", "uninitialized", uninitialized=("o",)),
    _fault(
        "a barrier after a return", "  if (t >= n) return;\n  __syncthreads(); // here\n  o[t] = a[t];", "barrier", n=60
    ),
    _fault("a barrier in a branch", "  if (t < 32)\n    __syncthreads(); // here\n  o[t] = a[t];", "barrier"),
    _fault(
        "a mask that names absent lanes",
        "  float v = a[t];\n  if (t < 16)\n    v += __shfl_down_sync(0xffffffffu, v, 8); // here\n"
        "  __syncthreads();\n  o[t] = v;",
        "divergence",
    ),
    _fault(
        "a mask without the lane itself",
        "  float v = a[t];\n  v += __shfl_xor_sync(0xffffu, v, 8); // here\n  o[t] = v;",
        "divergence",
    ),
    _fault("a loop that does not end", "  while (*(volatile float *)a != 12345.0f) {} // here\n  o[t] = 1;", "endless"),
)

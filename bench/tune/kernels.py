"""The matrix product of ``bench.tune``, its sixteen configs, and a space of 288 for several GPUs."""

from __future__ import annotations

import itertools

import triton
import triton.language as tl

import silo

# The configs of Triton's tutorial on matrix products, with the usual variations of their stages.
LISTED = (
    *((128, 256, 64, stages, 8) for stages in (3, 4)),
    *((256, 128, 64, stages, 8) for stages in (3, 4)),
    *((128, 128, 64, stages, warps) for stages in (3, 4) for warps in (4, 8)),
    *((128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 256, 32, 4, 4), (256, 64, 32, 4, 4)),
    *((128, 128, 32, 4, 4), (64, 64, 64, 5, 2), (128, 32, 64, 4, 4), (64, 32, 64, 5, 2)),
)
SMALL = tuple((m, n, 16, stages, warps) for m in (16, 32) for n in (16, 32) for stages in (1, 2) for warps in (2, 4))
WIDE = tuple(itertools.product((32, 64, 128, 256), (32, 64, 128, 256), (32, 64), (2, 3, 4), (2, 4, 8)))


def members(config):
    """Return a config's members by name."""
    m, n, k, stages, warps = config
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8, "num_stages": stages, "num_warps": warps}


def triton_config(config):
    """Return a config as a triton.Config."""
    named = members(config)
    options = {name: named.pop(name) for name in ("num_stages", "num_warps")}
    return triton.Config(named, **options)


@triton.jit
def matmul(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    """Compute c = a @ b of row-major fp16 matrices whose sizes are multiples of the blocks.

    Programs of GROUP rows of blocks run together, so that they share blocks of b in the cache.
    """
    pid = tl.program_id(0)
    columns = n // BLOCK_N
    group = pid // (GROUP * columns)
    first = group * GROUP
    rows = min(m // BLOCK_M - first, GROUP)
    row = first + pid % (GROUP * columns) % rows
    column = pid % (GROUP * columns) // rows
    i = row * BLOCK_M + tl.arange(0, BLOCK_M)
    j = column * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    left = a + i[:, None] * k + depth[None, :]
    right = b + depth[:, None] * n + j[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, k, BLOCK_K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BLOCK_K
        right += BLOCK_K * n
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.float16))


def grid(meta):
    """Return Triton's grid: one program for each block of the result."""
    return ((meta["m"] // meta["BLOCK_M"]) * (meta["n"] // meta["BLOCK_N"]),)


def tuned_by_silo(configs):
    """Return the kernel as a Silo kernel whose space is these configs."""
    return silo.kernel(
        space=[members(config) for config in configs],
        key=["m", "n", "k"],
        grid=lambda a: (silo.cdiv(a.m, a.BLOCK_M) * silo.cdiv(a.n, a.BLOCK_N),),
    )(matmul)


def tuned_by_triton(configs):
    """Return the kernel under Triton's autotuner, which keeps its result on disk if TRITON_CACHE_AUTOTUNING is set."""
    return triton.autotune([triton_config(config) for config in configs], key=["m", "n", "k"])(matmul)

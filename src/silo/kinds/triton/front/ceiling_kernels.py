"""The kernels that measure a device's limits: a copy, and matrix products. Needs Triton."""

from __future__ import annotations

# pyright: basic
import triton
import triton.language as tl

__all__ = ["copy", "dot"]


@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr) -> None:  # noqa: ANN001, N803  # Triton's form
    """Copies x to out, in blocks."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def dot(a, b, c, size, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr) -> None:  # noqa: ANN001, N803
    """Multiplies square matrices, whose size is a multiple of every block, into c; sums are in float32."""
    columns = size // BLOCK_N
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    left = a + (m[:, None] * size + k[None, :])
    right = b + (k[:, None] * size + n[None, :])
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, size, BLOCK_K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BLOCK_K
        right += BLOCK_K * size
    tl.store(c + (m[:, None] * size + n[None, :]), total)

"""The Triton kernel that the Metal kernels are compared with."""

import triton
import triton.language as tl

import silo


@silo.kernel(space={"BLOCK": [1024, 4096]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Add two arrays."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

"""The baseline of judge_add.py, and an example of a candidate: one kernel with its grid."""

import triton
import triton.language as tl

import silo


@silo.kernel(space={"BLOCK": [1024]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y, one block for each program."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)

"""Kernels that an earlier version tuned; see README.md."""

import numpy as np
import triton
import triton.language as tl

import silo


@silo.kernel(
    space={"BLOCK": [64, 256, 1024, 4096], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)
)
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@add.cases(n=[1 << 14])
def _(n, make):
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    return silo.Case(args=(x, y, out, n), expected={"out": lambda: x.host + y.host})


@silo.kernel(space={"ROWS": [1, 4], "COLUMNS": [32, 128]}, key=["m", "n"], grid=lambda a: (silo.cdiv(a.m, a.ROWS),))
@triton.jit
def row_sums(x, out, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of each row."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n, COLUMNS):
        i = start + tl.arange(0, COLUMNS)
        mask = (rows[:, None] < m) & (i[None, :] < n)
        total += tl.sum(tl.load(x + rows[:, None] * n + i[None, :], mask=mask, other=0.0), 1)
    tl.store(out + rows, total, mask=rows < m)


@row_sums.cases(n=[200])
def _(n, make):
    x, out = make.normal((256, n)), make.empty(256)
    return silo.Case(args=(x, out, 256, n), expected={"out": lambda: x.host.astype(np.float64).sum(1)})

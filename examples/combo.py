"""A combo: three sub-kernels in one launch, as compilers make them from small independent kernels.

Each sub-kernel gets a range of the launch's programs. The first two are equal, so they are tuned as one; the third sums
rows and has blocks of its own.
"""

import triton
import triton.language as tl

import silo
from silo import heuristics
from silo.core import grids
from silo.core.grids import Part
from silo.heuristics import KernelFacts

SCALE = heuristics.space("pointwise", {"x": "n"}, facts=KernelFacts(loads=1, stores=1))
SUM = heuristics.space("reduction", {"x": "rows", "r": "columns"}, facts=KernelFacts(loads=1, reductions=1))


@triton.jit
def scaled(x, out, n, factor, block, XBLOCK: tl.constexpr):
    """out = x * factor, for one block of the n elements."""
    i = block * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def row_sums(x, out, rows, columns, block, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    """out[i] = sum of x[i, :], for one block of rows."""
    row = block * XBLOCK + tl.arange(0, XBLOCK)
    total = tl.zeros((XBLOCK, R0_BLOCK), tl.float32)
    for start in range(0, columns, R0_BLOCK):
        column = start + tl.arange(0, R0_BLOCK)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.load(x + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.store(out + row, tl.sum(total, 1), mask=row < rows)


@silo.kernel(
    space=heuristics.combo_space([SCALE, SCALE, SUM]),
    grid=grids.flattened_combo([Part("n"), Part("n"), Part("rows")]),
)
@triton.jit
def scales_and_sums(
    a,
    doubled,
    b,
    halved,
    m,
    sums,
    n,
    rows,
    columns,
    XBLOCK_0: tl.constexpr,
    XBLOCK_1: tl.constexpr,
    XBLOCK_2: tl.constexpr,
    R0_BLOCK_2: tl.constexpr,
):
    """doubled = 2 a, halved = b / 2 (n elements each), sums[i] = sum of m[i, :]."""
    program = tl.program_id(0)
    first = tl.cdiv(n, XBLOCK_0)
    second = first + tl.cdiv(n, XBLOCK_1)
    if program < first:
        scaled(a, doubled, n, 2.0, program, XBLOCK_0)
    elif program < second:
        scaled(b, halved, n, 0.5, program - first, XBLOCK_1)
    else:
        row_sums(m, sums, rows, columns, program - second, XBLOCK_2, R0_BLOCK_2)


@scales_and_sums.cases(n=[100_000], rows=[300], columns=[1000])
def _(n, rows, columns, make):
    a, b, m = make.normal(n), make.normal(n), make.normal((rows, columns))
    doubled, halved, sums = make.empty(n), make.empty(n), make.empty(rows)
    return silo.Case(
        args=(a, doubled, b, halved, m, sums, n, rows, columns),
        expected={
            "doubled": lambda: a.host * 2,
            "halved": lambda: b.host / 2,
            "sums": lambda: m.host.sum(1),
        },
    )

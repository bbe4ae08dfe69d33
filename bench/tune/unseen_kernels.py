"""Kernels for the CPU that ``bench.tune.unseen`` measures at many sizes.

``row_softmax`` and ``transposed`` were written after ``silo.tuner.loss_model``, ``row_most`` and ``biased_gelu`` to
check the model's mean of near sizes. Random splits of the last two were looked at while that mean was written.
"""

# pyright: reportGeneralTypeIssues=false
import numpy as np
import triton
import triton.language as tl

import silo

# Nineteen sizes of the row kernels, each in a bucket of its own.
ROW_SIZES = [
    (2, 65536), (4, 1024), (8, 16384), (16, 256), (16, 4096), (32, 64), (32, 1024), (32, 32768), (64, 512), (64, 4096),
    (128, 128), (128, 2048), (256, 1024), (512, 64), (512, 512), (1024, 256), (1024, 1024), (2048, 128), (8192, 64),
]  # fmt: skip
PRODUCT_SIZES = [(16, 256, 256), (64, 64, 512), (128, 128, 128), (128, 512, 64), (256, 256, 256), (512, 32, 256),
           (512, 512, 128), (1024, 64, 64), (64, 1024, 256), (32, 32, 2048)]  # fmt: skip


@silo.kernel(
    space={"ROWS": [1, 2, 4, 8, 16, 32], "BLOCK": [64, 256, 1024, 4096], "num_warps": [4]},
    key=["rows", "columns"],
    grid=lambda a: (silo.cdiv(a.rows, a.ROWS),),
)
@triton.jit
def row_norm(x, weight, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Divide each row by its root mean square, and multiply it with a weight."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
        total += value * value
    scale = tl.rsqrt(tl.sum(total, 1) / columns + 1e-5)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        at = row[:, None] * columns + column[None, :]
        value = tl.load(x + at, mask=inside, other=0.0) * scale[:, None]
        factor = tl.load(weight + column, mask=column < columns, other=0.0)
        tl.store(out + at, value * factor[None, :], mask=inside)


@row_norm.cases(size=ROW_SIZES)
def _(size, make):
    rows, columns = size
    x, weight, out = make.normal((rows, columns)), make.normal(columns), make.empty((rows, columns))

    def expected():
        value = x.host.astype(np.float64)
        return value / np.sqrt((value * value).mean(1, keepdims=True) + 1e-5) * weight.host

    return silo.Case(args=(x, weight, out, rows, columns), expected={"out": expected})


@silo.kernel(
    space={"ROWS": [1, 4, 16, 64], "BLOCK": [16, 64, 256, 1024], "num_warps": [4]},
    constraints=[lambda c: c.ROWS * c.BLOCK <= 16384],
    key=["rows", "columns"],
    grid=lambda a: (silo.cdiv(a.columns, a.BLOCK),),
)
@triton.jit
def column_sum(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the sum of each column."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(out + column, tl.sum(total, 0), mask=column < columns)


@column_sum.cases(size=ROW_SIZES)
def _(size, make):
    rows, columns = size
    x, out = make.normal((rows, columns)), make.empty(columns)
    return silo.Case(args=(x, out, rows, columns), expected={"out": lambda: x.host.astype(np.float64).sum(0)})


@silo.kernel(
    space={"BM": [16, 32, 64], "BN": [16, 32, 64, 128], "BK": [16, 32, 64], "num_warps": [4]},
    constraints=[lambda c: c.BM * c.BN <= 4096],
    key=["m", "n", "k"],
    grid=lambda a: (silo.cdiv(a.m, a.BM), silo.cdiv(a.n, a.BN)),
)
@triton.jit
def product(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Compute the product of two matrices."""
    row, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * k + inner[None, :], (row[:, None] < m) & (inner[None, :] < k), 0.0)
        right = tl.load(b + inner[:, None] * n + column[None, :], (inner[:, None] < k) & (column[None, :] < n), 0.0)
        total = tl.dot(left, right, total)
    tl.store(out + row[:, None] * n + column[None, :], total, (row[:, None] < m) & (column[None, :] < n))


@product.cases(size=PRODUCT_SIZES)
def _(size, make):
    m, n, k = size
    a, b, out = make.normal((m, k)), make.normal((k, n)), make.empty((m, n))

    def expected():
        return a.host.astype(np.float64) @ b.host.astype(np.float64)

    return silo.Case(args=(a, b, out, m, n, k), expected={"out": expected})


# Sizes that differ from ROW_SIZES, each in a bucket of its own.
HELD_OUT_SIZES = [
    (1, 16384), (2, 2048), (3, 96), (8, 512), (8, 8192), (16, 64), (24, 1536), (32, 256), (48, 6144), (64, 1024),
    (96, 192), (128, 512), (256, 64), (256, 3072), (384, 384), (512, 1024), (1024, 96), (2048, 256), (4096, 32),
]  # fmt: skip


@silo.kernel(
    space={"ROWS": [1, 2, 4, 8, 16], "BLOCK": [64, 128, 256, 512, 1024], "num_warps": [4]},
    key=["rows", "columns"],
    grid=lambda a: (silo.cdiv(a.rows, a.ROWS),),
)
@triton.jit
def row_softmax(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the softmax of each row, with a running maximum."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    most = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=-1e30)
        higher = tl.maximum(most, tl.max(value, 1))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(value - higher[:, None]), 1)
        most = higher
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        at = row[:, None] * columns + column[None, :]
        value = tl.load(x + at, mask=inside, other=0.0)
        tl.store(out + at, tl.exp(value - most[:, None]) / total[:, None], mask=inside)


@row_softmax.cases(size=HELD_OUT_SIZES)
def _(size, make):
    rows, columns = size
    x, out = make.normal((rows, columns)), make.empty((rows, columns))

    def expected():
        value = np.exp(x.host.astype(np.float64) - x.host.max(1, keepdims=True))
        return value / value.sum(1, keepdims=True)

    return silo.Case(args=(x, out, rows, columns), expected={"out": expected})


@silo.kernel(
    space={"TM": [4, 8, 16, 32, 64, 128], "TN": [4, 8, 16, 32, 64, 128], "num_warps": [4]},
    constraints=[lambda c: c.TM * c.TN >= 64, lambda c: c.TM * c.TN <= 4096],
    key=["rows", "columns"],
    grid=lambda a: (silo.cdiv(a.rows, a.TM), silo.cdiv(a.columns, a.TN)),
)
@triton.jit
def transposed(x, out, rows, columns, TM: tl.constexpr, TN: tl.constexpr):
    """Compute twice the transpose of a matrix."""
    row, column = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(out + column[None, :] * rows + row[:, None], value * 2.0, mask=inside)


@transposed.cases(size=HELD_OUT_SIZES)
def _(size, make):
    rows, columns = size
    x, out = make.normal((rows, columns)), make.empty((columns, rows))
    return silo.Case(args=(x, out, rows, columns), expected={"out": lambda: x.host.astype(np.float64).T * 2})


BATCH_SIZES = [
    (1, 512, 64), (2, 64, 2048), (4, 1024, 32), (8, 16, 256), (8, 128, 1024), (16, 32, 32), (16, 256, 128),
    (32, 8, 4096), (64, 64, 64), (64, 16, 512), (128, 128, 16), (256, 4, 1024),
]  # fmt: skip


@silo.kernel(
    space={"ROWS": [1, 4, 16], "BLOCK": [32, 128, 512], "num_warps": [4]},
    key=["batch", "rows", "columns"],
    grid=lambda a: (silo.cdiv(a.rows, a.ROWS), a.batch),
)
@triton.jit
def row_most(x, out, batch, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ARG001  # batch: of the grid
    """Find the largest number of each row of each matrix."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    base = x + tl.program_id(1) * rows * columns
    most = tl.full((ROWS,), -1e30, tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        value = tl.load(base + row[:, None] * columns + column[None, :], mask=inside, other=-1e30)
        most = tl.maximum(most, tl.max(value, 1))
    tl.store(out + tl.program_id(1) * rows + row, most, mask=row < rows)


@row_most.cases(size=BATCH_SIZES)
def _(size, make):
    batch, rows, columns = size
    x, out = make.normal((batch, rows, columns)), make.empty((batch, rows))
    return silo.Case(args=(x, out, batch, rows, columns), expected={"out": lambda: x.host.max(2)})


ODD_SIZES = [
    (1, 32768), (2, 1024), (5, 250), (12, 3000), (16, 16384), (32, 500), (40, 100), (64, 2048), (100, 4000), (128, 64),
    (200, 800), (300, 250), (500, 2000), (1000, 60), (1500, 300), (4000, 32),
]  # fmt: skip


@silo.kernel(
    space={"ROWS": [1, 4, 16, 64], "BLOCK": [64, 256, 1024], "num_warps": [4]},
    key=["rows", "columns"],
    grid=lambda a: (silo.cdiv(a.rows, a.ROWS), silo.cdiv(a.columns, a.BLOCK)),
)
@triton.jit
def biased_gelu(x, bias, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the GELU, approximated by a sigmoid, of a matrix plus a row."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    at = row[:, None] * columns + column[None, :]
    more = tl.load(bias + column, mask=column < columns, other=0.0)
    value = tl.load(x + at, mask=inside, other=0.0) + more[None, :]
    tl.store(out + at, value * tl.sigmoid(1.702 * value), mask=inside)


@biased_gelu.cases(size=ODD_SIZES)
def _(size, make):
    rows, columns = size
    x, bias, out = make.normal((rows, columns)), make.normal(columns), make.empty((rows, columns))

    def expected():
        value = x.host.astype(np.float64) + bias.host
        return value / (1 + np.exp(-1.702 * value))

    return silo.Case(args=(x, bias, out, rows, columns), expected={"out": expected})

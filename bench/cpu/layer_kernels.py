"""Kernels of layers and optimizers, as a Triton user writes them for a GPU: rows of the scaling benchmark."""
# pyright: reportCallIssue=false, reportArgumentType=false

import triton
import triton.language as tl

import silo


@silo.kernel(grid=lambda a: (silo.cdiv(a.M, a.BM) * silo.cdiv(a.N, a.BN),))
@triton.jit
def linear(x, w, bias, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Compute out = x w^T + bias, where w is (N, K) like the weights of a linear layer."""
    p = tl.program_id(0)
    columns = tl.cdiv(N, BN)
    i, j, k = (p // columns) * BM + tl.arange(0, BM), (p % columns) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.cdiv(K, BK)):
        d = s * BK + k
        left = tl.load(x + i[:, None] * K + d[None, :], mask=(i[:, None] < M) & (d[None, :] < K), other=0.0)
        right = tl.load(w + d[:, None] + j[None, :] * K, mask=(d[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    total += tl.load(bias + j, mask=j < N)[None, :].to(tl.float32)
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(out + i[:, None] * N + j[None, :], total.to(out.dtype.element_ty), mask=inside)


@silo.kernel(grid=lambda a: (silo.cdiv(a.columns, a.BC), a.batches))
@triton.jit
def middle_sums(x, out, batches, rows, columns, BR: tl.constexpr, BC: tl.constexpr):  # only the grid reads `batches`
    """Sum over the middle axis of x (batches, rows, columns); with one batch these are the column sums."""
    base = tl.program_id(1) * rows * columns
    j = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), tl.float32)
    for k in range(0, rows, BR):
        i = k + tl.arange(0, BR)
        inside = (i[:, None] < rows) & (j[None, :] < columns)
        total += tl.sum(tl.load(x + base + i[:, None] * columns + j[None, :], mask=inside, other=0.0), 0)
    tl.store(out + tl.program_id(1) * columns + j, total, mask=j < columns)


@silo.kernel(grid=lambda a: (silo.cdiv(a.columns, a.BC),))
@triton.jit
def column_maxima(x, out, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    """Find the largest number of each column."""
    j = tl.program_id(0) * BC + tl.arange(0, BC)
    most = tl.full((BC,), -float("inf"), tl.float32)
    for k in range(0, rows, BR):
        i = k + tl.arange(0, BR)
        inside = (i[:, None] < rows) & (j[None, :] < columns)
        tile = tl.load(x + i[:, None] * columns + j[None, :], mask=inside, other=-float("inf"))
        most = tl.maximum(most, tl.max(tile, 0))
    tl.store(out + j, most, mask=j < columns)


@silo.kernel(grid=lambda a: (a.rows,))
@triton.jit
def embedding_gradient(grad, index, out, rows, COLUMNS: tl.constexpr):  # only the grid reads `rows`
    """Add row i of grad to row index[i] of out."""
    row = tl.program_id(0)
    j = tl.arange(0, COLUMNS)
    target = tl.load(index + row)
    tl.atomic_add(out + target * COLUMNS + j, tl.load(grad + row * COLUMNS + j))


@silo.kernel(grid=lambda a: (a.rows,))
@triton.jit
def log_softmax(x, out, rows, columns, BLOCK: tl.constexpr):  # only the grid reads `rows`
    """Compute the log softmax of rows that are longer than a tile, with a running maximum and sum."""
    row = tl.program_id(0).to(tl.int64) * columns
    most, total = -float("inf"), 0.0
    for k in range(0, columns, BLOCK):
        i = k + tl.arange(0, BLOCK)
        values = tl.load(x + row + i, mask=i < columns, other=-float("inf"))
        new = tl.maximum(most, tl.max(values, 0))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(values - new), 0)
        most = new
    shift = most + tl.log(total)
    for k in range(0, columns, BLOCK):
        i = k + tl.arange(0, BLOCK)
        tl.store(out + row + i, tl.load(x + row + i, mask=i < columns) - shift, mask=i < columns)


@silo.kernel(grid=lambda a: (silo.cdiv(a.N, a.BN),))
@triton.jit
def matrix_vector(w, x, out, N, K, BN: tl.constexpr, BK: tl.constexpr):
    """Compute out = w x, where w is (N, K)."""
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN, BK), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        inside = (j[:, None] < N) & (k[None, :] < K)
        weights = tl.load(w + j[:, None] * K + k[None, :], mask=inside, other=0.0).to(tl.float32)
        total += weights * tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
    tl.store(out + j, tl.sum(total, 1).to(out.dtype.element_ty), mask=j < N)


@silo.kernel(grid=lambda a: (silo.cdiv(a.N, a.BN),))
@triton.jit
def turned_matrix_vector(w, x, out, N, K, BN: tl.constexpr, BK: tl.constexpr):
    """Compute out = w^T x, where w is (K, N)."""
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN, BK), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        inside = (j[:, None] < N) & (k[None, :] < K)
        weights = tl.load(w + j[:, None] + k[None, :] * N, mask=inside, other=0.0).to(tl.float32)
        total += weights * tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
    tl.store(out + j, tl.sum(total, 1).to(out.dtype.element_ty), mask=j < N)


@silo.kernel(grid=lambda a: (silo.cdiv(a.rows, a.BR),))
@triton.jit
def row_sums(x, out, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    """Compute the sum of each row; each program handles several rows."""
    i = tl.program_id(0) * BR + tl.arange(0, BR)
    total = tl.zeros((BR,), tl.float32)
    for k in range(0, columns, BC):
        j = k + tl.arange(0, BC)
        inside = (i[:, None] < rows) & (j[None, :] < columns)
        total += tl.sum(tl.load(x + i[:, None] * columns + j[None, :], mask=inside, other=0.0).to(tl.float32), 1)
    tl.store(out + i, total.to(out.dtype.element_ty), mask=i < rows)


@silo.kernel(grid=lambda a: (silo.cdiv(a.rows, a.BR),))
@triton.jit
def row_maxima(x, out, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    """Find the largest number of each row; the running maxima are a tile that is reduced at the end."""
    i = tl.program_id(0) * BR + tl.arange(0, BR)
    most = tl.full((BR, BC), -float("inf"), tl.float32)
    for k in range(0, columns, BC):
        j = k + tl.arange(0, BC)
        inside = (i[:, None] < rows) & (j[None, :] < columns)
        tile = tl.load(x + i[:, None] * columns + j[None, :], mask=inside, other=-float("inf"))
        most = tl.maximum(most, tile)
    tl.store(out + i, tl.max(most, 1), mask=i < rows)


@silo.kernel(grid=lambda a: (silo.cdiv(a.rows, a.BR),))
@triton.jit
def softmax_of_rows(x, out, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    """Compute the softmax of short rows; each program handles several rows."""
    i, j = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BC)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    values = tl.load(x + i[:, None] * columns + j[None, :], mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 1)[:, None])
    tl.store(out + i[:, None] * columns + j[None, :], powers / tl.sum(powers, 1)[:, None], mask=inside)


@silo.kernel(grid=lambda a: (a.rows,))
@triton.jit
def running_sums(x, out, rows, columns, BLOCK: tl.constexpr):  # only the grid reads `rows`
    """Compute the running sums of each row."""
    row, i = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    values = tl.load(x + row + i, mask=i < columns, other=0)
    tl.store(out + row + i, tl.cumsum(values, 0), mask=i < columns)


@silo.kernel(grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def adam(p, grad, m, v, rate, beta_m, beta_v, eps, n, BLOCK: tl.constexpr):
    """Make one step of Adam, without its bias correction."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    g = tl.load(grad + i, mask=inside, other=0.0)
    first = tl.load(m + i, mask=inside, other=0.0) * beta_m + (1 - beta_m) * g
    second = tl.load(v + i, mask=inside, other=0.0) * beta_v + (1 - beta_v) * g * g
    tl.store(m + i, first, mask=inside)
    tl.store(v + i, second, mask=inside)
    tl.store(p + i, tl.load(p + i, mask=inside) - rate * first / (tl.sqrt(second) + eps), mask=inside)

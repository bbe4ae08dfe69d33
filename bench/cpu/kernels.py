"""Kernels over rows and elements, as a Triton user writes them for a GPU; the CPU benchmark measures them.

Nothing in them is adapted to a CPU. Each has a small tuning space, a key and a grid.
"""

import triton
import triton.language as tl

import silo


@silo.kernel(space={"num_warps": [4, 8]}, key=["columns"], grid=lambda a: (a.rows,))
@triton.heuristics({"BLOCK": lambda a: triton.next_power_of_2(a["columns"])})
@triton.jit
def rms_norm(x, out, weight, stride, rows, columns, eps, BLOCK: tl.constexpr):
    """Divide each row by its root mean square; one program for each row."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    values = tl.load(x + row * stride + i, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / columns + eps)
    w = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * stride + i, values * scale * w, mask=inside)


@silo.kernel(
    space={"BLOCK": [1024, 4096, 16384], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)
)
@triton.jit
def swiglu(a, b, out, n, BLOCK: tl.constexpr):
    """Out = silu(a) * b."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(a + i, mask=i < n).to(tl.float32)
    tl.store(out + i, gate * tl.sigmoid(gate) * tl.load(b + i, mask=i < n).to(tl.float32), mask=i < n)


@silo.kernel(
    space={"BLOCK": [1024, 4096, 16384], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)
)
@triton.jit
def bias_gelu(x, bias, out, n, columns, BLOCK: tl.constexpr):
    """Compute out = gelu(x + bias).

    The rows of x are read as one long array; the index of the bias is the remainder.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, mask=i < n).to(tl.float32) + tl.load(bias + i % columns, mask=i < n).to(tl.float32)
    tl.store(out + i, 0.5 * values * (1 + tl.erf(values * 0.7071067811865476)), mask=i < n)


@silo.kernel(
    space={"ROWS": [32, 64], "COLUMNS": [32, 64], "num_warps": [4]},
    key=["rows", "columns"],
    grid=lambda a: (silo.cdiv(a.rows, a.ROWS), silo.cdiv(a.columns, a.COLUMNS)),
)
@triton.jit
def transpose(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write x (rows, columns) with its axes exchanged to out (columns, rows)."""
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    j = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (i < rows) & (j < columns)
    tl.store(out + j * rows + i, tl.load(x + i * columns + j, mask=inside), mask=inside)


@silo.kernel(space={"BLOCK": [1024, 4096, 16384], "num_warps": [8]}, key=["columns"], grid=lambda a: (a.rows,))
@triton.jit
def cross_entropy(logits, target, loss, stride, rows, columns, BLOCK: tl.constexpr):
    """Compute -log softmax(logits)[target] of each row; one pass over the row finds both the maximum and the sum."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    highest = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        values = tl.load(logits + i, mask=i < columns, other=-float("inf")).to(tl.float32)
        new_highest = tl.maximum(highest, tl.max(values, axis=0))
        total = total * tl.exp(highest - new_highest) + tl.sum(tl.exp(values - new_highest), axis=0)
        highest = new_highest
    chosen = tl.load(logits + tl.load(target + row)).to(tl.float32)
    tl.store(loss + row, highest + tl.log(total) - chosen)


@silo.kernel(space={"num_warps": [4]}, key=["tokens"], grid=lambda a: (a.tokens,))
@triton.jit
def rope(q, out, cosine, sine, tokens, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Rotate the two halves of each head of q (tokens, HEADS, 2 * HALF); one program for each token, with all heads."""
    token = tl.program_id(0)
    j = tl.arange(0, HALF)
    c = tl.load(cosine + token * HALF + j).to(tl.float32)[None, :]
    s = tl.load(sine + token * HALF + j).to(tl.float32)[None, :]
    low = token * (HEADS * 2 * HALF) + tl.arange(0, HEADS)[:, None] * (2 * HALF) + j[None, :]
    first = tl.load(q + low).to(tl.float32)
    second = tl.load(q + low + HALF).to(tl.float32)
    tl.store(out + low, first * c - second * s)
    tl.store(out + low + HALF, second * c + first * s)


@silo.kernel(space={"num_warps": [4]}, key=["columns"], grid=lambda a: (a.rows,))
@triton.heuristics({"BLOCK": lambda a: triton.next_power_of_2(a["columns"])})
@triton.jit
def cumulative_sum(x, out, stride, rows, columns, BLOCK: tl.constexpr):
    """Compute the running sum of each row."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + i, mask=i < columns, other=0.0).to(tl.float32)
    tl.store(out + row * stride + i, tl.cumsum(values, axis=0), mask=i < columns)


@silo.kernel(space={"num_warps": [4]}, key=["BLOCK"], grid=lambda a: (a.rows,))
@triton.jit
def sort_rows(x, out, rows, BLOCK: tl.constexpr):
    """Sort each row of BLOCK elements in ascending order."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@silo.kernel(space={"BLOCK": [1024, 4096], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def count_atomically(x, counts, n, BLOCK: tl.constexpr):
    """Add 1 to the bin of each element, by atomic additions."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@silo.kernel(space={"num_warps": [4]}, key=["BLOCK"], grid=lambda a: (a.rows,))
@triton.jit
def count_rows(x, counts, rows, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """Count how often each of BINS values occurs in each row of BLOCK elements."""
    row = tl.program_id(0)
    found = tl.histogram(tl.load(x + row * BLOCK + tl.arange(0, BLOCK)), BINS)
    tl.store(counts + row * BINS + tl.arange(0, BINS), found)

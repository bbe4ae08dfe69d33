"""The rows of the scaling benchmark, each with torch's own call: from launches of two microseconds to large arrays.

Configs are fixed, so that no row depends on a tuner's choice at one number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import kernels
import torch
import triton
import triton.language as tl
from torch.nn import functional

import silo
from bench.cpu import dot_kernels as dots
from bench.cpu import kernels as more
from bench.cpu import layer_kernels as layers

EPS = 1e-5


@silo.kernel(grid=lambda a: (a.rows,))
@triton.jit
def take_rows(x, index, out, rows, COLUMNS: tl.constexpr):  # noqa: ARG001  # rows: the grid
    """Row i of out is row index[i] of x; one program a row."""
    row = tl.program_id(0)
    j = tl.arange(0, COLUMNS)
    source = tl.load(index + row).to(tl.int64)
    tl.store(out + row * COLUMNS + j, tl.load(x + source * COLUMNS + j))


@dataclass(frozen=True)
class Row:
    """Both sides of one row, over the same inputs; ``results`` returns the last outputs of Silo and of torch."""

    silo: Callable[[], object]
    torch: Callable[[], object]
    results: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    tolerance: float = 1e-4


def _add(n: int, block: int) -> Row:
    x, y, out, other = torch.randn(n), torch.randn(n), torch.empty(n), torch.empty(n)
    return Row(
        lambda: kernels.add(x, y, out, n, BLOCK=block, num_warps=4),
        lambda: torch.add(x, y, out=other),
        lambda: (out, other),
    )


def _softmax(rows: int, columns: int) -> Row:
    x = torch.randn(rows, columns)
    out, other = torch.empty_like(x), torch.empty_like(x)
    return Row(
        lambda: kernels.softmax(out, x, columns, columns, rows, columns, num_warps=4),
        lambda: torch.softmax(x, -1, out=other),
        lambda: (out, other),
    )


def _rms_norm(rows: int, columns: int) -> Row:
    x, weight = torch.randn(rows, columns), torch.randn(columns)
    out, found = torch.empty_like(x), [x]

    def eager() -> None:
        found[0] = functional.rms_norm(x, (columns,), weight, EPS)

    return Row(
        lambda: more.rms_norm(x, out, weight, columns, rows, columns, EPS, num_warps=4),
        eager,
        lambda: (out, found[0]),
    )


def _layer_norm(rows: int, columns: int) -> Row:
    x, weight, bias = torch.randn(rows, columns), torch.randn(columns), torch.randn(columns)
    out, other, mean, rstd = torch.empty_like(x), torch.empty_like(x), torch.empty(rows), torch.empty(rows)
    statistics = torch.empty(2, rows, 1)
    compute = torch.ops.aten.native_layer_norm.out
    return Row(
        lambda: kernels.layer_norm(
            x, out, weight, bias, mean, rstd, columns, rows, columns, EPS, BLOCK=1024, num_warps=4
        ),
        lambda: compute(x, (columns,), weight, bias, EPS, out0=other, out1=statistics[0], out2=statistics[1]),
        lambda: (out, other),
    )


def _gather(rows: int, columns: int) -> Row:
    x, index = torch.randn(rows, columns), torch.randint(0, rows, (rows,))
    out, other = torch.empty_like(x), torch.empty_like(x)
    return Row(
        lambda: take_rows(x, index, out, rows, COLUMNS=columns, num_warps=4),
        lambda: torch.index_select(x, 0, index, out=other),
        lambda: (out, other),
    )


def _matmul(m: int, n: int, k: int) -> Row:
    a, b, c, other = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n), torch.empty(m, n)
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4}
    return Row(
        lambda: kernels.matmul(a, b, c, m, n, k, k, 1, n, 1, n, 1, ACTIVATION="", **config),
        lambda: torch.mm(a, b, out=other),
        lambda: (c, other),
        1e-3,
    )


def _bias_gelu(rows: int, columns: int) -> Row:
    x, bias = torch.randn(rows, columns), torch.randn(columns)
    out, found, n = torch.empty_like(x), [x], rows * columns

    def eager() -> None:
        found[0] = functional.gelu(x + bias)

    return Row(
        lambda: more.bias_gelu(x, bias, out, n, columns, BLOCK=4096, num_warps=4), eager, lambda: (out, found[0])
    )


def _transpose(size: int) -> Row:
    x = torch.randn(size, size)
    out, other = torch.empty_like(x), torch.empty_like(x)
    return Row(
        lambda: more.transpose(x, out, size, size, ROWS=32, COLUMNS=32, num_warps=4),
        lambda: other.copy_(x.T),
        lambda: (out, other),
    )


_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# tolerances for sums of some thousand products of either sign
_LARGEST_ERROR = {"fp32": 1e-3, "bf16": 2.0, "fp16": 0.5}


def _linear(m: int, n: int, k: int, dtype: str) -> Row:
    kind = _TYPES[dtype]
    x, w, bias = torch.randn(m, k).to(kind), torch.randn(n, k).to(kind), torch.randn(n).to(kind)
    out, found = torch.empty(m, n, dtype=kind), [x]

    def eager() -> None:
        found[0] = functional.linear(x, w, bias)

    return Row(
        lambda: layers.linear(x, w, bias, out, m, n, k, BM=64, BN=64, BK=64),
        eager,
        lambda: (out, found[0]),
        _LARGEST_ERROR[dtype],
    )


def _flash(heads: int, length: int, dtype: str) -> Row:
    depth, kind = 64, _TYPES[dtype]
    q, k, v = (torch.randn(1, heads, length, depth).to(kind) for _ in range(3))
    out, lse, found = torch.empty_like(q), torch.empty(heads, length), [q]

    def eager() -> None:
        found[0] = functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    config = {"CAUSAL": True, "D": depth, "BLOCK_M": 64, "BLOCK_N": 64}
    return Row(
        lambda: dots.flash_forward(q, k, v, out, lse, depth**-0.5, heads, length, **config),
        eager,
        lambda: (out, found[0]),
        1e-4 if dtype == "fp32" else 0.05,
    )


def _column_sums(batches: int, rows: int, columns: int) -> Row:
    x = torch.randn(batches, rows, columns)
    out, other = torch.empty(batches, columns), torch.empty(batches, columns)
    block = min(128, triton.next_power_of_2(columns))
    return Row(
        lambda: layers.middle_sums(x, out, batches, rows, columns, BR=32, BC=block),
        lambda: torch.sum(x, 1, out=other),
        lambda: (out, other),
        5e-3,
    )


def _column_maxima(rows: int, columns: int) -> Row:
    x, out, other = torch.randn(rows, columns), torch.empty(columns), torch.empty(columns)
    return Row(
        lambda: layers.column_maxima(x, out, rows, columns, BR=32, BC=128),
        lambda: torch.amax(x, 0, out=other),
        lambda: (out, other),
    )


def _embedding_gradient(rows: int, columns: int, words: int) -> Row:
    grad, index = torch.zeros(rows, columns), torch.randint(0, words, (rows,))
    grad[:, 0] = 1.0  # all else is zero, so that the sums stay comparable over any number of calls
    out, other = torch.zeros(words, columns), torch.zeros(words, columns)

    def results() -> tuple[torch.Tensor, torch.Tensor]:
        one, two = torch.zeros(words, columns), torch.zeros(words, columns)
        layers.embedding_gradient(grad, index, one, rows, COLUMNS=columns)
        return one, two.index_add_(0, index, grad)

    return Row(
        lambda: layers.embedding_gradient(grad, index, out, rows, COLUMNS=columns),
        lambda: other.index_add_(0, index, grad),
        results,
    )


def _log_softmax(rows: int, columns: int) -> Row:
    x = torch.randn(rows, columns)
    out, other = torch.empty_like(x), torch.empty_like(x)
    return Row(
        lambda: layers.log_softmax(x, out, rows, columns, BLOCK=4096),
        lambda: torch.log_softmax(x, -1, out=other),
        lambda: (out, other),
        1e-3,
    )


def _matrix_vector(size: int, dtype: str) -> Row:
    kind = _TYPES[dtype]
    w, x = torch.randn(size, size).to(kind), torch.randn(size).to(kind)
    out, other = torch.empty(size, dtype=kind), torch.empty(size, dtype=kind)
    return Row(
        lambda: layers.matrix_vector(w, x, out, size, size, BN=16, BK=256),
        lambda: torch.mv(w, x, out=other),
        lambda: (out, other),
        _LARGEST_ERROR[dtype],
    )


def _turned_matrix_vector(rows: int, columns: int) -> Row:
    w, x = torch.randn(rows, columns), torch.randn(rows)
    out, other, turned = torch.empty(columns), torch.empty(columns), w.T
    return Row(
        lambda: layers.turned_matrix_vector(w, x, out, columns, rows, BN=32, BK=64),
        lambda: torch.mv(turned, x, out=other),
        lambda: (out, other),
        1e-3,
    )


def _row_sums(rows: int, columns: int, dtype: str) -> Row:
    kind = _TYPES[dtype]
    x = torch.randn(rows, columns).to(kind)
    out, other = torch.empty(rows, dtype=kind), torch.empty(rows, dtype=kind)
    block = min(256, triton.next_power_of_2(columns))
    return Row(
        lambda: layers.row_sums(x, out, rows, columns, BR=16, BC=block),
        lambda: torch.sum(x, 1, out=other),
        lambda: (out, other),
        _LARGEST_ERROR[dtype],
    )


def _row_maxima(rows: int, columns: int) -> Row:
    x, out, other = torch.randn(rows, columns), torch.empty(rows), torch.empty(rows)
    return Row(
        lambda: layers.row_maxima(x, out, rows, columns, BR=8, BC=128),
        lambda: torch.amax(x, 1, out=other),
        lambda: (out, other),
    )


def _short_softmax(rows: int, columns: int) -> Row:
    x = torch.randn(rows, columns)
    out, other = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    return Row(
        lambda: layers.softmax_of_rows(x, out, rows, columns, BR=8, BC=block),
        lambda: torch.softmax(x, -1, out=other),
        lambda: (out, other),
    )


def _running_sums(rows: int, columns: int) -> Row:
    x = torch.randint(-100, 100, (rows, columns))
    out, other = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    return Row(
        lambda: layers.running_sums(x, out, rows, columns, BLOCK=block),
        lambda: torch.cumsum(x, 1, out=other),
        lambda: (out, other),
    )


def _adam(n: int) -> Row:
    grad = torch.randn(n)
    ours, theirs = ([torch.ones(n) for _ in range(3)] for _ in range(2))

    def step(p: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> None:
        m.mul_(0.9).add_(grad, alpha=0.1)
        v.mul_(0.99).addcmul_(grad, grad, value=0.01)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)

    def results() -> tuple[torch.Tensor, torch.Tensor]:
        one, two = ([torch.ones(n) for _ in range(3)] for _ in range(2))
        layers.adam(one[0], grad, one[1], one[2], 1e-3, 0.9, 0.99, 1e-8, n, BLOCK=4096)
        step(*two)
        return one[0], two[0]

    return Row(
        lambda: layers.adam(ours[0], grad, ours[1], ours[2], 1e-3, 0.9, 0.99, 1e-8, n, BLOCK=4096),
        lambda: step(*theirs),
        results,
    )


ROWS: dict[str, Callable[[], Row]] = {
    "add 10,000": lambda: _add(10_000, 4096),
    "add 100,000": lambda: _add(100_000, 4096),
    "add 1,000,000": lambda: _add(1_000_000, 4096),
    "add 2^24": lambda: _add(1 << 24, 4096),
    "softmax 128x512": lambda: _softmax(128, 512),
    "softmax 4096x257": lambda: _softmax(4096, 257),
    "rms norm 32x4096": lambda: _rms_norm(32, 4096),
    "layer norm 4096x4096": lambda: _layer_norm(4096, 4096),
    "gather 8192x256": lambda: _gather(8192, 256),
    "matmul 512x512x512": lambda: _matmul(512, 512, 512),
    "matmul 777x333x555": lambda: _matmul(777, 333, 555),
    "bias gelu 1024x4096": lambda: _bias_gelu(1024, 4096),
    "transpose 2048": lambda: _transpose(2048),
    "linear 1000x1000x1000": lambda: _linear(1000, 1000, 1000, "fp32"),
    "linear 64x4096x1024 bf16": lambda: _linear(64, 4096, 1024, "bf16"),
    "linear 500x1500x700 bf16": lambda: _linear(500, 1500, 700, "bf16"),
    "linear 300x300x4000 fp16": lambda: _linear(300, 300, 4000, "fp16"),
    "linear 200x260x6000": lambda: _linear(200, 260, 6000, "fp32"),
    "linear 333x2222x555 fp16": lambda: _linear(333, 2222, 555, "fp16"),
    "linear 16x3000x3000 bf16": lambda: _linear(16, 3000, 3000, "bf16"),
    "causal flash 12x777x64": lambda: _flash(12, 777, "fp32"),
    "causal flash 12x1024x64 bf16": lambda: _flash(12, 1024, "bf16"),
    "column sums 3000x2000": lambda: _column_sums(1, 3000, 2000),
    "column sums 100,000x8": lambda: _column_sums(1, 100_000, 8),
    "column maxima 5000x1200": lambda: _column_maxima(5000, 1200),
    "middle sums 64x100x257": lambda: _column_sums(64, 100, 257),
    "embedding gradient 8192x512": lambda: _embedding_gradient(8192, 512, 30_000),
    "embedding gradient 3000x1024": lambda: _embedding_gradient(3000, 1024, 5000),
    "log softmax 333x50,257": lambda: _log_softmax(333, 50_257),
    "matrix vector 4096": lambda: _matrix_vector(4096, "fp32"),
    "matrix vector 4096 bf16": lambda: _matrix_vector(4096, "bf16"),
    "matrix vector 4096, turned": lambda: _turned_matrix_vector(4096, 4096),
    "matrix vector 1000x300, turned": lambda: _turned_matrix_vector(1000, 300),
    "row sums 1000x3000": lambda: _row_sums(1000, 3000, "fp32"),
    "row sums 20,000x40": lambda: _row_sums(20_000, 40, "fp32"),
    "row sums 4000x200 fp16": lambda: _row_sums(4000, 200, "fp16"),
    "row maxima 1200x2000": lambda: _row_maxima(1200, 2000),
    "softmax 3000x30": lambda: _short_softmax(3000, 30),
    "running sums 1000x500 int64": lambda: _running_sums(1000, 500),
    "adam 1,500,000": lambda: _adam(1_500_000),
}

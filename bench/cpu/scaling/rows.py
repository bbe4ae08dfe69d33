"""Rows of the scaling benchmark: from launches of two microseconds to sweeps over memory, each with torch's own call.

Configs are fixed, so that no row depends on what a tuner picked on one number of threads.
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
from bench.cpu import kernels as more

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
    """Both sides of a row over the same inputs; ``results`` gives what each wrote last."""

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
}

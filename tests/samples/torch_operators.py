"""Twenty torch operators over Silo kernels, each with arguments and the result that torch itself computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

import silo

if TYPE_CHECKING:
    from collections.abc import Callable

F32 = torch.float32


def flat(*, block=256):
    return silo.kernel(space={"BLOCK": [block]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")


def rows():
    return silo.kernel(grid=lambda a: (a.m,), tune="off")


@flat()
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@flat()
@triton.jit
def mul(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * tl.load(y + i, mask=i < n), mask=i < n)


@flat()
@triton.jit
def axpy(x, y, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(y + i, mask=i < n) + alpha * tl.load(x + i, mask=i < n), mask=i < n)


@flat()
@triton.jit
def silu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, v * tl.sigmoid(v), mask=i < n)


@flat()
@triton.jit
def relu_(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


@rows()
@triton.jit
def softmax(x, out, m, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + tl.program_id(0) * n + i, e / tl.sum(e, axis=0), mask=i < n)


@rows()
@triton.jit
def layer_norm(x, weight, bias, out, m, n, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    mean = tl.sum(v, axis=0) / n
    d = tl.where(i < n, v - mean, 0.0)
    r = d / tl.sqrt(tl.sum(d * d, axis=0) / n + eps) * tl.load(weight + i, mask=i < n)
    if bias is not None:
        r += tl.load(bias + i, mask=i < n)
    tl.store(out + tl.program_id(0) * n + i, r, mask=i < n)


@rows()
@triton.jit
def rms_norm(x, weight, out, m, n, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0).to(tl.float32)
    r = v / tl.sqrt(tl.sum(v * v, axis=0) / n + eps) * tl.load(weight + i, mask=i < n).to(tl.float32)
    tl.store(out + tl.program_id(0) * n + i, r, mask=i < n)


@rows()
@triton.jit
def row_sum(x, out, m, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0), axis=0))


@rows()
@triton.jit
def row_argmax(x, out, m, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=-float("inf"))
    tl.store(out + tl.program_id(0), tl.argmax(v, axis=0))


@rows()
@triton.jit
def row_cumsum(x, out, m, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    tl.store(out + tl.program_id(0) * n + i, tl.cumsum(v, axis=0), mask=i < n)


@silo.kernel(
    space={"TILE": [16]},
    grid=lambda a: (silo.cdiv(a.m, a.TILE), silo.cdiv(a.n, a.TILE)),
    tune="off",
)
@triton.jit
def matmul(a, b, out, m, n, k, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    s = tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, k, TILE):
        p = start + s
        left = tl.load(a + i[:, None] * k + p[None, :], mask=(i[:, None] < m) & (p[None, :] < k), other=0.0)
        right = tl.load(b + p[:, None] * n + j[None, :], mask=(p[:, None] < k) & (j[None, :] < n), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(out + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


@silo.kernel(space={"TILE": [16]}, grid=lambda a: (silo.cdiv(a.m, a.TILE), silo.cdiv(a.n, a.TILE)), tune="off")
@triton.jit
def transpose(x, out, m, n, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (i[:, None] < m) & (j[None, :] < n)
    tl.store(out + j[None, :] * m + i[:, None], tl.load(x + i[:, None] * n + j[None, :], mask=inside), mask=inside)


@flat()
@triton.jit
def gather(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.load(index + i, mask=i < n, other=0), mask=i < n), mask=i < n)


@flat()
@triton.jit
def scatter_add_(x, index, source, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(x + tl.load(index + i, mask=i < n, other=0), tl.load(source + i, mask=i < n), mask=i < n)


@flat()
@triton.jit
def count(index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(index + i, mask=i < n, other=0), 1, mask=i < n)


@flat()
@triton.jit
def choose(mask, x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    take = tl.load(mask + i, mask=i < n, other=0)
    tl.store(out + i, tl.where(take, tl.load(x + i, mask=i < n), tl.load(y + i, mask=i < n)), mask=i < n)


@rows()
@triton.jit
def row_range(x, low, high, m, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = x + tl.program_id(0) * n + i
    tl.store(low + tl.program_id(0), tl.min(tl.load(at, mask=i < n, other=float("inf")), axis=0))
    tl.store(high + tl.program_id(0), tl.max(tl.load(at, mask=i < n, other=-float("inf")), axis=0))


@flat()
@triton.jit
def widen(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(tl.float32), mask=i < n)


@flat()
@triton.jit
def clamp(x, out, n, low, high, negate, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.minimum(tl.maximum(tl.load(x + i, mask=i < n), low), high)
    tl.store(out + i, tl.where(negate, -v, v), mask=i < n)


@flat()
@triton.jit
def power(x, out, n, exponent: tl.constexpr = 2, scale=1.0, BLOCK: tl.constexpr = 256):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    r = v
    for _ in tl.static_range(exponent - 1):  # pyright: ignore[reportGeneralTypeIssues]
        r = r * v
    tl.store(out + i, r * scale, mask=i < n)


def saved(*places):
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*(inputs[place] for place in places))

    return setup_context


def like_rows(dtype=None):
    return lambda a: a.x.new_empty(a.m, dtype=dtype)


def silu_gradient(ctx, grad):
    (x,) = ctx.saved_tensors
    s = torch.sigmoid(x)
    return grad * (s + x * s * (1 - s)), None


OPERATORS = {
    "add": silo.torch_op(
        add, "samples::add", example=(F32, F32, F32, 8), out={"out": "x"}, backward=lambda ctx, g: (g, g, None)
    ),
    "mul": silo.torch_op(
        mul,
        "samples::mul",
        example=(F32, F32, F32, 8),
        out={"out": "x"},
        backward=lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0], None),
        setup_context=saved(0, 1),
    ),
    "axpy": silo.torch_op(axpy, "samples::axpy", example=(F32, F32, 8, 1.0)),
    "silu": silo.torch_op(
        silu,
        "samples::silu",
        example=(F32, F32, 8),
        out={"out": "x"},
        backward=silu_gradient,
        setup_context=saved(0),
    ),
    "relu_": silo.torch_op(relu_, "samples::relu_", example=(F32, 8)),
    "softmax": silo.torch_op(softmax, "samples::softmax", example=(F32, F32, 4, 8, 16), out={"out": "x"}),
    "layer_norm": silo.torch_op(
        layer_norm, "samples::layer_norm", example=(F32, F32, None, F32, 4, 8, 1e-5, 16), out={"out": "x"}
    ),
    "rms_norm": silo.torch_op(
        rms_norm, "samples::rms_norm", example=(torch.bfloat16,) * 3 + (4, 8, 1e-5, 16), out={"out": "x"}
    ),
    "row_sum": silo.torch_op(row_sum, "samples::row_sum", example=(F32, F32, 4, 8, 16), out={"out": like_rows()}),
    "row_argmax": silo.torch_op(
        row_argmax,
        "samples::row_argmax",
        example=(F32, torch.int32, 4, 8, 16),
        out={"out": like_rows(torch.int32)},
    ),
    "row_cumsum": silo.torch_op(row_cumsum, "samples::row_cumsum", example=(F32, F32, 4, 8, 16), out={"out": "x"}),
    "matmul": silo.torch_op(
        matmul,
        "samples::matmul",
        example=(F32, F32, F32, 8, 8, 8),
        out={"out": lambda a: a.a.new_empty(a.m, a.n)},
    ),
    "transpose": silo.torch_op(
        transpose, "samples::transpose", example=(F32, F32, 8, 8), out={"out": lambda a: a.x.new_empty(a.n, a.m)}
    ),
    "gather": silo.torch_op(
        gather,
        "samples::gather",
        example=(F32, torch.int64, F32, 8),
        out={"out": lambda a: torch.empty_like(a.index, dtype=a.x.dtype)},
    ),
    "scatter_add_": silo.torch_op(scatter_add_, "samples::scatter_add_", example=(F32, torch.int64, F32, 8)),
    "count": silo.torch_op(
        count,
        "samples::count",
        example=(torch.int64, torch.int32, 8),
        out={"out": lambda a: torch.zeros(16, dtype=torch.int32, device=a.index.device)},
    ),
    "choose": silo.torch_op(choose, "samples::choose", example=(torch.bool, F32, F32, F32, 8), out={"out": "x"}),
    "row_range": silo.torch_op(
        row_range,
        "samples::row_range",
        example=(F32, F32, F32, 4, 8, 16),
        out={"low": like_rows(), "high": like_rows()},
    ),
    "widen": silo.torch_op(
        widen,
        "samples::widen",
        example=(torch.float16, F32, 8),
        out={"out": lambda a: torch.empty_like(a.x, dtype=torch.float32)},
    ),
    "clamp": silo.torch_op(clamp, "samples::clamp", example=(F32, F32, 8, 0.0, 1.0, False), out={"out": "x"}),
    "power": silo.torch_op(power, "samples::power", example=(F32, F32, 8), out={"out": "x"}),
}


@dataclass(frozen=True)
class Sample:
    """Arguments of a call, and torch's own computation; ``written`` are the indices of the written arguments."""

    args: tuple[Any, ...]
    reference: Callable[..., Any]
    written: tuple[int, ...] = ()


def samples() -> dict[str, Sample]:
    torch.manual_seed(1)
    x, y = torch.randn(300), torch.randn(300)
    r, w = torch.randn(5, 40), torch.randn(40)
    index = torch.randint(0, 16, (300,))
    norm = torch.nn.functional
    return {
        "add": Sample((x, y, 300), lambda x, y, n: x + y),
        "mul": Sample((x, y, 300), lambda x, y, n: x * y),
        "axpy": Sample((x, y, 300, 0.5), lambda x, y, n, alpha: y + alpha * x, (1,)),
        "silu": Sample((x, 300), lambda x, n: norm.silu(x)),
        "relu_": Sample((x, 300), lambda x, n: x.relu(), (0,)),
        "softmax": Sample((r, 5, 40, 64), lambda x, *_: x.softmax(1)),
        "layer_norm": Sample((r, w, w, 5, 40, 1e-5, 64), lambda x, w, b, *_: norm.layer_norm(x, (40,), w, b)),
        "rms_norm": Sample(
            (r.bfloat16(), w.bfloat16(), 5, 40, 1e-5, 64), lambda x, w, *_: norm.rms_norm(x, (40,), w, 1e-5)
        ),
        "row_sum": Sample((r, 5, 40, 64), lambda x, *_: x.sum(1)),
        "row_argmax": Sample((r, 5, 40, 64), lambda x, *_: x.argmax(1).int()),
        "row_cumsum": Sample((r, 5, 40, 64), lambda x, *_: x.cumsum(1)),
        "matmul": Sample((r, r.T.contiguous(), 5, 5, 40), lambda a, b, *_: a @ b),
        "transpose": Sample((r, 5, 40), lambda x, *_: x.T.contiguous()),
        "gather": Sample((x, index, 300), lambda x, index, n: x[index]),
        "scatter_add_": Sample((torch.zeros(16), index, y, 300), lambda x, i, s, n: x.index_add(0, i, s), (0,)),
        "count": Sample((index, 300), lambda index, n: torch.bincount(index, minlength=16).int()),
        "choose": Sample((x > 0, x, y, 300), lambda mask, x, y, n: torch.where(mask, x, y)),
        "row_range": Sample((r, 5, 40, 64), lambda x, *_: (x.amin(1), x.amax(1))),
        "widen": Sample((x.half(), 300), lambda x, n: x.float()),
        "clamp": Sample((x, 300, -0.5, 0.5, True), lambda x, n, low, high, negate: -x.clamp(low, high)),
        "power": Sample((x, 300, 3), lambda x, n, exponent: x**exponent),
    }

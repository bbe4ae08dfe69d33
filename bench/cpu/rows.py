"""Rows of the CPU benchmark over elements and over rows of matrices: kernels of the examples and ``kernels.py``."""

from __future__ import annotations

import kernels
import numpy as np
import torch
from torch.nn import functional

from bench.cpu import kernels as more
from bench.cpu.work import Call, Scale, Workload, empty, normal

ELEMENTS = {"full": 1 << 24, "quick": 1 << 20, "tiny": 1 << 14}
SHAPES = {"full": (4096, 4096), "quick": (1024, 1024), "tiny": (4, 1024)}
EPS = 1e-5


def add(scale: Scale, dtype: str) -> Workload:
    n = ELEMENTS[scale]
    x, y, out, other = normal(n, dtype=dtype), normal(n, dtype=dtype), empty(n, dtype=dtype), empty(n, dtype=dtype)

    def compiled(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(x + y)

    return Workload(
        "add",
        dtype,
        str(n),
        n,
        (Call(kernels.add, (x, y, out, n), (n // 1024,), {"BLOCK": 1024}),),
        lambda: torch.add(x, y, out=other),
        (compiled, (x, y, other)),
        lambda: {"out": (out, x.double() + y.double())},
    )


def softmax(scale: Scale, dtype: str) -> Workload:
    rows, columns = SHAPES[scale]
    return _softmax("softmax", rows, columns, columns, dtype)


def short_softmax(scale: Scale, dtype: str) -> Workload:
    """The softmax of rows whose length is not a multiple of the block."""
    rows = {"full": 4096, "quick": 1024, "tiny": 4}[scale]
    return _softmax("short softmax", rows, 257, 512, dtype)


def _softmax(name: str, rows: int, columns: int, block: int, dtype: str) -> Workload:
    x, out, other = (
        normal(rows, columns, dtype=dtype),
        empty(rows, columns, dtype=dtype),
        empty(rows, columns, dtype=dtype),
    )

    def compiled(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(torch.softmax(x, -1))

    return Workload(
        name,
        dtype,
        f"{rows}x{columns}",
        rows * columns,
        (Call(kernels.softmax, (out, x, columns, columns, rows, columns), (rows,), {"BLOCK": block}),),
        lambda: torch.softmax(x, dim=-1, out=other),
        (compiled, (x, other)),
        lambda: {"out": (out, torch.softmax(x.double(), -1))},
    )


def layer_norm(scale: Scale, dtype: str) -> Workload:
    rows, columns = SHAPES[scale]
    x, out, other = (
        normal(rows, columns, dtype=dtype),
        empty(rows, columns, dtype=dtype),
        empty(rows, columns, dtype=dtype),
    )
    weight, bias = normal(columns, dtype=dtype), normal(columns, dtype=dtype)
    mean, rstd = empty(rows), empty(rows)
    statistics = empty(2, rows, 1, dtype=dtype)
    compute = torch.ops.aten.native_layer_norm.out

    def compiled(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, out: torch.Tensor, statistics: torch.Tensor
    ) -> None:
        found = torch.native_layer_norm(x, (x.shape[1],), weight, bias, EPS)
        out.copy_(found[0])
        statistics[0].copy_(found[1])
        statistics[1].copy_(found[2])

    def results() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        wide = x.double()
        wanted = functional.layer_norm(wide, (columns,), weight.double(), bias.double(), EPS)
        return {"out": (out, wanted), "rstd": (rstd, (wide.var(1, unbiased=False) + EPS).rsqrt())}

    return Workload(
        "layer norm",
        dtype,
        f"{rows}x{columns}",
        rows * columns,
        (
            Call(
                kernels.layer_norm,
                (x, out, weight, bias, mean, rstd, columns, rows, columns, EPS),
                (rows,),
                {"BLOCK": 1024},
            ),
        ),
        lambda: compute(x, (columns,), weight, bias, EPS, out0=other, out1=statistics[0], out2=statistics[1]),
        (compiled, (x, weight, bias, other, statistics)),
        results,
    )


def rms_norm(scale: Scale, dtype: str) -> Workload:
    rows, columns = SHAPES[scale]
    x, out, other = (
        normal(rows, columns, dtype=dtype),
        empty(rows, columns, dtype=dtype),
        empty(rows, columns, dtype=dtype),
    )
    weight = normal(columns, dtype=dtype)

    def compiled(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(functional.rms_norm(x, (x.shape[1],), weight, EPS))

    return Workload(
        "rms norm",
        dtype,
        f"{rows}x{columns}",
        rows * columns,
        (Call(more.rms_norm, (x, out, weight, columns, rows, columns, EPS), (rows,), {"BLOCK": columns}),),
        lambda: functional.rms_norm(x, (columns,), weight, EPS),
        (compiled, (x, weight, other)),
        lambda: {"out": (out, functional.rms_norm(x.double(), (columns,), weight.double(), EPS))},
    )


def swiglu(scale: Scale, dtype: str) -> Workload:
    n = ELEMENTS[scale]
    a, b, out, other = normal(n, dtype=dtype), normal(n, dtype=dtype), empty(n, dtype=dtype), empty(n, dtype=dtype)

    def compiled(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(functional.silu(a) * b)

    return Workload(
        "swiglu",
        dtype,
        str(n),
        n,
        (Call(more.swiglu, (a, b, out, n), (n // 1024,), {"BLOCK": 1024}),),
        lambda: torch.mul(functional.silu(a), b, out=other),
        (compiled, (a, b, other)),
        lambda: {"out": (out, functional.silu(a.double()) * b.double())},
    )


def bias_gelu(scale: Scale, dtype: str) -> Workload:
    rows, columns = {"full": (1024, 4096), "quick": (256, 4096), "tiny": (4, 1024)}[scale]
    n = rows * columns
    x, bias, out = normal(rows, columns, dtype=dtype), normal(columns, dtype=dtype), empty(rows, columns, dtype=dtype)
    other = empty(rows, columns, dtype=dtype)

    def compiled(x: torch.Tensor, bias: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(functional.gelu(x + bias))

    return Workload(
        "bias gelu",
        dtype,
        f"{rows}x{columns}",
        n,
        (Call(more.bias_gelu, (x, bias, out, n, columns), (n // 1024,), {"BLOCK": 1024}),),
        lambda: functional.gelu(x + bias),
        (compiled, (x, bias, other)),
        lambda: {"out": (out, functional.gelu(x.double() + bias.double()))},
    )


def transpose(scale: Scale, dtype: str) -> Workload:
    size = {"full": 2048, "quick": 1024, "tiny": 64}[scale]
    x, out, other = (normal(size, size, dtype=dtype) for _ in range(3))

    def compiled(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(x.T)

    return Workload(
        "transpose",
        dtype,
        f"{size}x{size}",
        size * size,
        (Call(more.transpose, (x, out, size, size), (size // 32, size // 32), {"ROWS": 32, "COLUMNS": 32}),),
        lambda: other.copy_(x.T),
        (compiled, (x, other)),
        lambda: {"out": (out, x.double().T)},
    )


def cross_entropy(scale: Scale, dtype: str) -> Workload:
    rows, columns = {"full": (1024, 32000), "quick": (128, 8000), "tiny": (2, 8192)}[scale]
    logits, target = normal(rows, columns, dtype=dtype), torch.randint(0, columns, (rows,))
    loss, other = empty(rows), empty(rows)

    def compiled(logits: torch.Tensor, target: torch.Tensor, loss: torch.Tensor) -> None:
        loss.copy_(functional.cross_entropy(logits.float(), target, reduction="none"))

    return Workload(
        "cross entropy",
        dtype,
        f"{rows}x{columns}",
        rows * columns,
        (Call(more.cross_entropy, (logits, target, loss, columns, rows, columns), (rows,), {"BLOCK": 4096}),),
        lambda: functional.cross_entropy(logits, target, reduction="none"),
        (compiled, (logits, target, other)),
        lambda: {"loss": (loss, functional.cross_entropy(logits.double(), target, reduction="none"))},
        tolerance=1e-5,
    )


def rope(scale: Scale, dtype: str) -> Workload:
    tokens, heads, half = {"full": (4096, 32, 64), "quick": (512, 32, 64), "tiny": (4, 32, 64)}[scale]
    q, out, other = (normal(tokens, heads, 2 * half, dtype=dtype) for _ in range(3))
    angles = torch.rand(tokens, half) * 6
    cosine, sine = angles.cos(), angles.sin()

    def rotated(q: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = q.chunk(2, -1)
        c, s = cosine[:, None, :], sine[:, None, :]
        return torch.cat([first * c - second * s, second * c + first * s], -1)

    def compiled(q: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(rotated(q, cosine, sine))

    like = cosine.to(q.dtype), sine.to(q.dtype)
    return Workload(
        "rope",
        dtype,
        f"{tokens}x{heads}x{2 * half}",
        tokens * heads * half,
        (Call(more.rope, (q, out, *like, tokens), (tokens,), {}, {"HEADS": heads, "HALF": half}),),
        lambda: rotated(q, *like),
        (compiled, (q, *like, other)),
        lambda: {"out": (out, rotated(q.double(), like[0].double(), like[1].double()))},
    )


def dropout(scale: Scale, dtype: str) -> Workload:
    n, p, seed = ELEMENTS[scale], 0.25, 1234
    x, out, other = normal(n, dtype=dtype), empty(n, dtype=dtype), empty(n, dtype=dtype)

    def compiled(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(functional.dropout(x, p))

    def wanted() -> torch.Tensor:
        words = kernels.philox(seed, np.arange(n, dtype=np.uint32)).view(np.int32).astype(np.int64)
        uniform = np.where(words < 0, -words - 1, words).astype(np.float32) * np.float32(4.6566127342e-10)
        return torch.where(torch.from_numpy(uniform) > p, x.double() / (1 - p), 0.0)

    return Workload(
        "dropout",
        dtype,
        str(n),
        n,
        (Call(kernels.dropout, (x, out, n, p, seed), (n // 1024,), {"BLOCK": 1024}),),
        lambda: functional.dropout(x, p),
        (compiled, (x, other)),
        lambda: {"out": (out, wanted())},
    )

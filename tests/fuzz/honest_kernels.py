"""Honest kernels with numpy's references: elementwise, reductions along rows, products, gathers, scans, in-place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import silo
from silo.judging.drawn_values import VALUES
from silo.judging.task import Task

__all__ = ["WRITTEN"]

_HEAD = "import silo\nimport triton\nimport triton.language as tl\n\n"
_FINITE = tuple(one for one in VALUES if one not in ("huge", "nan", "infinite"))
_MODEST = ("normal", "zeros", "repeated", "integers")

# An expression in Triton, the same in numpy over doubles, and the ways to draw values for which both are defined.
_ELEMENTWISE: dict[str, tuple[str, Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "add": ("a + b", lambda a, b: a + b, VALUES),
    "subtract": ("a - b", lambda a, b: a - b, VALUES),
    "multiply": ("a * b", lambda a, b: a * b, VALUES),
    "divide": ("a / b", lambda a, b: a / b, ("normal", "repeated", "wide")),
    "halves": ("a * 0.5 + b * 0.5", lambda a, b: a * 0.5 + b * 0.5, VALUES),
    "square": ("a * a + b", lambda a, b: a * a + b, _FINITE),
    "absolute": ("tl.abs(a) - tl.abs(b)", lambda a, b: np.abs(a) - np.abs(b), VALUES),
    "maximum": ("tl.maximum(a, b)", np.maximum, (*_FINITE, "huge", "infinite")),
    "minimum": ("tl.minimum(a, b)", np.minimum, (*_FINITE, "huge", "infinite")),
    "clamp": ("tl.minimum(tl.maximum(a, -1.0), 1.0)", lambda a, b: np.clip(a, -1, 1), (*_FINITE, "huge", "infinite")),
    "relu": ("tl.where(a > 0, a, 0.0) + 0 * b", lambda a, b: np.where(a > 0, a, 0.0), _FINITE),
    "leaky": ("tl.where(a > 0, a, 0.1 * a)", lambda a, b: np.where(a > 0, a, 0.1 * a), VALUES),
    "select": ("tl.where(a < b, a, b * 2)", lambda a, b: np.where(a < b, a, b * 2), (*_FINITE, "nan", "infinite")),
    "exponential": ("tl.exp(-tl.abs(a))", lambda a, b: np.exp(-np.abs(a)), VALUES),
    "sigmoid": ("1 / (1 + tl.exp(-a))", lambda a, b: 1 / (1 + np.exp(-a)), VALUES),
    "swish": ("a / (1 + tl.exp(-a))", lambda a, b: a / (1 + np.exp(-a)), _MODEST),
    "gated": ("b * a / (1 + tl.exp(-a))", lambda a, b: b * a / (1 + np.exp(-a)), _MODEST),
    "gelu": ("0.5 * a * (1 + tl.erf(a * 0.7071067811865476))", lambda a, b: 0.5 * a * (1 + _erf(a / 2**0.5)), _MODEST),
    "logarithm": ("tl.log(tl.abs(a) + 1)", lambda a, b: np.log(np.abs(a) + 1), VALUES),
    "root": ("tl.sqrt(tl.abs(a)) + b", lambda a, b: np.sqrt(np.abs(a)) + b, VALUES),
    "reciprocal root": ("1 / tl.sqrt(a * a + 1)", lambda a, b: 1 / np.sqrt(a * a + 1), _FINITE),
    "sine": ("tl.sin(a) * tl.cos(b)", lambda a, b: np.sin(a) * np.cos(b), _MODEST),
    "floor": ("tl.floor(a) + tl.ceil(b)", lambda a, b: np.floor(a) + np.ceil(b), ("integers", "zeros", "large")),
    "compare": ("(a < b).to(tl.float32)", lambda a, b: (a < b).astype(float), VALUES),
}
_DTYPES = ("float32", "float16", "bfloat16", "float64")

_FLAT = """
@silo.kernel(space={{"BLOCK": [{block}]}}, grid=lambda z: (silo.cdiv(z.n, z.BLOCK),))
@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n){wide}
    b = tl.load(y + i, mask=i < n){wide}
    tl.store(out + i, {expression}, mask=i < n)
"""
_STRIDED = """
@silo.kernel(space={{"BLOCK": [{block}]}}, grid=(3,))
@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        a = tl.load(x + i, mask=i < n, other=0.0){wide}
        b = tl.load(y + i, mask=i < n, other=1.0){wide}
        tl.store(out + i, {expression}, mask=i < n)
"""


def _erf(values: Any) -> Any:
    import math

    return np.vectorize(math.erf, otypes=[float])(values)


def _elementwise(form: str, name: str, element: str, block: int) -> tuple[Task, str]:
    expression, reference, values = _ELEMENTWISE[name]
    wide = "" if element == "float64" else ".to(tl.float32)"

    @silo.task(cases=max(4, len(values) + 1), values=values)
    def task(draw):
        n = draw.size(1, 3000)
        x, y, out = draw.array(n, dtype=element), draw.array(n, dtype=element), draw.empty(n, dtype=element)
        return draw.case(lambda: {"out": reference(x.double, y.double)}, x=x, y=y, out=out, n=n)

    return task, _HEAD + form.format(expression=expression, wide=wide, block=block)


# Along rows: the value in Triton of a row ``a`` with the mask ``m``, and numpy's.
_ROWS: dict[str, tuple[str, Callable[[Any], Any] | None, float, tuple[str, ...]]] = {
    "sum": ("tl.sum(a, 0) + 0 * a", lambda a: a.sum(1, keepdims=True) + 0 * a, 0.0, _MODEST),
    "mean": ("tl.sum(a, 0) / n + 0 * a", lambda a: a.mean(1, keepdims=True) + 0 * a, 0.0, _MODEST),
    "largest": ("tl.max(a, 0) + 0 * a", lambda a: a.max(1, keepdims=True) + 0 * a, float("-inf"), _MODEST),
    "running sum": ("tl.cumsum(a, 0)", lambda a: a.cumsum(1), 0.0, _MODEST),
    "softmax": (
        "tl.exp(a - tl.max(a, 0)) / tl.sum(tl.exp(a - tl.max(a, 0)), 0)",
        None,
        float("-inf"),
        (*_MODEST, "wide"),
    ),
    "root mean square": (
        "a / tl.sqrt(tl.sum(a * a, 0) / n + 1e-5)",
        lambda a: a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5),
        0.0,
        _MODEST,
    ),
    "layer norm": (
        "(a - tl.sum(a, 0) / n) / tl.sqrt(tl.sum(tl.where(m, (a - tl.sum(a, 0) / n) * a, 0), 0) / n + 1e-5)",
        lambda a: (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5),
        0.0,
        ("normal", "integers"),
    ),
    "logarithm of the sum": (
        "tl.log(tl.sum(tl.exp(a - tl.max(a, 0)), 0)) + tl.max(a, 0) + 0 * tl.where(m, a, 0)",
        lambda a: np.log(np.exp(a - a.max(1, keepdims=True)).sum(1, keepdims=True)) + a.max(1, keepdims=True) + 0 * a,
        float("-inf"),
        _MODEST,
    ),
}
_ROW = """
@silo.kernel(space={{"BLOCK": [512]}}, grid=lambda z: (z.rows,))
@triton.jit
def kernel(x, out, rows, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < n
    a = tl.load(x + tl.program_id(0) * n + i, mask=m, other={other}){wide}
    tl.store(out + tl.program_id(0) * n + i, {expression}, mask=m)
"""


def _softmax(a: Any) -> Any:
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _row(name: str, element: str) -> tuple[Task, str]:
    expression, reference, other, values = _ROWS[name]
    wide = "" if element == "float64" else ".to(tl.float32)"
    reference = reference or _softmax

    @silo.task(cases=6, values=values)
    def task(draw):
        rows, n = draw.integer(1, 6), draw.size(2, 512)
        x, out = draw.array(rows, n, dtype=element), draw.empty(rows, n, dtype=element)
        return draw.case(lambda: {"out": reference(x.double)}, x=x, out=out, rows=rows, n=n)

    shown = 'float("-inf")' if other else "0.0"
    return task, _HEAD + _ROW.format(expression=expression, wide=wide, other=shown)


_PRODUCT = """
def grid(z):
    return silo.cdiv(z.rows, z.M), silo.cdiv(z.columns, z.N)

@silo.kernel(space={{"M": [{m}], "N": [{n}], "K": [{k}]}}, grid=grid)
@triton.jit
def kernel(x, y, out, rows, columns, depth, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, depth, K):
        k = start + tl.arange(0, K)
        of_x, of_y = (i[:, None] < rows) & (k[None, :] < depth), (k[:, None] < depth) & (j[None, :] < columns)
        a = tl.load(x + i[:, None] * depth + k[None, :], mask=of_x, other=0.0)
        b = tl.load(y + k[:, None] * columns + j[None, :], mask=of_y, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(out + i[:, None] * columns + j[None, :], total, mask=(i[:, None] < rows) & (j[None, :] < columns))
"""


def _product(element: str, m: int, n: int, k: int) -> tuple[Task, str]:
    @silo.task(cases=5, values=_MODEST)
    def task(draw):
        rows, columns, depth = draw.size(1, 70), draw.size(1, 70), draw.size(1, 70)
        x, y = draw.array(rows, depth, dtype=element), draw.array(depth, columns, dtype=element)
        out = draw.empty(rows, columns, dtype=element)
        given = {"rows": rows, "columns": columns, "depth": depth}
        return draw.case(lambda: {"out": x.double @ y.double}, x=x, y=y, out=out, **given)

    return task, _HEAD + _PRODUCT.format(m=m, n=n, k=k)


_GATHER = """
@silo.kernel(space={{"BLOCK": [{block}]}}, grid=lambda z: (silo.cdiv(z.n, z.BLOCK),))
@triton.jit
def kernel(x, places, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(places + i, mask=i < n, other=0)
    tl.store(out + i, tl.load(x + at, mask=i < n), mask=i < n)
"""
_IN_PLACE = """
@silo.kernel(space={{"BLOCK": [{block}]}}, grid=lambda z: (silo.cdiv(z.n, z.BLOCK),))
@triton.jit
def kernel(x, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * scale, mask=i < n)
"""
_TURNED = """
@silo.kernel(space={{"BLOCK": [{block}]}}, grid=lambda z: (silo.cdiv(z.rows, z.BLOCK), silo.cdiv(z.n, z.BLOCK)))
@triton.jit
def kernel(x, out, rows, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    m = (i < rows) & (j < n)
    tl.store(out + j * rows + i, tl.load(x + i * n + j, mask=m), mask=m)
"""


def _gather(element: str, block: int) -> tuple[Task, str]:
    @silo.task(cases=12)
    def task(draw):
        n = draw.size(1, 2000)
        x, out = draw.array(n, dtype=element), draw.empty(n, dtype=element)
        places = draw.integers(n, low=0, high=n - 1)
        return draw.case(lambda: {"out": x.host[places.host]}, x=x, places=places, out=out, n=n)

    return task, _HEAD + _GATHER.format(block=block)


def _in_place(element: str, block: int) -> tuple[Task, str]:
    @silo.task(cases=12)
    def task(draw):
        n = draw.size(1, 2000)
        x = draw.inout(n, dtype=element)
        return draw.case(lambda: {"x": x.double * 0.5}, x=x, scale=0.5, n=n)

    return task, _HEAD + _IN_PLACE.format(block=block)


def _turned(element: str, block: int) -> tuple[Task, str]:
    @silo.task(cases=12)
    def task(draw):
        rows, n = draw.size(1, 60), draw.size(1, 60)
        x, out = draw.array(rows, n, dtype=element), draw.empty(n, rows, dtype=element)
        return draw.case(lambda: {"out": x.host.T}, x=x, out=out, rows=rows, n=n)

    return task, _HEAD + _TURNED.format(block=block)


def _written() -> dict[str, tuple[Task, str]]:
    found: dict[str, tuple[Task, str]] = {}
    for number, name in enumerate(_ELEMENTWISE):
        for place, element in enumerate(_DTYPES):
            form, words = ((_FLAT, "flat"), (_STRIDED, "strided"))[(number + place) % 2]
            found[f"{name} {element} {words}"] = _elementwise(form, name, element, (64, 256, 1024)[number % 3])
    for element in _DTYPES:
        found |= {f"{name} {element}": _row(name, element) for name in _ROWS}
        for block in (32, 512):
            found[f"gather {element} {block}"] = _gather(element, block)
            found[f"in place {element} {block}"] = _in_place(element, block)
        found[f"turned {element}"] = _turned(element, 16)
    for element in ("float32", "float16", "bfloat16"):
        for m, n, k in ((16, 16, 16), (32, 16, 64)):
            found[f"product {element} {m} {n} {k}"] = _product(element, m, n, k)
    return found


WRITTEN = _written()
"""Tasks and texts by name."""

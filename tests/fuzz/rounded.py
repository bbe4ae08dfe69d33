"""Statements of kernels whose sums are rounded: smooth functions of moderate values, so that errors stay small.

No decision depends on a float. Results are compared with those of the same kernel in float64 (:func:`shadow`).
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from .kinds import KINDS, from_float64, to_float64
from .maker import Maker
from .program import Kernel, Node, Var

__all__ = ["arithmetic", "dot", "error", "function", "mean", "normalize", "shadow", "softmax", "tolerance", "unit"]

_FLOAT = re.compile(r"tl\.(?:float16|bfloat16|float32)\b")


def _pinned(m: Maker, text: str, var: Var, shape: tuple[int, ...] | None = None) -> Var:
    return m.define(f"({text}).to({m.tl(var.kind)})", var.kind, var.shape if shape is None else shape)


def arithmetic(m: Maker) -> None:
    """Sums, products and quotients that stay moderate."""
    var = m.any(floating=True)
    other = m.value(var.kind, var.shape)
    a, b = var.name, other.name
    text = m.rng.choice(
        [
            f"{a} * 0.5 + {b} * 0.75",
            f"{a} - {b} * 0.5",
            f"{a} * {b} * 0.25",
            f"{a} / (1.0 + {b} * {b})",
            f"tl.maximum({a}, {b}) * 0.5",
            f"tl.minimum({a}, 2.0) + tl.maximum({b}, -1.0)",
            f"tl.abs({a}) - {b}",
        ]
    )
    _pinned(m, text, var)


def function(m: Maker) -> None:
    """A mathematical function, computed in f32 or f64."""
    var = m.any(floating=True)
    wide = var if var.kind in {"f32", "f64"} else m.cast(var, "f32")
    x = wide.name
    text = m.rng.choice(
        [
            f"tl.exp(tl.minimum({x}, 1.5)) * 0.5",
            f"1.0 / (1.0 + tl.exp(-{x}))",
            f"tl.sigmoid({x})",
            f"tl.log(1.0 + tl.abs({x}))",
            f"tl.sqrt(1.0 + {x} * {x}) - 1.0",
            f"tl.rsqrt(1.0 + tl.abs({x}))",
            f"tl.sin({x})",
            f"tl.cos({x} * 0.5)",
            f"tl.erf({x})",
            f"tl.exp2(tl.minimum({x}, 1.0))",
        ]
    )
    _pinned(m, text, wide)


def mean(m: Maker) -> None:
    """A sum along an axis, brought back to size."""
    var = m.any(floating=True)
    axis = m.rng.randrange(len(var.shape))
    kind = m.rng.choice(["sum", "sum", "max", "min"])
    scale = f" * {1.0 / var.shape[axis]}" if kind == "sum" else ""
    shape = tuple(extent for place, extent in enumerate(var.shape) if place != axis)
    _pinned(m, f"tl.{kind}({var.name}, {axis}){scale}", var, shape)


def softmax(m: Maker) -> None:
    """Along the last axis."""
    var = m.any(floating=True)
    wide = var if var.kind in {"f32", "f64"} else m.cast(var, "f32")
    axis = len(wide.shape) - 1
    spread = "" if axis == 0 else "[" + ":, " * axis + "None]"
    top = m.define(f"tl.max({wide.name}, {axis})", wide.kind, wide.shape[:-1])
    powers = _pinned(m, f"tl.exp({wide.name} - {top.name}{spread})", wide)
    total = m.define(f"tl.sum({powers.name}, {axis})", wide.kind, wide.shape[:-1])
    _pinned(m, f"{powers.name} / {total.name}{spread}", wide)


def normalize(m: Maker) -> None:
    """Mean 0 and deviation 1 along the last axis."""
    var = m.any(floating=True)
    wide = var if var.kind in {"f32", "f64"} else m.cast(var, "f32")
    axis = len(wide.shape) - 1
    spread = "" if axis == 0 else "[" + ":, " * axis + "None]"
    extent = wide.shape[-1]
    center = m.define(f"tl.sum({wide.name}, {axis}) / {extent}", wide.kind, wide.shape[:-1])
    off = _pinned(m, f"{wide.name} - {center.name}{spread}", wide)
    square = m.define(f"tl.sum({off.name} * {off.name}, {axis}) / {extent}", wide.kind, wide.shape[:-1])
    _pinned(m, f"{off.name} * tl.rsqrt({square.name} + 0.5){spread}", wide)


def dot(m: Maker) -> None:
    """A product of two tiles, brought back to size."""
    kind = m.rng.choice(["f32", "f32", "f16", "bf16"])
    extents = sorted({extent for extent in m.extents if extent <= 32} | {16})
    rows, depth, columns = (m.rng.choice(extents) for _ in range(3))
    if max(rows * depth, depth * columns, rows * columns) > m.most:
        return
    left, right = m.value(kind, (rows, depth)), m.value(kind, (depth, columns))
    total = f", {m.value('f32', (rows, columns)).name}" if m.chance(0.4) else ""
    text = f"tl.dot({left.name}, {right.name}{total}, out_dtype=tl.float32)"
    m.define(f"{text} * {1.0 / depth}", "f32", (rows, columns))


def shadow(kernel: Kernel, filled: dict[str, np.ndarray]) -> tuple[Kernel, dict[str, np.ndarray]]:
    """The same kernel with every float in float64, and its memory."""
    wide = kernel.copy()
    _widen(wide.nodes)
    wide.contract = False
    wide.parameters = [replace(p, kind=_wide(p.kind)) for p in kernel.parameters]
    wide.storages = {name: replace(s, kind=_wide(s.kind)) for name, s in kernel.storages.items()}
    arrays = {
        name: to_float64(array, kernel.storages[name].kind) if KINDS[kernel.storages[name].kind].floating else array
        for name, array in filled.items()
    }
    return wide, arrays


def _wide(kind: str) -> str:
    return "f64" if KINDS[kind].floating else kind


def _widen(nodes: list[Node]) -> None:
    for node in nodes:
        node.lines = [_FLOAT.sub("tl.float64", line) for line in node.lines]
        for inner in (node.body, node.otherwise):
            if inner is not None:
                _widen(inner)


def unit(kernel: Kernel) -> float:
    """Half the distance from 1 to the next number, in the least exact float type of a kernel."""
    text = kernel.text()
    kinds = {s.kind for s in kernel.storages.values()} | {k for k in KINDS if f"tl.{KINDS[k].tl}" in text}
    return max((2.0 ** -KINDS[kind].precision for kind in kinds if KINDS[kind].floating), default=0.0)


def error(found: np.ndarray, kind: str, exact: np.ndarray) -> tuple[float, float]:
    """The largest distance from the values in float64, and the largest of those."""
    values = to_float64(found, kind)
    # What float64 holds may be out of the narrower type's range: then both are infinite.
    rounded = to_float64(from_float64(exact, kind), kind)
    same = (values == rounded) | (np.isnan(values) & np.isnan(rounded))
    finite = np.isfinite(exact)
    scale = float(np.abs(exact[finite]).max(initial=0.0))
    with np.errstate(all="ignore"):
        distance = np.where(same, 0.0, np.abs(values - exact))
    return float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0)), scale


def tolerance(kernel: Kernel, reference_error: float, scale: float) -> float | None:
    """How far from float64 another run may be; None where the kernel is too sensitive to tell a fault from rounding.

    Twice the error of the reference code, and four roundings of the largest value; of 4 if all are smaller, as they
    are sums of values of about 1, which reach several before they cancel.
    """
    if reference_error > min(256 * unit(kernel), 0.05) * max(scale, 1e-3):
        return None
    return 2 * reference_error + 4 * unit(kernel) * max(scale, 4.0)

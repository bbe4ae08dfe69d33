"""``tl.dot`` of two tiles or two stacks of tiles, with and without something to add to."""

from __future__ import annotations

from .maker import HOME, Maker
from .program import Exact, Var

__all__ = ["SUMS", "dot"]

# The type that products of each type are summed in.
SUMS = {"f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64", "i8": "i32"}


def dot(m: Maker) -> None:
    """A product whose every partial sum is exact."""
    kind = m.rng.choice(["f32", "f32", "f16", "bf16", "f64", "i8"])
    rows, depth, columns = (m.rng.choice(_extents(m)) for _ in range(3))
    if max(rows * depth, depth * columns, rows * columns) > m.most:
        return
    m.feature("dot")
    left, right = _operand(m, kind, (rows, depth)), _operand(m, kind, (depth, columns))
    sums = SUMS[kind]
    shape = (rows, columns)
    exact = None
    text = f"tl.dot({left.name}, {right.name}"
    if left.exact is not None and right.exact is not None:
        exact = Exact(left.exact.bound * right.exact.bound * depth, left.exact.lsb + right.exact.lsb)
        if not exact.fits(sums):
            return
    if m.chance(0.5):
        total = m.value(sums, shape)
        if exact is not None and total.exact is not None:
            joint = Exact(exact.bound + total.exact.bound, min(exact.lsb, total.exact.lsb))
            if not joint.fits(sums):
                total = m.squash(total)
                assert total.exact is not None
                joint = Exact(exact.bound + total.exact.bound, min(exact.lsb, total.exact.lsb))
            if not joint.fits(sums):
                return
            exact = joint
        text += f", {total.name}"
    if kind == "f32":
        text += m.rng.choice(["", ', input_precision="ieee"'])
    if kind == "i8":
        text += ", out_dtype=tl.int32"
    if kind == "f64":
        text += ", out_dtype=tl.float64"
    m.define(f"{text})", sums, shape, exact)


def _extents(m: Maker) -> list[int]:
    return sorted({extent for extent in m.extents if extent <= 32} | {16})


def _operand(m: Maker, kind: str, shape: tuple[int, ...]) -> Var:
    if m.chance(0.3):
        turned = m.value(kind, (shape[1], shape[0]))
        turned = m.squash(turned, HOME[kind]) if m.exact and turned.floating else turned
        return m.define(f"tl.trans({turned.name})", kind, shape, turned.exact)
    value = m.value(kind, shape)
    return m.squash(value, HOME[kind]) if m.exact and value.floating else value

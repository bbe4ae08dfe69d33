"""Statements that move elements without changing them."""
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from .maker import Maker
from .program import Var

__all__ = ["cat", "expand", "flip", "gather", "histogram", "join", "reshape", "sort", "split", "transpose"]


def _tile(m: Maker, rank: int | None = None) -> Var:
    found = m.pick(lambda var: bool(var.shape) and var.kind != "i1" and (rank is None or len(var.shape) == rank))
    return found or m.fresh(m.kind(), m.shape(rank))


def transpose(m: Maker) -> None:
    """Axes in another order."""
    var = m.pick(lambda var: len(var.shape) > 1) or m.fresh(m.kind(), m.shape(2))
    if len(var.shape) < 2:
        return
    if len(var.shape) == 2:
        m.define(f"tl.trans({var.name})", var.kind, (var.shape[1], var.shape[0]), var.exact)
        return
    order = list(range(len(var.shape)))
    m.rng.shuffle(order)
    m.define(f"tl.permute({var.name}, {tuple(order)})", var.kind, tuple(var.shape[axis] for axis in order), var.exact)


def reshape(m: Maker) -> None:
    """The same elements in another shape."""
    var = _tile(m)
    count = var.elements
    shapes = {shape for shape in m.shapes if _count(shape) == count} | {(count,)}
    if count >= 4:
        shapes |= {(2, count // 2), (count // 2, 2), (2, 2, count // 4), (1, count), (count, 1)}
    shape = m.rng.choice(sorted(shapes))
    m.define(f"tl.reshape({var.name}, {shape})", var.kind, shape, var.exact)


def expand(m: Maker) -> None:
    """An axis of extent one more."""
    var = _tile(m)
    if len(var.shape) > 2:
        return
    axis = m.rng.randrange(len(var.shape) + 1)
    shape = (*var.shape[:axis], 1, *var.shape[axis:])
    m.define(f"tl.expand_dims({var.name}, {axis})", var.kind, shape, var.exact)


def join(m: Maker) -> None:
    """Two tiles side by side along a new last axis, or interleaved."""
    var = _tile(m)
    if var.elements * 2 > m.most or len(var.shape) > 2:
        return
    m.feature("join")
    other = m.value(var.kind, var.shape)
    exact = _hull(var, other)
    if m.chance(0.5):
        m.define(f"tl.join({var.name}, {other.name})", var.kind, (*var.shape, 2), exact)
    else:
        shape = (*var.shape[:-1], var.shape[-1] * 2)
        m.define(f"tl.interleave({var.name}, {other.name})", var.kind, shape, exact)


def _hull(var: Var, other: Var):
    from .elementwise import _hull as hull

    return hull(var, other.exact) if var.exact is not None and other.exact is not None else None


def split(m: Maker) -> None:
    """The two halves of a last axis of two."""
    var = m.pick(lambda var: len(var.shape) > 1 and var.shape[-1] == 2)
    if var is None:
        source = _tile(m)
        if source.elements < 4:
            return
        var = m.define(
            f"tl.reshape({source.name}, {(source.elements // 2, 2)})",
            source.kind,
            (source.elements // 2, 2),
            source.exact,
        )
    m.feature("split")
    both = m.name("pair")
    m.put(f"{both} = tl.split({var.name})")
    m.define(f"{both}[0]", var.kind, var.shape[:-1], var.exact)
    m.define(f"{both}[1]", var.kind, var.shape[:-1], var.exact)


def cat(m: Maker) -> None:
    """Two rows, one after the other; the order of the elements is Triton's to choose, so only a sum is used."""
    var = _tile(m, 1)
    if var.floating or var.elements * 2 > m.most or len(var.shape) != 1:
        return
    m.feature("cat")
    other = m.value(var.kind, var.shape)
    joined = m.define(f"tl.cat({var.name}, {other.name}, can_reorder=True)", var.kind, (var.shape[0] * 2,))
    m.scope.remove(joined)
    m.define(f"tl.sum({joined.name}).to({m.tl(var.kind)})", var.kind, ())


def gather(m: Maker) -> None:
    """Elements along an axis, by computed places."""
    var = _tile(m)
    axis = m.rng.randrange(len(var.shape))
    m.feature("gather")
    index = m.value("i32", var.shape)
    places = m.define(f"{index.name} & {var.shape[axis] - 1}", "i32", var.shape)
    m.define(f"tl.gather({var.name}, {places.name}, {axis})", var.kind, var.shape, var.exact)


def flip(m: Maker) -> None:
    """Elements of the last axis backwards; Triton does not flip an axis of extent one."""
    var = _tile(m)
    if var.shape[-1] < 2:
        return
    m.feature("flip")
    m.define(f"tl.flip({var.name}, {len(var.shape) - 1})", var.kind, var.shape, var.exact)


def sort(m: Maker) -> None:
    """The last axis in order."""
    var = _tile(m)
    if var.floating and not m.exact:
        return
    if var.shape[-1] < 2:
        return
    m.feature("sort")
    name = f"({var.name} + 0)" if var.floating else var.name
    m.define(f"tl.sort({name}{m.rng.choice(['', ', descending=True'])})", var.kind, var.shape, var.exact)


def histogram(m: Maker) -> None:
    """How often each small number occurs."""
    bins = m.rng.choice([2, 8, 16])
    var = m.value("i32", m.shape(1))
    if len(var.shape) != 1:
        return
    m.feature("histogram")
    bounded = m.define(f"{var.name} & {bins - 1}", var.kind, var.shape)
    mask = f", mask={m.mask(var.shape).name}" if m.chance(0.4) else ""
    m.define(f"tl.histogram({bounded.name}, {bins}{mask})", "i32", (bins,))


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count

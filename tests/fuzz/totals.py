"""Loops that reduce tiles of a matrix, in the loop or after it: along rows and columns, at its edges."""

from __future__ import annotations

from .kinds import KINDS
from .maker import HOME, Maker
from .products import Place, _checked, _parameter, _pointer, _range
from .program import Exact, Storage

__all__ = ["tile_totals"]

_SHAPES = [(16, 64), (2, 256), (8, 128), (16, 16), (32, 8), (64, 16), (4, 64), (128, 8), (16, 32), (64, 8)]
_MOST = 1024  # elements of a tile
_NEUTRAL = {"sum": "0", "max": "-1000", "min": "1000"}


def tile_totals(m: Maker) -> None:
    """Sums, maxima or minima of the rows or columns of a matrix, tile by tile."""
    rows, columns = m.rng.choice(_SHAPES)
    assert rows * columns <= _MOST
    axis, trips = m.rng.choice([0, 1]), m.rng.choice([1, 2, 3, 5])
    kind = m.rng.choice(["f32"] * 4 + ["f16", "bf16", "f64", "i32", "i64"])
    totals = {"f16": "f32", "bf16": "f32"}.get(kind, kind)
    what = m.rng.choice(["sum", "sum", "sum", "max", "min"])
    reduced, kept = ((rows, columns), (columns, rows))[axis]
    depth = max(trips * reduced - m.rng.choice([0, 0, m.rng.randrange(reduced)]), 1)
    width = max(m.programs * kept - m.rng.randrange(kept + 2), 1)
    bound = HOME[kind].bound * trips * reduced * 4 if KINDS[kind].floating else 0.0
    if KINDS[kind].floating and not Exact(bound).fits(totals):
        return
    m.feature(f"totals of {'columns' if axis == 0 else 'rows'}")
    parameter, storage = _pointer(m, written=False, kind=kind)
    gap = m.rng.choice([0, 0, 1, 5])
    apart, along = (1, width + gap) if m.chance(0.5) else (depth + gap, 1)  # of a total, and within it
    _checked(m, parameter, storage, Place("", None, 0, (width - 1) * apart + (depth - 1) * along))
    ours, counter, total, second = (m.name(stem) for stem in ("t", "k", "c", "q"))
    ends = [m.scalar(number) for number in (width, depth)]
    views = ("[None, :]", "[:, None]") if axis == 0 else ("[:, None]", "[None, :]")
    m.put(f"{ours} = pid * {kept} + {_range(kept)}")
    carried = m.chance(0.3)
    step = f"({_range(reduced)}){views[1]}" if carried else f"({counter} * {reduced} + {_range(reduced)}){views[1]}"
    inside = f"(({counter} * {reduced} + {_range(reduced)}){views[1]} < {ends[1]})"
    pointer = m.name("at")
    start = f"{parameter.name} + {ours}{views[0]} * {m.scalar(apart)}"
    text = f"{pointer} + {step} * {m.scalar(along)}"
    m.put(f"{pointer} = {start}")
    if carried:
        m.put(f"{pointer} = {text}")
        text = pointer
    masks = [inside] if depth % reduced or m.chance(0.6) else []
    masks.append(f"({ours}{views[0]} < {ends[0]})")
    m.rng.shuffle(masks)
    other = _NEUTRAL[what] if m.chance(0.8) else "1"
    shape = f"({rows}, {columns})"
    after = m.chance(0.4)
    first = _NEUTRAL[what] if m.chance(0.8) else "2"
    extent = shape if after else f"({kept},)"
    tl = m.tl(totals)
    m.put(f"{total} = tl.full({extent}, {first}, {tl})")
    two = m.chance(0.3)
    if two:
        m.put(f"{second} = tl.full(({kept},), 0, {tl})")
    with m.block(f"for {counter} in range({m.scalar(trips)}):"):
        tile = m.name("x")
        m.put(f"{tile} = tl.load({text}, mask={' & '.join(masks)}, other={other}).to({tl})")
        changed = m.rng.choice([tile, tile, f"-{tile}", f"tl.abs({tile})", f"{tile} + 1", f"tl.maximum({tile}, 0)"])
        if after:
            m.put(f"{total} = {_joined(what, total, changed)}")
        else:
            m.put(f"{total} = {_joined(what, total, f'tl.{what}({changed}, {axis})')}")
        if two:
            m.put(f"{second} += tl.sum({tile} * 2, {axis})")
        if carried:
            m.put(f"{pointer} += {reduced} * {m.scalar(along)}")
    if after:
        m.put(f"{total} = tl.{what}({total}, {axis})")
    for name in (total, second)[: 1 + two]:
        _stored(m, name, totals, kept, f"{ours} < {ends[0]}" if m.chance(0.8) else f"{_range(kept)} >= 0")


def _joined(what: str, total: str, part: str) -> str:
    return f"{total} + {part}" if what == "sum" else f"tl.{what}imum({total}, {part})"


def _stored(m: Maker, name: str, kind: str, kept: int, mask: str) -> None:
    place = f"S{len(m.storages)}"
    m.storages[place] = storage = Storage(place, kind, "zero", written=True, skew=m.rng.choice([0, 0, 1]))
    _parameter(m, storage)
    target = next(one for one in m.parameters if one.storage == place)
    storage.reach(0, target.shift + kept - 1)
    m.put(f"tl.store({target.name} + {_range(kept)}, {name}, mask={mask})")

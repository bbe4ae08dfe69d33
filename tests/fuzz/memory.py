"""Loads, stores and atomics, with the offsets they reach worked out as they are written."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .kinds import INTS, KINDS, TINY
from .maker import HOME, Maker, view_of
from .program import Exact, Node, Parameter, Storage, Var

__all__ = [
    "as_stored",
    "atomic",
    "finish_stores",
    "kept_as",
    "load",
    "scalar_load",
    "scalar_store",
    "scattered_add",
    "shifted_copy",
    "spread_copy",
    "store",
    "turned_copy",
    "update",
]


@dataclass(frozen=True)
class Place:
    """Offsets of a tile: their text, and their values where nothing but the tile's own indices counts (None: unknown,
    within ``low`` to ``high``)."""

    text: str
    offsets: np.ndarray | None
    low: int
    high: int


def _storage(m: Maker, kind: str, *, written: bool) -> Storage:
    floating = KINDS[kind].floating
    exact = HOME[kind] if m.exact and floating else None
    name = f"S{len(m.storages)}"
    storage = Storage(
        name,
        kind,
        "exact" if exact else "normal" if m.rounded and floating else "wild",
        written,
        exact,
        at_end=m.chance(0.6),
        skew=m.rng.choice([0, 0, 1, 3]),
    )
    m.storages[name] = storage
    _parameter(m, storage)
    if m.chance(0.25):  # a second argument into the same memory
        _parameter(m, storage, shift=m.rng.choice([0, 1, 2, 5, 16]))
    return storage


def _parameter(m: Maker, storage: Storage, shift: int = 0) -> None:
    kind = storage.kind
    same = [other for other in INTS if KINDS[other].bits == KINDS[kind].bits and kind in INTS]
    if same and shift and m.chance(0.3):
        kind = m.rng.choice(same)
    pointer = Parameter(f"p{len(m.parameters)}", kind, storage.name, shift)
    m.parameters.append(pointer)
    if storage.written:
        # The region of this program: before anything else, so that it is in scope everywhere.
        m.nodes.insert(_head(m), Node([f"{pointer.name} += pid * {storage.placeholder}"], fixed=True))


def _head(m: Maker) -> int:
    """Where a statement lands that must come before all others: after the ranges and the program's number."""
    return 1 + next(place for place, node in enumerate(m.nodes) if node.lines[0].startswith("pid = "))


def _pointer(m: Maker, *, written: bool, kind: str | None = None) -> tuple[Parameter, Storage]:
    """A pointer parameter to read from or to write to; a new storage where there are few."""
    found = [
        parameter
        for parameter in m.parameters
        if parameter.pointer
        and m.storages[parameter.storage].fill in {"wild", "exact", "normal"}
        and m.storages[parameter.storage].written is written
        and (kind is None or parameter.kind == kind)
    ]
    if not found or (len(found) < 3 and m.chance(0.3)):
        name = kind or m.kind()
        if kind is None and m.chance(0.15) and not m.rounded:
            name = m.rng.choice([*TINY] if written else [*TINY, "i1"])
        storage = _storage(m, name, written=written)
        return next(p for p in m.parameters if p.storage == storage.name), storage
    parameter = m.rng.choice(found)
    return parameter, m.storages[parameter.storage]


def _tile(m: Maker, shape: tuple[int, ...], *, injective: bool) -> Place:
    """Offsets of a tile: rows one after the other, transposed, with gaps, backwards, overlapping, wrapped."""
    rank = len(shape)
    names = {var.name for var in m.scope}
    order = list(range(rank))
    if m.chance(0.3):
        m.rng.shuffle(order)
    texts: list[str] = []
    total = np.zeros(shape, np.int64)
    step = 1
    for axis in reversed(order):
        extent = shape[axis]
        if f"r{extent}" not in names:
            return _rows(m, shape)
        index, values = _index(m, extent, injective=injective)
        stride = step
        if rank == 1 or axis == order[-1]:
            stride = m.rng.choice([1, 1, 1, 1, 2, 3, -1] + ([] if injective else [0]))
        elif m.chance(0.3):
            stride = m.rng.choice([step + 1, step + 3, -step] + ([] if injective else [1, 0]))
        view = view_of(axis, rank)
        texts.append(f"{index}{view}" if stride == 1 and m.chance(0.8) else f"{index}{view} * {m.scalar(stride)}")
        values = values * stride
        total = total + values.reshape([extent if place == axis else 1 for place in range(rank)])
        step = max(abs(stride), 1) * extent
    if injective and len(np.unique(total)) != total.size:
        return _rows(m, shape)
    text = " + ".join(reversed(texts))
    return Place(text, total, int(total.min()), int(total.max()))


def _rows(m: Maker, shape: tuple[int, ...]) -> Place:
    """Plain row-major offsets of any shape."""
    count = int(np.prod(shape))
    total = np.arange(count).reshape(shape)
    flat = f"tl.arange(0, {count})" if len(shape) == 1 else f"tl.reshape(tl.arange(0, {count}), {shape})"
    return Place(flat, total, 0, count - 1)


def _index(m: Maker, extent: int, *, injective: bool) -> tuple[str, np.ndarray]:
    values = np.arange(extent)
    name = f"r{extent}"
    choice = m.rng.choice(["plain"] * 6 + ["reversed", "swapped", "wrapped", "halved"])
    if choice == "reversed":
        return f"({extent - 1} - {name})", extent - 1 - values
    if choice == "swapped" and extent > 1:
        return f"({name} ^ 1)", values ^ 1
    if choice == "wrapped" and not injective and m.chance(0.3):  # the remainder of a negative number is negative
        start, limit = m.rng.choice([1, 3]), m.rng.choice([extent, max(extent // 2, 1), 5])
        return f"(({name} - {m.scalar(start)}) % {m.scalar(limit)})", np.fmod(values - start, limit)
    if choice == "wrapped":
        limit = extent if injective else m.rng.choice([extent, extent + 3, max(extent // 2, 1), 5])
        start = m.rng.choice([0, 1, 3])
        text = f"(({name} + {m.scalar(start)}) % {m.scalar(limit)})" if start else f"({name} % {m.scalar(limit)})"
        return text, (values + start) % limit
    if choice == "halved" and not injective:
        return f"({name} // 2)", values // 2
    return name, values


def _moved(m: Maker, place: Place) -> Place:
    """``place`` plus a constant, a loop's counter or the program's number."""
    text, low, high = place.text, place.low, place.high
    start = m.rng.choice([0, 0, 0, 1, 2, 5, 16])
    if start:
        text += f" + {m.scalar(start)}"
        low, high = low + start, high + start
    counter = m.pick(lambda var: var.shape == () and var.interval is not None and var.name != "pid")
    if counter is not None and counter.interval is not None and m.chance(0.02):
        step = m.rng.choice([1, 2, 8, 16])
        text += f" + {counter.name} * {step}"
        low, high = low + counter.interval[0] * step, high + counter.interval[1] * step
    return replace(place, text=text, low=low, high=high)


def _mask(m: Maker, place: Place, shape: tuple[int, ...]) -> tuple[str, Place]:
    """A mask, and the place narrowed to the elements that it lets through, where that is known."""
    if m.chance(0.45):
        return "", place
    if m.chance(0.5) and place.offsets is not None:
        axis = m.rng.randrange(len(shape))
        extent = shape[axis]
        if f"r{extent}" in {var.name for var in m.scope}:
            limit = m.bound(extent)
            text = f"r{extent}{view_of(axis, len(shape))} < {m.scalar(limit)}"
            kept = np.take(place.offsets, np.arange(max(min(limit, extent), 0)), axis)
            least = int(place.offsets.min())
            if kept.size:
                narrowed = replace(
                    place,
                    low=place.low + int(kept.min()) - least,
                    high=place.high - int(place.offsets.max()) + int(kept.max()),
                )
            else:
                narrowed = replace(place, low=0, high=0)
            return text, narrowed
    return m.mask(shape).name, place


def _checked(m: Maker, parameter: Parameter, storage: Storage, place: Place) -> None:
    low, high = place.low, place.high
    # The pointer itself must be in the storage.
    storage.reach(min(low + parameter.shift, 0), max(high, 0) + parameter.shift)


def load(m: Maker) -> None:
    """A tile of memory that is only read, or that the kernel also writes; or elements at offsets that were computed."""
    shape = m.shape()
    parameter, storage = _pointer(m, written=m.chance(0.5))
    if m.chance(0.15):
        place = _gathered(m, shape)
    elif m.chance(0.15):
        place = _divided(m, shape)
    else:
        place = _moved(m, _tile(m, shape, injective=False))
    mask, narrowed = _mask(m, place, shape)
    _checked(m, parameter, storage, narrowed)
    options = ""
    if mask:
        options = f", mask={mask}"
        if m.chance(0.7):
            options += f", other={_other(m, parameter.kind, shape)}"
    _loaded(m, parameter, storage, f"tl.load({parameter.name} + ({place.text}){options}{_volatile(m)})", shape)


def _volatile(m: Maker) -> str:
    """Rarely: one such load orders every access of its kernel."""
    if not m.chance(0.02):
        return ""
    m.feature("volatile")
    return ", volatile=True"


def _gathered(m: Maker, shape: tuple[int, ...]) -> Place:
    kind = m.rng.choice(["i32", "i64"])
    index = m.value(kind, shape)
    limit = m.rng.choice([7, 15, 31])
    return Place(f"({index.name} & {limit})", None, 0, limit)


def _divided(m: Maker, shape: tuple[int, ...]) -> Place:
    """Quotients and remainders of the elements' numbers, counted over all programs: a bias, a group's scale."""
    rows = _rows(m, shape)
    names = {var.name for var in m.scope}
    text = rows.text
    if len(shape) == 2 and all(f"r{extent}" in names for extent in shape):
        text = f"(r{shape[0]}[:, None] * {m.scalar(shape[1])} + r{shape[1]}[None, :])"
    elif len(shape) == 1 and f"r{shape[0]}" in names:
        text = f"r{shape[0]}"
    count = rows.high + 1
    element, last = f"(pid * {m.scalar(count)} + {text})", m.programs * count - 1
    divisor = m.rng.choice([1, 5, 16, 17, 24, 32, 50, 64, 100])
    by = m.scalar(divisor)
    match m.rng.choice(["remainder", "quotient", "both", "rows", "rows"]):
        case "rows":  # a row for each quotient, looked up in a table, which the kernel may write
            table, storage = _pointer(m, written=m.chance(0.3), kind=m.rng.choice(["i32", "i64"]))
            rows_, mask = m.rng.choice([3, 7, 15]), ""
            reached = last // divisor
            if m.chance(0.4):
                bound = m.rng.choice([0, 1, last // 2, last, last + 1, last + 50])
                mask = f", mask={element} < {m.scalar(bound)}, other={m.rng.choice([0, 1, 5])}"
                reached = min(reached, max(bound - 1, 0) // divisor)
            _checked(m, table, storage, Place("", None, 0, reached))
            row = f"(tl.load({table.name} + {element} // {by}{mask}) & {rows_})"
            if m.chance(0.3):
                row = f"tl.where({row} > 1, {row} - 1, {row})"
            step = m.rng.choice([divisor, divisor, 1, divisor + 3])
            place = m.rng.choice([f"{element} % {by}", f"{element} % {by}", "0"])
            return Place(f"{row} * {m.scalar(step)} + {place}", None, 0, rows_ * step + divisor - 1)
        case "remainder":
            return Place(f"{element} % {by}", None, 0, divisor - 1)
        case "quotient":
            return Place(f"{element} // {by}", None, 0, last // divisor)
        case _:
            step = last // divisor + 1
            return Place(f"({element} % {by}) * {m.scalar(step)} + {element} // {by}", None, 0, divisor * step - 1)


def _other(m: Maker, kind: str, shape: tuple[int, ...]) -> str:
    if m.chance(0.6) or kind in {"i1", *TINY}:
        if kind in TINY:
            return m.rng.choice(["0.0", "1.0", "-1.0"])
        if kind == "i1":
            return m.rng.choice(["0", "1"])
        return m.literal(kind)
    value = m.value(kind, shape)
    return (m.squash(value) if m.exact and value.floating else value).name


def _loaded(m: Maker, parameter: Parameter, storage: Storage, text: str, shape: tuple[int, ...]) -> None:
    exact = storage.exact
    if parameter.kind == "i1":
        m.define(f"{text}.to(tl.int1)", "i1", shape)
    elif parameter.kind in TINY:
        m.feature("fp8")
        m.define(f"{text}.to(tl.float32)", "f32", shape, exact)
    else:
        found = m.define(text, parameter.kind, shape, exact)
        if ", mask=" not in text:
            m.read.add(found.name)


def as_stored(m: Maker, parameter: Parameter, storage: Storage, value: Var) -> str:
    """``value`` (of :func:`kept_as`) as what the storage may hold."""
    if m.exact and value.floating and storage.exact is not None:
        value = m.squash(value, storage.exact)
    return f"{value.name}.to({m.tl(parameter.kind)})" if parameter.kind in TINY else value.name


def kept_as(parameter: Parameter) -> str:
    """The type that values to store through a pointer are computed in."""
    return "f32" if parameter.kind in TINY else parameter.kind


def _to_store(m: Maker, parameter: Parameter, storage: Storage, shape: tuple[int, ...]) -> str:
    return as_stored(m, parameter, storage, m.value(kept_as(parameter), shape))


def store(m: Maker) -> None:
    """A tile to memory: no element twice, so that there is one right result."""
    shape = m.shape()
    parameter, storage = _pointer(m, written=True)
    value = _to_store(m, parameter, storage, shape)
    place = _moved(m, _tile(m, shape, injective=True))
    mask, narrowed = _mask(m, place, shape)
    _checked(m, parameter, storage, narrowed)
    m.put(f"tl.store({parameter.name} + ({place.text}), {value}{f', mask={mask}' if mask else ''})")


def shifted_copy(m: Maker) -> None:
    """A tile read and written back a little farther on, through the same argument or another: every way to overlap."""
    shape = m.shape()
    _, storage = _pointer(m, written=True)
    both = [other for other in m.parameters if other.storage == storage.name]
    if len(both) == 1 and m.chance(0.5):
        _parameter(m, storage, shift=m.rng.choice([0, 1, 2, 5, 16]))
        both.append(m.parameters[-1])
    source, target = m.rng.choice(both), m.rng.choice(both)
    base = _rows(m, shape) if m.chance(0.2) else _tile(m, shape, injective=True)
    read, written = (
        replace(base, text=f"{base.text} + {m.scalar(by)}", low=base.low + by, high=base.high + by)
        for by in (m.rng.choice([0, 0, 1, 2, 3, 16]) for _ in range(2))
    )
    mask, narrowed = _mask(m, read, shape)
    moved = written.low - read.low
    options = f", mask={mask}" if mask else ""
    _checked(m, source, storage, narrowed)
    # Where the mask narrows what is read it narrows what is written, as far on.
    _checked(m, target, storage, replace(written, low=narrowed.low + moved, high=narrowed.high + moved))
    _loaded(m, source, storage, f"tl.load({source.name} + ({read.text}){options})", shape)
    found = m.scope[-1]
    if m.chance(0.6) or found.kind != kept_as(target):
        found = m.value(kept_as(target), shape)
    text = as_stored(m, target, storage, found)
    m.put(f"tl.store({target.name} + ({written.text}), {text}{options})")


def update(m: Maker) -> None:
    """A tile read and written where it was read, of memory that is often reached nowhere else."""
    shape = m.shape()
    storage = _storage(m, m.kind(), written=True) if m.chance(0.8) else _pointer(m, written=True)[1]
    parameter = next(p for p in m.parameters if p.storage == storage.name)
    place = _moved(m, _tile(m, shape, injective=True))
    mask, narrowed = _mask(m, place, shape)
    _checked(m, parameter, storage, narrowed)
    options = f", mask={mask}" if mask else ""
    _loaded(m, parameter, storage, f"tl.load({parameter.name} + ({place.text}){options})", shape)
    found = m.scope[-1]
    if m.chance(0.5) or found.kind != kept_as(parameter):
        found = m.value(kept_as(parameter), shape)
    m.put(f"tl.store({parameter.name} + ({place.text}), {as_stored(m, parameter, storage, found)}{options})")


def spread_copy(m: Maker) -> None:
    """A row read, spread over a tile, and the tile written where the row may lie."""
    shape = m.shape(2)
    if len(shape) != 2 or any(f"r{extent}" not in {var.name for var in m.scope} for extent in shape):
        return
    parameter, storage = _pointer(m, written=True)
    axis = m.rng.randrange(2)
    extent = shape[axis]
    start, end = (m.rng.choice([0, 0, 1, 3, 8]) for _ in range(2))
    _checked(m, parameter, storage, Place("", None, start, start + extent - 1))
    _loaded(m, parameter, storage, f"tl.load({parameter.name} + r{extent} + {m.scalar(start)})", (extent,))
    row = m.scope[-1]
    if row.kind == "i1":
        return
    text = f"tl.broadcast_to({row.name}{view_of(axis, 2)}, {shape})"
    tile = m.define(text, row.kind, shape, row.exact)
    if not row.floating and m.chance(0.5):
        tile = m.define(f"{tile.name} + {m.value(row.kind, shape).name}", row.kind, shape)
    place = _tile(m, shape, injective=True)
    _checked(m, parameter, storage, replace(place, low=place.low + end, high=place.high + end))
    m.put(f"tl.store({parameter.name} + ({place.text} + {m.scalar(end)}), {as_stored(m, parameter, storage, tile)})")


def turned_copy(m: Maker) -> None:
    """A tile read along its columns and written along its rows, into memory of its own: what is turned in parts."""
    shape = m.shape(2)
    if len(shape) != 2 or any(f"r{extent}" not in {var.name for var in m.scope} for extent in shape):
        return
    kind = m.rng.choice(["f32", "i32"]) if m.chance(0.8) else m.kind()
    rows, columns = shape
    step = rows + m.rng.choice([0, 0, 3])
    found = []
    for _ in range(m.rng.choice([1, 1, 2])):
        source, storage = _pointer(m, written=False, kind=kind)
        last = (columns - 1) * step + rows - 1
        place = Place(f"r{rows}[:, None] + r{columns}[None, :] * {m.scalar(step)}", None, 0, last)
        mask, narrowed = _mask(m, place, shape)
        _checked(m, source, storage, narrowed)
        options = f", mask={mask}" if mask else ""
        _loaded(m, source, storage, f"tl.load({source.name} + ({place.text}){options})", shape)
        found.append(m.scope[-1])
    value = found[0]
    if len({var.kind for var in found}) == 1 and len(found) > 1 and value.kind in INTS:
        value = m.define(f"{value.name} ^ {found[1].name}", value.kind, shape)
    elif value.kind in INTS and m.chance(0.5):
        value = m.define(f"{value.name} ^ {m.value(value.kind, shape).name}", value.kind, shape)
    written = _storage(m, value.kind, written=True)
    target = next(parameter for parameter in m.parameters if parameter.storage == written.name)
    place = Place(f"r{rows}[:, None] * {m.scalar(columns)} + r{columns}[None, :]", None, 0, rows * columns - 1)
    mask, narrowed = _mask(m, place, shape)
    _checked(m, target, written, narrowed)
    options = f", mask={mask}" if mask else ""
    m.put(f"tl.store({target.name} + ({place.text}), {as_stored(m, target, written, value)}{options})")


def scalar_load(m: Maker) -> None:
    """One element."""
    parameter, storage = _pointer(m, written=m.chance(0.5))
    place = _moved(m, Place(m.scalar(0), None, 0, 0))
    _checked(m, parameter, storage, place)
    _loaded(m, parameter, storage, f"tl.load({parameter.name} + {place.text}{_volatile(m)})", ())


def scalar_store(m: Maker) -> None:
    """One element."""
    parameter, storage = _pointer(m, written=True)
    value = _to_store(m, parameter, storage, ())
    place = _moved(m, Place(m.scalar(0), None, 0, 0))
    _checked(m, parameter, storage, place)
    m.put(f"tl.store({parameter.name} + {place.text}, {value})")


_RMW = ("add", "max", "min", "and", "or", "xor", "xchg")


def atomic(m: Maker) -> None:
    """Read, change and write, on elements that may coincide where only the total counts, or with the old value used."""
    m.feature("atomic")
    kinds = ["i32", "i64", "u32", "u64", *(["f32", "f64"] if m.exact else [])]
    kind = m.rng.choice(kinds)
    shape = m.shape() if not m.chance(0.2) else ()
    used = m.chance(0.02)
    name = f"S{len(m.storages)}"
    storage = Storage(name, kind, "zero" if KINDS[kind].floating else "wild", written=True)
    m.storages[name] = storage
    _parameter(m, storage)
    parameter = m.parameters[-1]
    operation = m.rng.choice(_RMW)
    if KINDS[kind].floating:
        operation = m.rng.choice(["add", "add", "max", "min"])
        used = False
    if not used and operation == "xchg":
        operation = "xor"
    value = m.value(kind, shape)
    if KINDS[kind].floating:
        value = m.squash(value, Exact(1.0))
        if m.depth:
            return
    place = _tile(m, shape, injective=used) if shape else Place("0", None, 0, 0)
    mask = f", mask={m.mask(shape).name}" if m.chance(0.02 if used else 0.3) and shape else ""
    _checked(m, parameter, storage, place)
    order = m.rng.choice(["", "", ', sem="relaxed"', ', sem="acq_rel"', ', sem="release", scope="cta"'])
    pointer = f"{parameter.name} + ({place.text})"
    if used and m.chance(0.3) and not mask:
        expected = m.value(kind, shape)
        m.define(f"tl.atomic_cas({pointer}, {expected.name}, {value.name})", kind, shape)
        return
    text = f"tl.atomic_{operation}({pointer}, {value.name}{mask}{order})"
    if used and mask:
        # What a masked-off element gives back is open.
        chosen = mask.removeprefix(", mask=")
        m.define(f"tl.where({chosen}, {text}, 0).to({m.tl(kind)})", kind, shape)
    elif used:
        m.define(text, kind, shape)
    else:
        m.put(text)


def scattered_add(m: Maker) -> None:
    """Adds at places that were computed, of programs that meet in the same memory: a histogram."""
    m.feature("atomic")
    kind = m.rng.choice(["i32", "i64", "u32", "u64", "f32", "f64"])  # of the numbers below sums are exact
    name = f"S{len(m.storages)}"
    storage = Storage(name, kind, "zero", written=True, skew=m.rng.choice([0, 1, 3, 7]))
    m.storages[name] = storage
    _parameter(m, storage)
    parameter = next(one for one in m.parameters if one.storage == name)
    count, bins = m.rng.choice([16, 256, 512, 1024]), m.rng.choice([3, 40, 300, 5000])
    step = m.rng.choice([1, 1, 1, 2, 16]) if m.chance(0.9) or bins > 3 else 4096 * 16
    element = f"tl.arange(0, {count})"
    mixed = (
        f"(({element} * {m.rng.choice([1, 3, 37, 977])} + pid * {m.rng.choice([0, 1, 11])}) ^ {m.rng.choice([0, 5])})"
    )
    if m.chance(0.4):  # rows of successive places
        width = m.rng.choice([2, 16, 20, 32, 64])
        row = f"({element} // {m.scalar(width)} * {m.rng.choice([1, 5])} + pid * {m.rng.choice([0, 3])})"
        text = f"{row} % {m.scalar(bins)} * {width} + {element} % {m.scalar(width)}"
        place = Place(text, None, 0, bins * width - 1)
    else:
        place = Place(f"{mixed} % {m.scalar(bins)} * {step}", None, 0, (bins - 1) * step)
    _checked(m, parameter, storage, place)
    value = m.rng.choice(["1", f"({element} * 7 - 100)", f"({element} ^ pid)"])
    mask = f", mask={element} < {m.scalar(m.bound(count))}" if m.chance(0.5) else ""
    shared = f" - pid * {storage.placeholder}" if m.chance(0.7) else ""
    m.put(f"tl.atomic_add({parameter.name}{shared} + {place.text}, {value}{mask})")


def finish_stores(m: Maker, count: int) -> None:
    """Write some of the last values out, so that something can be seen of them."""
    candidates = [var for var in m.scope if var.name.startswith(("v", "c"))]
    # What loops and branches changed says most.
    shown = [var for var in candidates if var.name.startswith("c") and m.chance(0.8)][-4:]
    for var in reversed(candidates):
        if len(shown) < count and var not in shown and m.chance(0.7):
            shown.append(var)
    for var in shown or candidates[-1:]:
        kind = "i8" if var.kind == "i1" else var.kind
        name = f"S{len(m.storages)}"
        # What is shown need not be brought into the range that values read back have.
        storage = Storage(name, kind, "zero", written=True, at_end=m.chance(0.6), skew=m.rng.choice([0, 0, 1]))
        m.storages[name] = storage
        _parameter(m, storage)
        pointer = m.parameters[-1].name
        text = f"{var.name}.to(tl.int8)" if var.kind == "i1" else var.name
        if not var.shape:
            storage.reach(0, 0)
            m.put(f"tl.store({pointer}, {text})")
            continue
        place = _rows(m, var.shape)
        names = {other.name for other in m.scope}
        if len(var.shape) > 1 and all(f"r{extent}" in names for extent in var.shape) and m.chance(0.8):
            pitch, parts = 1, []
            for axis in reversed(range(len(var.shape))):
                index = f"r{var.shape[axis]}{view_of(axis, len(var.shape))}"
                parts.append(index if pitch == 1 else f"{index} * {pitch}")
                pitch *= var.shape[axis]
            place = replace(place, text=" + ".join(reversed(parts)))
        storage.reach(0, place.high)
        m.put(f"tl.store({pointer} + {place.text}, {text})")

"""Loops of products, as matrix multiplications and attention have them, and what kernels do with their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .dots import SUMS
from .kinds import KINDS
from .maker import HOME, Maker, view_of
from .memory import Place, _checked, _parameter, _pointer
from .program import Exact, Node, Storage, Var

__all__ = ["attention", "edge_product", "few_rows", "nested_products", "product_loop", "used"]

Body = Callable[[Maker], None]


@dataclass(frozen=True)
class _Tile:
    """A tile in memory that a loop moves along the inner axis: its pointer, the offsets of its first place, the step of
    the loop's counter in elements, the axes' extents and which of them the product sums over."""

    pointer: str
    offsets: str
    step: int
    shape: tuple[int, int]
    inner: int

    def mask(self, counter: str, depth: str) -> str:
        """What a tile that may end early is masked with."""
        extent = self.shape[self.inner]
        return f"{_range(extent)}{view_of(self.inner, 2)} < {depth} - {counter} * {extent}"


def _range(extent: int) -> str:
    return f"tl.arange(0, {extent})"


def _sizes(m: Maker) -> tuple[int, int, int] | None:
    extents = sorted({extent for extent in m.extents if extent <= 64} | {16})
    rows, columns, depth = (m.rng.choice(extents) for _ in range(3))
    return (rows, columns, depth) if max(rows * depth, depth * columns, rows * columns) <= m.most else None


def _tile(m: Maker, kind: str, shape: tuple[int, int], inner: int, depth: int, *, own: float) -> tuple[_Tile, bool]:
    """Memory with a row for each index of the outer axis, or the other way round; whether it is laid out so that the
    tile has to be turned. ``own`` is how often every program has its own."""
    written = m.chance(0.12)
    parameter, storage = _pointer(m, written=written, kind=kind)
    outer, extent = shape[1 - inner], shape[inner]
    turned = m.chance(0.25)
    gap = m.rng.choice([0, 0, 0, 1, 5])
    strides = [0, 0]
    whole = -(-depth // extent) * extent
    if m.chance(0.6):  # the inner axis is contiguous
        strides[inner], strides[1 - inner] = 1, whole + gap
    else:
        strides[inner], strides[1 - inner] = outer + gap, 1
    start = m.rng.choice([0, 0, 3])
    highest = start + (outer - 1) * strides[1 - inner] + max(depth - 1, 0) * strides[inner]
    places = shape if not turned else shape[::-1]
    axes = (0, 1) if not turned else (1, 0)
    texts = []
    for axis, extent_ in enumerate(places):
        stride = strides[axes[axis]]
        view = view_of(axis, 2)
        texts.append(f"{_range(extent_)}{view}" + ("" if stride == 1 else f" * {m.scalar(stride)}"))
    text = " + ".join([*texts, *([m.scalar(start)] if start else [])])
    if not written and m.chance(own):
        text += f" + pid * {outer}"
        highest += (m.programs - 1) * outer
    _checked(m, parameter, storage, Place("", None, 0, highest))
    return _Tile(parameter.name, text, extent * strides[inner], shape, inner), turned


def _read(m: Maker, tile: _Tile, turned: bool, place: str, mask: str, kind: str) -> Var:
    """One tile, loaded and turned where it lies the other way round."""
    exact = HOME[kind] if m.exact and KINDS[kind].floating else None
    shape = tile.shape
    if turned:
        mask = mask and f"tl.trans({mask})"
        found = m.define(f"tl.load({place}{mask and f', mask={mask}, other=0'})", kind, shape[::-1], exact)
        return m.define(f"tl.trans({found.name})", kind, shape, exact)
    return m.define(f"tl.load({place}{mask and f', mask={mask}, other=0'})", kind, shape, exact)


def _bound(m: Maker, kind: str, terms: int, start: Exact | None) -> Exact | None:
    if not m.exact or not KINDS[kind].floating:
        return None
    home = HOME[kind]
    own = start or Exact(0.0)
    return Exact(home.bound * home.bound * terms + own.bound, min(own.lsb, 2 * home.lsb))


def product_loop(m: Maker, body: Body | None = None) -> None:
    """``for``: load two tiles, add their product to what the loop carries; sometimes with more in the loop."""
    sizes = _sizes(m)
    if sizes is None:
        return
    rows, columns, extent = sizes
    kind = m.rng.choice(["f32"] * 5 + ["f16", "bf16", "f64", "i8"])
    if m.rounded:
        kind = m.rng.choice(["f32", "f32", "f32", "f16", "bf16"])
    sums = SUMS[kind]
    trips = m.rng.choice([0, 1, 2, 2, 2, 3, 4])
    depth = trips * extent - (m.rng.randrange(extent) if trips and m.chance(0.3) else 0)
    start = m.value(sums, (rows, columns)) if m.chance(0.25) else None
    if start is not None and m.exact and start.floating:
        start = m.squash(start)
    exact = _bound(m, kind, max(depth, 1), start.exact if start is not None else None)
    if exact is not None and not exact.fits(sums):
        return
    m.feature("product loop")
    left, left_turned = _tile(m, kind, (rows, extent), 1, depth, own=0.5)
    right, right_turned = _tile(m, kind, (extent, columns), 0, depth, own=0.2)
    total = Var(m.name("c"), sums, (rows, columns), exact)
    begin = f"tl.zeros(({rows}, {columns}), {m.tl(sums)})"
    if start is not None:
        begin = f"{start.name} * 1.0" if start.floating else f"{start.name} + 0"
    m.put_node(Node([f"{total.name} = {begin}"], (total,)))
    second = None
    if m.chance(0.12):
        second = Var(m.name("c"), sums, (rows, columns), exact)
        m.put_node(Node([f"{second.name} = tl.zeros(({rows}, {columns}), {m.tl(sums)})"], (second,)))
    counter = m.name("k")
    moved = m.chance(0.4)
    places = [f"{tile.pointer} + ({tile.offsets})" for tile in (left, right)]
    pointers = [m.name("q"), m.name("q")]
    if moved:
        for pointer, place in zip(pointers, places, strict=True):
            m.put(f"{pointer} = {place}")
    limit = m.scalar(depth)
    masked = depth % extent != 0 or m.chance(0.2)
    rest = m.chance(0.25) and body is not None
    header, step = f"for {counter} in range({m.scalar(trips)}):", ""
    if m.chance(0.1):
        m.put(f"{counter} = 0 * pid")
        m.out[-1].fixed = True
        header, step = f"while {counter} < {m.scalar(trips)}:", f"{counter} += 1"
    with m.block(header):
        if rest and body is not None and m.chance(0.5):
            body(m)
        values = []
        for tile, turned, pointer, place in zip(
            (left, right), (left_turned, right_turned), pointers, places, strict=True
        ):
            at = pointer if moved else f"{place} + {counter} * {tile.step}"
            values.append(_read(m, tile, turned, at, tile.mask(counter, limit) if masked else "", kind))
        m.put(f"{total.name} = {_product(m, kind, values[0], values[1], total.name)}")
        if second is not None:
            m.put(f"{second.name} = {_product(m, kind, values[0], values[1], second.name)}")
        if rest and body is not None:
            body(m)
        if moved:
            for pointer, tile in zip(pointers, (left, right), strict=True):
                m.put(f"{pointer} += {m.scalar(tile.step)}")
        if step:
            m.out.append(Node([step], fixed=True))
    found = total
    if m.rounded:
        found = m.define(f"{total.name} * {1.0 / max(depth, 1)}", sums, total.shape)
    for _ in range(m.rng.randint(1, 3)):
        used(m, found)


def _product(m: Maker, kind: str, left: Var, right: Var, total: str) -> str:
    options = {"i8": ", out_dtype=tl.int32", "f64": ", out_dtype=tl.float64"}.get(kind, "")
    if m.rounded:  # said of every one: the same kernel in float64 has it replaced
        options = ", out_dtype=tl.float32"
    elif kind == "f32":
        options = m.rng.choice(["", ', input_precision="ieee"'])
    if m.chance(0.3):
        return f"{total} + tl.dot({left.name}, {right.name}{options})"
    return f"tl.dot({left.name}, {right.name}, {total}{options})"


def edge_product(m: Maker, *, few: bool = False) -> None:
    """A loop of products whose sums are stored with masks and seen nowhere else: tiles at the edges of matrices.

    With ``few`` one of the matrices has at most five rows or columns, and the inner axis is long.
    """
    sizes = _sizes(m)
    if sizes is None or not m.exact:
        return
    rows, columns, extent = sizes
    kind = m.rng.choice(["f32"] * 4 + ["f16", "bf16", "bf16", "f64", "i8"])
    trips, across = m.rng.choice([3, 5, 9] if few else [1, 2, 3, 5]), m.rng.choice([1, 2, 3])
    down = -(-m.programs // across)
    height = max(down * rows - m.rng.randrange(rows + 2), 1)
    width = max(across * columns - m.rng.randrange(columns + 2), 1)
    if few and m.chance(0.5):
        height = min(height, m.rng.randint(1, 5))
    elif few:
        width = min(width, m.rng.randint(1, 5))
    depth = max(trips * extent - m.rng.choice([0, 0, m.rng.randrange(extent)]), 1)
    exact = _bound(m, kind, depth, None)
    if exact is not None and not exact.fits(SUMS[kind]):
        return
    m.feature("edge product")
    tile_m, tile_n, total, counter = (m.name(stem) for stem in ("tm", "tn", "c", "k"))
    limits = [m.scalar(number) for number in (height, width, depth)]
    m.put(f"{tile_m} = (pid // {m.scalar(across)}) * {rows} + {_range(rows)}")
    m.put(f"{tile_n} = (pid % {m.scalar(across)}) * {columns} + {_range(columns)}")
    texts = []
    for index, (name, limit) in enumerate(((tile_m, limits[0]), (tile_n, limits[1]))):
        parameter, storage = _pointer(m, written=False, kind=kind)
        outer, gap = (height, width)[index], m.rng.choice([0, 0, 1, 5])
        along, apart = (1, depth + gap) if m.chance(0.5) else (outer + gap, 1)
        _checked(m, parameter, storage, Place("", None, 0, (outer - 1) * apart + (depth - 1) * along))
        wrapped = m.chance(0.4)
        place = f"({name} % {limit})" if wrapped else name
        views = ("[:, None]", "[None, :]") if index == 0 else ("[None, :]", "[:, None]")
        inner = f"({counter} * {extent} + {_range(extent)}){views[1]}"
        masks = [f"({inner} < {limits[2]})"] if depth % extent or m.chance(0.5) else []
        masks += [] if wrapped else [f"({name}{views[0]} < {limit})"]
        other = ", other=0" if m.chance(0.9) else ", other=1"
        mask = f", mask={' & '.join(masks)}{other}" if masks else ""
        at = f"{place}{views[0]} * {m.scalar(apart)} + {inner} * {m.scalar(along)}"
        texts.append(f"tl.load({parameter.name} + {at}{mask})")
    sums = SUMS[kind]
    m.put(f"{total} = tl.zeros(({rows}, {columns}), {m.tl(sums)})")
    with m.block(f"for {counter} in range({m.scalar(trips)}):"):
        left = m.define(texts[0], kind, (rows, extent), HOME[kind] if KINDS[kind].floating else None)
        right = m.define(texts[1], kind, (extent, columns), HOME[kind] if KINDS[kind].floating else None)
        m.put(f"{total} = {_product(m, kind, left, right, total)}")
    changed = m.rng.choice([total, f"-{total}", f"tl.where({total} > 0, {total}, 0)", f"tl.maximum({total}, 1)"])
    for _ in range(m.rng.choice([1, 1, 1, 2])):
        name = f"S{len(m.storages)}"
        m.storages[name] = storage = Storage(name, sums, "zero", written=True, skew=m.rng.choice([0, 0, 1]))
        _parameter(m, storage)
        target = next(one for one in m.parameters if one.storage == name)
        storage.reach(0, target.shift + rows * columns - 1)
        masks = [f"({tile_m}[:, None] < {limits[0]})", f"({tile_n}[None, :] < {limits[1]})"]
        if m.chance(0.2):
            masks.pop(m.rng.randrange(2))
        if m.chance(0.2):
            masks.append(f"({_range(rows)}[:, None] <= {m.scalar(m.rng.randrange(rows))})")
        place = f"{_range(rows)}[:, None] * {columns} + {_range(columns)}[None, :]"
        m.put(f"tl.store({target.name} + {place}, {changed}, mask={' & '.join(masks)})")


def few_rows(m: Maker) -> None:
    """A product of few rows or columns over a long inner axis, as of one token and a layer's weights."""
    edge_product(m, few=True)


def nested_products(m: Maker, body: Body) -> None:
    """Product loops within a loop, with stores between them: a persistent kernel."""
    if m.depth:
        return
    m.feature("nested products")
    with m.block(f"for {m.name('k')} in range({m.scalar(m.rng.choice([1, 2, 3]))}):"):
        product_loop(m, body)
        if m.chance(0.7):
            body(m)


# ---- what is made of sums


def used(m: Maker, var: Var) -> None:
    """Something that needs every sum of a row or a column, or another order of them."""
    choice = m.rng.choice(["centre", "centre", "from_top", "sum", "scan", "turn", "reshape", "flip", "product", "sort"])
    if not var.floating or not m.exact:
        _plain(m, var, choice)
        return
    if var.exact is not None and (var.exact.bound > 2**16 or choice == "product"):
        var = m.squash(var)
    {
        "centre": _centre,
        "from_top": _from_top,
        "sum": _sum,
        "scan": _scan,
        "turn": _turn,
        "reshape": _reshape,
        "flip": _flip,
        "product": _again,
        "sort": _sort,
    }[choice](m, var)


def _plain(m: Maker, var: Var, choice: str) -> None:
    """Of integers, which wrap, and of sums that are rounded."""
    axis = m.rng.randrange(len(var.shape))
    if choice in {"turn", "reshape", "flip"}:
        {"turn": _turn, "reshape": _reshape, "flip": _flip}[choice](m, var)
    elif var.floating or choice in {"centre", "from_top"}:
        scale = f" * {1.0 / var.shape[axis]}" if var.floating else ""
        row = m.define(f"tl.sum({var.name}, {axis}){scale}", var.kind, _rest(var, axis))
        m.define(f"{var.name} - {row.name}{_spread(var, axis)}", var.kind, var.shape)
    elif choice == "scan":
        m.define(f"tl.cumsum({var.name}, {axis})", var.kind, var.shape)
    elif choice == "sort" and var.shape[-1] > 1:
        m.define(f"tl.sort({var.name})", var.kind, var.shape)
    else:
        m.define(f"tl.max({var.name}, {axis})", var.kind, _rest(var, axis))


def _rest(var: Var, axis: int) -> tuple[int, ...]:
    return tuple(extent for place, extent in enumerate(var.shape) if place != axis)


def _spread(var: Var, axis: int) -> str:
    if len(var.shape) == 1:
        return ""
    return "[" + ", ".join("None" if place == axis else ":" for place in range(len(var.shape))) + "]"


def _fitting(m: Maker, var: Var, grown: Callable[[Exact], Exact]) -> tuple[Var, Exact] | None:
    """``var``, brought back to size where what comes of it would not be exact."""
    for tried in (var, m.squash(var)):
        assert tried.exact is not None
        if grown(tried.exact).fits(tried.kind):
            return tried, grown(tried.exact)
    return None


def _centre(m: Maker, var: Var) -> None:
    axis = m.rng.randrange(len(var.shape))
    extent = var.shape[axis]
    bits = extent.bit_length() - 1
    fitting = _fitting(m, var, lambda e: Exact(e.bound * extent, e.lsb - bits))
    if fitting is None:
        return
    var, _ = fitting
    assert var.exact is not None
    exact = var.exact
    row = m.define(
        f"tl.sum({var.name}, {axis}) * {1.0 / extent}", var.kind, _rest(var, axis), Exact(exact.bound, exact.lsb - bits)
    )
    m.define(
        f"{var.name} - {row.name}{_spread(var, axis)}", var.kind, var.shape, Exact(exact.bound * 2, exact.lsb - bits)
    )


def _from_top(m: Maker, var: Var) -> None:
    """A softmax with powers of one: what is near the largest, over the sum of all that is."""
    axis = m.rng.randrange(len(var.shape))
    assert var.exact is not None
    exact = Exact(var.exact.bound * 2, var.exact.lsb)
    if not exact.fits(var.kind):
        return
    top = m.define(f"tl.max({var.name}, {axis})", var.kind, _rest(var, axis), var.exact)
    off = m.define(f"{var.name} - {top.name}{_spread(var, axis)}", var.kind, var.shape, exact)
    near = m.define(
        f"tl.where({off.name} > -16.0, {off.name} + 16.0, 0.0)", var.kind, var.shape, Exact(16.0, exact.lsb)
    )
    all_ = Exact(16.0 * var.shape[axis], exact.lsb)
    if not all_.fits(var.kind):
        return
    total = m.define(f"tl.sum({near.name}, {axis})", var.kind, _rest(var, axis), all_)
    both = Exact(all_.bound + 16.0, exact.lsb)
    if both.fits(var.kind):
        m.define(f"{near.name} - {total.name}{_spread(var, axis)}", var.kind, var.shape, both)


def _sum(m: Maker, var: Var) -> None:
    axis = m.rng.randrange(len(var.shape))
    fitting = _fitting(m, var, lambda e: Exact(e.bound * var.shape[axis], e.lsb))
    if fitting is not None:
        m.define(f"tl.sum({fitting[0].name}, {axis})", var.kind, _rest(var, axis), fitting[1])


def _scan(m: Maker, var: Var) -> None:
    axis = m.rng.randrange(len(var.shape))
    fitting = _fitting(m, var, lambda e: Exact(e.bound * var.shape[axis], e.lsb))
    if fitting is not None:
        reverse = m.rng.choice(["", ", reverse=True"])
        m.define(f"tl.cumsum({fitting[0].name}, {axis}{reverse})", var.kind, var.shape, fitting[1])


def _turn(m: Maker, var: Var) -> None:
    if len(var.shape) == 2:
        m.define(f"tl.trans({var.name})", var.kind, var.shape[::-1], var.exact)


def _reshape(m: Maker, var: Var) -> None:
    count = var.elements
    shapes = [(count,), var.shape[::-1]] + ([(2, count // 2), (count // 4, 2, 2)] if count >= 4 else [])
    shape = m.rng.choice(shapes)
    found = m.define(f"tl.reshape({var.name}, {shape})", var.kind, shape, var.exact)
    if m.chance(0.5):
        axis = m.rng.randrange(len(shape))
        m.define(f"tl.max({found.name}, {axis})", var.kind, _rest(found, axis), var.exact)


def _flip(m: Maker, var: Var) -> None:
    if var.shape[-1] > 1:
        m.define(f"tl.flip({var.name}, {len(var.shape) - 1})", var.kind, var.shape, var.exact)


def _sort(m: Maker, var: Var) -> None:
    if var.shape[-1] > 1:
        m.define(f"tl.sort({var.name} + 0)", var.kind, var.shape, var.exact)


def _again(m: Maker, var: Var) -> None:
    """The product of the sums with a constant tile."""
    if len(var.shape) != 2 or var.exact is None or var.kind not in {"f32", "f64"}:
        return
    rows, depth = var.shape
    other = m.value(var.kind, (depth, rows))
    other = m.squash(other)
    assert other.exact is not None
    exact = Exact(var.exact.bound * other.exact.bound * depth, var.exact.lsb + other.exact.lsb)
    if rows * rows <= m.most and exact.fits(var.kind):
        options = ", out_dtype=tl.float64" if var.kind == "f64" else ""
        m.define(f"tl.dot({var.name}, {other.name}{options})", var.kind, (rows, rows), exact)


# ---- attention


def attention(m: Maker) -> None:
    """Softmax of products, summed as it goes: two products in a loop with reductions between them. Of rounded sums."""
    sizes = _sizes(m)
    if sizes is None or not m.rounded:
        return
    rows, keys, width = sizes
    if max(rows * keys, keys * width, rows * width) > m.most:
        return
    m.feature("attention")
    kind = m.rng.choice(["f32", "f32", "f16", "bf16"])
    query = m.value(kind, (rows, width))
    trips = m.rng.choice([1, 2, 2, 3])
    names = []
    for _ in range(2):
        parameter, storage = _pointer(m, written=False, kind=kind)
        _checked(m, parameter, storage, Place("", None, 0, trips * keys * width - 1))
        names.append(parameter.name)
    flat = f"{_range(keys)}[:, None] * {width} + {_range(width)}[None, :]"
    top = Var(m.name("c"), "f32", (rows,))
    total = Var(m.name("c"), "f32", (rows,))
    out = Var(m.name("c"), "f32", (rows, width))
    m.put_node(Node([f"{top.name} = tl.zeros(({rows},), tl.float32) - 8.0"], (top,)))
    m.put_node(Node([f"{total.name} = tl.zeros(({rows},), tl.float32)"], (total,)))
    m.put_node(Node([f"{out.name} = tl.zeros(({rows}, {width}), tl.float32)"], (out,)))
    counter = m.name("k")
    with m.block(f"for {counter} in range({m.scalar(trips)}):"):
        at = f" + {counter} * {keys * width}"
        key = m.define(f"tl.load({names[0]} + ({flat}){at})", kind, (keys, width))
        scores = m.define(
            f"tl.dot({query.name}, tl.trans({key.name}), out_dtype=tl.float32) * {1.0 / width}", "f32", (rows, keys)
        )
        above = m.define(f"tl.maximum({top.name}, tl.max({scores.name}, 1))", "f32", (rows,))
        powers = m.define(f"tl.exp({scores.name} - {above.name}[:, None])", "f32", (rows, keys))
        factor = m.define(f"tl.exp({top.name} - {above.name})", "f32", (rows,))
        m.put(f"{total.name} = {total.name} * {factor.name} + tl.sum({powers.name}, 1)")
        m.put(f"{out.name} = {out.name} * {factor.name}[:, None]")
        value = m.define(f"tl.load({names[1]} + ({flat}){at})", kind, (keys, width))
        m.put(f"{out.name} = tl.dot({powers.name}.to({m.tl(kind)}), {value.name}, {out.name}, out_dtype=tl.float32)")
        m.put(f"{top.name} = {above.name} + 0.0")
    found = m.define(f"{out.name} / ({total.name} + 0.5)[:, None]", "f32", (rows, width))
    used(m, found)

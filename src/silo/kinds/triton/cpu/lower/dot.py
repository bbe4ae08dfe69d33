"""Lowers ``tt.dot`` and ``tt.dot_scaled``: to calls of the runtime's blocked product, or to plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from silo.kinds.triton.cpu.analysis.used_elements import seen_masks
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar, load_parts, loaded_by, scalar_source
from silo.kinds.triton.cpu.loop_ir import Assign, Break, Define, For, Forever, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.forms import AffineForms, view_axes
from silo.kinds.triton.cpu.lower.group import lower_group
from silo.kinds.triton.cpu.lower.index import linear_index
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.lower.packed_tiles import Panels, keep_panels, slots_of
from silo.kinds.triton.cpu.runtime import DOT_DEPTH_BYTES
from silo.kinds.triton.cpu.schedule.block_schedule import DotStep, NestGroup
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.c_types import C_TYPES, HALVES
from silo.kinds.triton.front.ssa import Operation, Type, Value

__all__ = ["is_pair_along_depth", "leading_products", "lower_dot", "scaled_operand"]

# ---- Expands a factor of ``tt.dot_scaled`` to f32: each element times its scale, which is exact within f32's range
# ----

# members of Triton's ScaleDotElemType: E2M1 packs two elements in a byte; with FP16, a scale whose byte is 0 means 0
# instead of 2^-127
_E2M1, _FP16 = 4, 6


def is_pair_along_depth(operation: Operation, side: int) -> bool:
    """Whether each byte of the operand holds two elements that are neighbours along the inner axis (the depth)."""
    return _format(operation, side) == _E2M1 and bool(operation.attributes["rhs_k_pack" if side else "lhs_k_pack"])


def scaled_operand(scope: LoweringScope, operation: Operation, side: int) -> tuple[LoopBuffer, tuple[int, ...]]:
    """A buffer with the scaled elements of the left (0) or right (1) operand, and its shape."""
    scope.pieces.add("dot_scale")
    value = operation.operands[side]
    packed = _format(operation, side) == _E2M1
    depth_axis = len(value.type.shape) - (2 if side else 1)
    pair_axis = depth_axis if is_pair_along_depth(operation, side) else 2 * len(value.type.shape) - 3 - depth_axis
    shape = tuple(
        extent * 2 if packed and axis == pair_axis else extent for axis, extent in enumerate(value.type.shape)
    )
    target = scope.new_buffer(Type("f32", shape, tensor=True, pointer=False))
    scope.lifetimes.touch(target)
    index = tuple(scope.name("i") for _ in shape)
    body: list[Statement] = []
    text = _element(scope, value, index, pair_axis if packed else None)
    scale = _scale_of(operation, side)
    if scale is not None:
        group = shape[depth_axis] // scale.type.shape[-1]
        outer = index[depth_axis - 1] if side == 0 else index[depth_axis + 1]
        coordinates = (*index[:-2], outer, f"({index[depth_axis]} / {group})")
        name = scope.name("t")
        body.append(Define("float", name, _scale(scope, operation, scale, coordinates)))
        text = f"{text} * {name}"
    body.append(Assign(f"{target.name}[{linear_index(index, shape)}]", text))
    for number, (name, extent) in enumerate(zip(reversed(index), reversed(shape), strict=True)):
        body = [For(name, "0", str(extent), body, simd=number == 0 and not scope.reference)]
    scope.emit(body[0])
    return target, shape


def _format(operation: Operation, side: int) -> int:
    code = operation.attributes["b_elem_type" if side else "a_elem_type"]
    assert isinstance(code, int)
    return code


def _scale_of(operation: Operation, side: int) -> Value | None:
    segment = operation.operand_segments()[3 + side]
    return segment[0] if segment else None


def _element(scope: LoweringScope, value: Value, index: tuple[str, ...], pair_axis: int | None) -> str:
    buffer = _buffer(scope, value)
    if pair_axis is None:
        element = value.type.element
        scope.pieces.add(f"dot_read_{element}")
        return f"silo_{element}_to_f32({buffer.name}[{linear_index(index, value.type.shape)}])"
    coordinates = tuple(f"({name} / 2)" if axis == pair_axis else name for axis, name in enumerate(index))
    byte = f"{buffer.name}[{linear_index(coordinates, value.type.shape)}]"
    return f"silo_e2m1_to_f32((uint32_t)(uint8_t){byte} >> ((uint32_t){index[pair_axis]} % 2 * 4))"


def _scale(scope: LoweringScope, operation: Operation, scale: Value, index: tuple[str, ...]) -> str:
    buffer = _buffer(scope, scale)
    text = f"{buffer.name}[{linear_index(index, scale.type.shape)}]"
    element = scale.type.element
    if element != "i8":
        scope.pieces.add(f"dot_read_{element}")
        return f"silo_{element}_to_f32({text})"
    minimum = "0u" if _FP16 in (_format(operation, 0), _format(operation, 1)) else "0x00400000u"
    return f"silo_e8m0_to_f32((uint8_t){text}, {minimum})"


def _buffer(scope: LoweringScope, value: Value) -> LoopBuffer:
    buffer = scope.buffer(value)
    assert buffer is not None, "the scheduler stores the operands of a dot"
    scope.lifetimes.touch(buffer)
    return buffer


# ---- Lowers ``tt.dot``: to a call of the runtime's blocked product, or to plain loops in reference mode ----

# The sizes (vectors, rows) of accumulator blocks that fit the registers, for each vector width, widest first.
_BLOCKS = {128: ((2, 4), (1, 8)), 256: ((2, 6), (1, 8)), 512: ((4, 6), (2, 8), (1, 16))}
_WIDE = {"f64": "f64", "i8": "i8"}  # types whose elements are multiplied in the type itself; all other types use f32
_ITEM_BYTES = {"f64": 8}
# types that have a function for products of few rows, which sums along the depth
_THIN = frozenset({"f32", "bf16", "f16"})
_DIRECT = frozenset({"f32", "f64"})  # types that are multiplied without conversion
_MOST_ROWS = 16  # the most rows of an accumulator block
# The fewest multiplications of an f16 product by matrix tiles: preparing the tiles takes as long as some thousands of
# multiplications.
_LEAST_PARTS = 1 << 15
# For each type that is multiplied in words of several elements: the CPU features for matrix tiles and for vectors (""
# for none), and the number of elements in a word.
_PACKED = {
    "bf16": ("SILO_UNIT_TILE_BF16", "SILO_UNIT_BF16", 2),
    "f16": ("SILO_UNIT_TILE_BF16", "", 2),
    "i8": ("SILO_UNIT_TILE_I8", "SILO_UNIT_VNNI", 4),
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an operand lies: a pointer to its first element, and the distance of neighbours along each axis."""

    pointer: str
    strides: tuple[str, ...]
    element: str
    copy: str = ""  # the buffer that the pointer refers to if masks exclude a part of the tile; "" if there is none

    def tile(self, batch: str) -> str:
        """The last two axes as the runtime's ``silo_tile``; of three axes, ``batch`` is the index along the first."""
        at = self.pointer if len(self.strides) == 2 else f"{self.pointer} + {batch} * {self.strides[0]}"
        return f"(silo_tile){{{at}, {self.strides[-2]}, {self.strides[-1]}}}"


@dataclass(frozen=True, slots=True)
class _Shape:
    """The variant of the product that one C function computes."""

    kind: str
    left: str
    right: str
    rows: int
    columns: int
    lanes: int
    packed: str
    fresh: bool
    part: bool  # whether a call passes the numbers of used rows and columns
    either: bool = False  # whether the left operand may be packed instead of the right one
    turned: bool = False  # whether the operands are exchanged


def lower_dot(scope: LoweringScope, step: DotStep) -> None:
    """Emits ``target += left @ right``. The sums of an f16 result are kept in f32 and rounded once."""
    operation = step.operation
    result = operation.result
    if step.target is not result:
        scope.same[result] = step.target
    target = scope.buffer_for(step.target)
    places = [_place(scope, step, side) for side in (0, 1)]
    sums, element = target, result.type.element
    if element in HALVES:
        sums = scope.new_buffer(result.type, "f32")
        if not step.fresh:
            _convert(scope, target, element, sums, "f32")
    scope.lifetimes.touch(sums)
    depth = _depth(operation)
    rank = len(result.type.shape)
    batches = result.type.shape[0] if rank == 3 else 1
    batch = scope.name("i") if rank == 3 else "0"
    size = result.type.elements // batches
    with scope.collecting() as body:
        into = f"{sums.name} + {batch} * {size}" if rank == 3 else sums.name
        if scope.reference:
            _plain(scope, result.type, depth, places, batch, sums, fresh=step.fresh)
        else:
            seen_part = scope.parts.get(operation)
            panels = _slots(scope, step, depth, places)
            _call(
                scope,
                result.type,
                depth,
                str(depth),
                places,
                batch,
                into,
                fresh=step.fresh,
                kept_panels=panels,
                seen=seen_part,
            )
    if rank == 3:
        scope.emit(For(batch, "0", str(batches), body))
    else:
        for statement in body:
            scope.emit(statement)
    if element in HALVES:
        _convert(scope, sums, "f32", target, element)
    scope.lifetimes.touch(target)


def leading_products(
    scope: LoweringScope,
    step: DotStep,
    loop: tuple[str, str, str],
    scalars: Callable[[], None],
    advance: Callable[[], None],
) -> None:
    """Emits the leading iterations of a loop as one product, if their tiles are adjacent along the inner axis.

    ``scalars`` emits the scalar steps of the body, and ``advance`` updates the loop's carried values. The tiles that
    the iterations read are compared one by one at run time, without assumptions about how they move. ``loop`` holds the
    counter, its end and its step. The counter stops at the first iteration that is not part of the product.
    """
    counter, end, stride = loop
    operation = step.operation
    left, right = operation.operands[:2]
    depth = left.type.shape[-1]
    target = scope.buffer_for(step.target)
    loop_operation = _round(operation)
    seen_part = _seen(scope, step, loop_operation)
    seen_extents = None if seen_part is None else seen_part.extents
    if seen_part is not None:
        scope.parts[operation] = seen_part.extents
        if seen_part.nothing and not _has_other_results(loop_operation, step.target):
            scope.emit(If(seen_part.nothing, [Assign(counter, end)]))
    length = scope.name("length")
    scope.emit(Define("int64_t", length, "0", mutable=True))
    starts: list[_Place] = []
    for value in (left, right):
        ctype = C_TYPES[value.type.element]
        names = scope.name("tile"), scope.name("row"), scope.name("column")
        scope.emit(Define(f"{ctype} const *", names[0], "0", mutable=True))
        scope.emit(Define("int64_t", names[1], "0", mutable=True))
        scope.emit(Define("int64_t", names[2], "0", mutable=True))
        starts.append(_Place(names[0], names[1:], value.type.element))
    with scope.collecting() as body:
        scope.emit(If(f"{counter} >= {end}", [Break()]))
        scalars()
        first: list[Statement] = []
        same: list[str] = []
        parts: list[str] = []
        for side, (value, start) in enumerate(zip((left, right), starts, strict=True)):
            axis = 1 - side  # the axis of the operand along which products are summed
            extents = {} if seen_extents is None else {side: seen_extents[side]}
            forms, base, strides = _forms(scope, value, extents, axis if _is_zero_beyond(value) else None)
            scope.emit(If(f"!({' && '.join(dict.fromkeys(forms.guards)) or '1'})", [Break()]))
            tile, part = scope.name("tile"), str(depth)
            scope.emit(Define(f"{C_TYPES[value.type.element]} const *", tile, base, mutable=True))
            first.append(Assign(start.pointer, tile))
            for name, stride_text in zip(start.strides, strides, strict=True):
                first.append(Assign(name, stride_text))
                same.append(f"{name} == {stride_text}")
            same.append(f"{tile} == {start.pointer} + {length} * {start.strides[axis]}")
            for count in dict.fromkeys(forms.counts):
                part = f"nest_part({count}, {part})"
            parts.append(scope.name("part"))
            scope.emit(Define("int64_t", parts[-1], part))
        # The variables ``parts`` hold, for both tiles, the depth beyond which all elements are zero. Products of zeros
        # add nothing, so the sums can end there if both depths are equal.
        scope.emit(If(f"{parts[0]} != {parts[1]} || {parts[0]} == 0", [Break()]))
        scope.emit(If(f"{length} == 0", first, [If(f"!({' && '.join(same)})", [Break()])]))
        scope.emit(Assign(length, f"{length} + {parts[0]}"))
        advance()
        scope.emit(Assign(counter, f"{counter} + {stride}"))
        scope.emit(If(f"{parts[0]} < {depth}", [Break()]))
    scope.emit(Forever(body))
    scope.lifetimes.touch(target)
    with scope.collecting() as product:
        panels = keep_panels(scope, left, right, operation.result.type)
        _call(
            scope,
            operation.result.type,
            depth,
            length,
            starts,
            "0",
            target.name,
            fresh=_begins_at_zero(loop_operation, step.target),
            kept_panels=panels,
            seen=seen_extents,
        )
    scope.emit(If(f"{length} > 0", product))


def _begins_at_zero(loop: Operation, sums: Value) -> bool:
    """Whether all elements of ``sums``, an argument of the loop's body, are zero before the loop."""
    source = scalar_source(loop.operands[2 + sums.index])
    return source is not None and constant_scalar(source) == 0


def _round(operation: Operation) -> Operation:
    """The loop whose body holds ``operation``."""
    assert operation.block is not None
    assert operation.block.region is not None
    assert operation.block.region.owner is not None
    return operation.block.region.owner


def _is_zero_beyond(value: Value) -> bool:
    """Whether masked-off elements of a loaded tile are zeros."""
    load = loaded_by(value)
    assert load is not None, "the scheduler looked for the load"
    _, _, other = load_parts(load)
    return other is None or constant_scalar(other) == 0


@dataclass(frozen=True, slots=True)
class _SeenPart:
    """C names of the numbers of leading rows and columns of the accumulator that are used, each at least 1.

    ``nothing`` is the C condition under which no element is used, "" if it cannot be written.
    """

    extents: tuple[str, str]
    nothing: str


def _has_other_results(loop: Operation, sums: Value) -> bool:
    """Whether a value that ``loop`` carries, other than ``sums`` (an argument of its body), is used after the loop."""
    return any(result.uses for result in loop.results if result.index != sums.index - 1)


def _seen(scope: LoweringScope, step: DotStep, loop: Operation) -> _SeenPart | None:
    """The part of a loop's accumulator that stores use; None if all of it may be used."""
    result = step.operation.result
    masks = seen_masks(result, loop)
    extents: list[list[str]] = []
    unseen: list[str] = []
    for mask in masks:
        bounds: list[str] = []
        empty: list[str] = []
        for axis, extent in enumerate(result.type.shape):
            nest = Nest(scope, result.type.shape)
            forms = AffineForms(scope, nest, counted=axis)
            if not forms.guard_mask(mask, (0, 1)):
                return None
            for statement in nest.levels[0]:
                scope.emit(statement)
            text = str(extent)
            for count in dict.fromkeys(forms.counts):
                text = f"nest_seen({count}, {text})"
                empty.append(f"nest_none({count}, {extent})")
            bounds.append(text)
        extents.append(bounds)
        unseen.append(f"({' || '.join(empty)})" if empty else "")
    if not extents or all(text.isdigit() for bounds in extents for text in bounds):
        return None
    names = scope.name("rows"), scope.name("columns")
    for axis, name in enumerate(names):
        scope.emit(Define("int64_t", name, extents[0][axis], mutable=True))
        for bounds in extents[1:]:
            scope.emit(Assign(name, bounds[axis], f"{name} < {bounds[axis]}"))
    return _SeenPart(names, " && ".join(unseen) if all(unseen) else "")


def _depth(operation: Operation) -> int:
    """The extent of the axis along which a dot sums products."""
    pairs = operation.name == tt.DOT_SCALED and is_pair_along_depth(operation, 0)
    return operation.operands[0].type.shape[-1] * (2 if pairs else 1)


# ---- operands


def _forms(
    scope: LoweringScope, value: Value, extents: Mapping[int, str] | None = None, counted: int | None = None
) -> tuple[AffineForms, str, tuple[str, ...]]:
    """Emits the code for the base and the strides of the tile that ``value`` is loaded from, and returns their C texts.

    The first result also holds the conditions under which base and strides are right.
    """
    load = loaded_by(value)
    assert load is not None, "the scheduler looked for the load"
    nest = Nest(scope, value.type.shape)
    forms = AffineForms(scope, nest, wrapped=True, extents=extents, counted=counted)
    axes = tuple(range(len(value.type.shape)))
    view = value.owner
    while view is not None and view is not load:
        axes = view_axes(view, axes)
        view = view.operands[0].owner
    pointer, mask, _ = load_parts(load)
    base, strides = forms.of(pointer, axes)
    is_guarded = forms.guard_mask(mask, axes)
    assert is_guarded, "the scheduler looked at the mask"
    for statement in nest.levels[0]:
        scope.emit(statement)
    return forms, base, tuple(f"({strides.get(axis, '0')})" for axis in range(len(value.type.shape)))


def _place(scope: LoweringScope, step: DotStep, side: int) -> _Place:
    """Where an operand lies: in the kernel's argument if it can be read there, else in a buffer."""
    value = step.operation.operands[side]
    copy = step.right if side else step.left
    if step.operation.name == tt.DOT_SCALED:
        buffer, shape = scaled_operand(scope, step.operation, side)
        return _Place(buffer.name, _compact(shape), "f32")
    if copy is not None and not scope.reference:
        return _in_place(scope, copy, value)
    buffer = scope.buffer(value)
    assert buffer is not None
    scope.lifetimes.touch(buffer)
    return _Place(buffer.name, _compact(value.type.shape), value.type.element)


def _compact(shape: tuple[int, ...]) -> tuple[str, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(map(str, strides))


def _in_place(scope: LoweringScope, copy: NestGroup, value: Value) -> _Place:
    """An operand that is read in place at run time if all of it may be read, and copied to a buffer otherwise."""
    forms, base, strides = _forms(scope, value)
    buffer = scope.buffer_for(value)
    scope.lifetimes.touch(buffer)
    tile = scope.name("tile")
    names = tuple(scope.name("stride") for _ in strides)
    scope.emit(Define(f"{buffer.ctype} const *", tile, buffer.name, mutable=True))
    for name, stride in zip(names, _compact(value.type.shape), strict=True):
        scope.emit(Define("int64_t", name, stride, mutable=True))
    with scope.collecting() as copying:
        lower_group(scope, copy)
    _spare_tails(copying)
    statements: list[Statement] = [Assign(tile, base), *(Assign(n, s) for n, s in zip(names, strides, strict=True))]
    scope.emit(If(" && ".join(dict.fromkeys(forms.guards)) or "1", statements, copying))
    return _Place(tile, names, value.type.element, buffer.name)


def _spare_tails(statements: list[Statement]) -> None:
    """Keeps the C compiler from vectorising the loops over masked-off row ends.

    Such loops have few elements, and vectors would take the C compiler long.
    """
    for statement in statements:
        if isinstance(statement, For):
            statement.simd = statement.simd and statement.start == "0"
            _spare_tails(statement.body)
        elif isinstance(statement, If):
            _spare_tails([*statement.then, *statement.otherwise])


def _convert(scope: LoweringScope, source: LoopBuffer, before: str, target: LoopBuffer, after: str) -> None:
    index = scope.name("i")
    scope.pieces.add("half")
    scope.lifetimes.touch(source)
    scope.lifetimes.touch(target)
    body = [Assign(f"{target.name}[{index}]", f"silo_{before}_to_{after}({source.name}[{index}])")]
    scope.emit(For(index, "0", str(source.elements), [*body], simd=not scope.reference))


# ---- reference mode


def _plain(
    scope: LoweringScope, result: Type, depth: int, places: list[_Place], batch: str, sums: LoopBuffer, *, fresh: bool
) -> None:
    rows, columns = result.shape[-2:]
    i, j, k = scope.name("i"), scope.name("i"), scope.name("i")
    element = f"{sums.name}[{linear_index((batch, i, j), (1, rows, columns))}]"
    total = scope.name("sum")
    texts: list[str] = []
    for operand, (row, column) in zip(places, ((i, k), (k, j)), strict=True):
        index = [*([batch] if len(operand.strides) == 3 else []), row, column]
        offset = " + ".join(f"{name} * {stride}" for name, stride in zip(index, operand.strides, strict=True))
        texts.append(_number(scope, f"{operand.pointer}[{offset}]", operand.element, sums.ctype))
    left, right = texts
    if sums.ctype == "int32_t":
        product = f"(int32_t)((uint32_t){total} + (uint32_t)({left} * {right}))"
    else:
        product = f"{total} + {left} * {right}"
    inner = For(k, "0", str(depth), [Assign(total, product)])
    start = "0" if fresh else element
    cell = For(j, "0", str(columns), [Define(sums.ctype, total, start, mutable=True), inner, Assign(element, total)])
    scope.emit(For(i, "0", str(rows), [cell]))


def _number(scope: LoweringScope, text: str, element: str, ctype: str) -> str:
    if C_TYPES[element] == ctype or element == "i8":
        return f"({ctype}){text}"
    scope.pieces.add(f"dot_read_{element}")
    return f"silo_{element}_to_f32({text})"


# ---- blocked


def _call(
    scope: LoweringScope,
    result: Type,
    depth: int,
    length: str,
    places: list[_Place],
    batch: str,
    into: str,
    *,
    fresh: bool = False,
    kept_panels: Panels | None = None,
    seen: tuple[str, str] | None = None,
) -> None:
    """Emits one product of depth ``length`` into the accumulator at ``into``; ``seen`` limits its rows and columns."""
    left, right = places
    rows, columns = result.shape[-2:]
    kind = _WIDE.get(left.element, "f32")
    item = _ITEM_BYTES.get(kind, 4)
    real = "double" if kind == "f64" else "float"
    lanes = scope.options.vector_bits // 8 // item
    width = max(columns, lanes)
    packed = (
        left.element if left.element == right.element and _may_pack(scope, left.element, (rows, columns, depth)) else ""
    )
    in_place = left.element in _DIRECT
    pair = kept_panels.pair if kept_panels else ""
    longest = max(rows, columns) if pair else rows
    filled = max(longest, 16) * 2 if packed else _MOST_ROWS if in_place else longest
    lead = None if in_place and seen is None and not pair else _work(scope, real, filled * DOT_DEPTH_BYTES, item)
    parts = 2 if packed == "f16" else 1
    panels = kept_panels.buffer if kept_panels else _work(scope, real, width * DOT_DEPTH_BYTES * parts, item)
    scope.lifetimes.touch(panels)
    sums = into
    total = "int32_t" if kind == "i8" else real
    if columns < lanes:
        sums = _pad(scope, rows, columns, lanes, total, into, fresh=fresh)
    shape = _Shape(kind, left.element, right.element, rows, columns, lanes, packed, fresh, seen is not None, bool(pair))
    tail = [kept_panels.kept if kept_panels else "0", str(kept_panels.room if kept_panels else 0), *(seen or ())]
    if pair:
        tail += [pair, _work(scope, total, rows * columns * item, item).name]
    work = [lead.name if lead else "0", kept_panels.place if kept_panels else panels.name]
    arguments = [length, left.tile(batch), right.tile(batch), sums, *work, *tail]
    scope.emit(LoopCall(f"{_product(scope, shape, real, total)}({', '.join(arguments)})"))
    if sums != into:
        _unpad(scope, rows, columns, lanes, sums, into)


def _slots(scope: LoweringScope, step: DotStep, depth: int, places: list[_Place]) -> Panels | None:
    """Slots for packed panels of a right operand that is read in place; None if no panel would be reused."""
    left, right = places
    if not right.copy:
        return None
    sizes = (*step.operation.result.type.shape, depth)
    packed = left.element if left.element == right.element and _may_pack(scope, left.element, sizes) else ""
    copied = f"{right.pointer} == {right.copy}"
    # If the operand is multiplied without conversion, contiguous rows need no packing: they already are vectors.
    unless = f"{right.strides[-1]} == 1" if right.element in _DIRECT else ""
    share, parts = {"bf16": (2, 1), "f16": (2, 2)}.get(packed, (1, 1))
    return slots_of(scope, step.operation, right.tile("0"), copied, (share, parts), unless)


def _product(scope: LoweringScope, shape: _Shape, real: str, total: str) -> str:
    """The name of the C function for products of one shape and type; the function is emitted at its first use."""
    kind, left, right, packed = shape.kind, shape.left, shape.right, shape.packed
    name = f"silo_product_{left}_{right}_{shape.rows}x{shape.columns}" + ("_packed" if packed else "")
    name += ("_fresh" if shape.fresh else "") + ("_part" if shape.part else "") + ("_either" if shape.either else "")
    name += "_turned" if shape.turned and packed == "f16" else ""
    width = max(shape.columns, shape.lanes)
    sizes = [str(shape.rows), "m" if shape.part else str(shape.rows), str(width)]
    sizes += ["n" if shape.part else str(shape.columns), "k"]
    before = str(int(shape.fresh))
    body = ""
    if packed != "bf16":
        scope.pieces |= {f"dot_{kind}", f"dot_read_{left}", f"dot_read_{right}"}
        reader = "0" if left in _DIRECT else f"silo_dot_left_{left}"
        blocks = _blocks(scope, kind, shape.rows, width // shape.lanes, narrow=shape.part)
        near = str(int(right in _DIRECT))
        tail = ["left", "right", "kept", "room"]
        general = [*sizes, "a", reader, "b", f"silo_dot_right_{right}", near, "c", before, *blocks, *tail]
        body = f"  silo_dot_{kind}({', '.join(general)});\n"
    if packed:
        scope.pieces.add("dot_two" if packed == "f16" else f"dot_packed_{packed}")
        tiles, vectors, _ = _PACKED[packed]
        units = [f"units & {tiles}", f"units & {vectors}"] if vectors else [str(int(shape.turned))]
        words = ["(uint32_t *)left", "(uint32_t *)right", "kept", "room"]
        special = [*units, *sizes, "a", "b", "c", before, *words]
        call = f"silo_dot_{'two' if packed == 'f16' else f'packed_{packed}'}({', '.join(special)});\n"
        either = f"({tiles} | {vectors})" if vectors else tiles
        test = f"  if (units & {either}) {{\n    {call}    return;\n  }}\n" if body else f"  {call}"
        body = f"  const int units = silo_units();\n{test}{body}"
    head = f"static __attribute__((noinline)) void {name}(int64_t k, silo_tile a, silo_tile b, {total} *c,"
    part = ", int64_t m, int64_t n" if shape.part else ""
    thin = _thin(scope, shape)
    if shape.either:
        part += f", silo_pair *pair, {total} *turned"
        body = _packing_left(scope, shape, real, total) + body
    text = f"{head} {real} *left, {real} *right, silo_kept *kept, int64_t room{part}) {{\n{thin}{body}}}"
    if text not in scope.constants:
        scope.constants.append(text)
    return name


def _thin(scope: LoweringScope, shape: _Shape) -> str:
    """The first lines of a product's C function, which compute a product of few rows or columns by ``silo_dot_thin``.

    Returns "" for types without that function, and if launches may split a program by rows: a part of a program may
    have few rows where the program has many, but results must not depend on the number of parts.
    """
    if not shape.part or shape.left != shape.right or shape.left not in _THIN or scope.options.row_parts:
        return ""
    scope.pieces.add(f"dot_thin_{shape.left}")
    width = max(shape.columns, shape.lanes)
    return f"  if (silo_dot_thin_{shape.left}(m, n, k, a, b, c, {width}, {int(shape.fresh)})) return;\n"


def _packing_left(scope: LoweringScope, shape: _Shape, real: str, total: str) -> str:
    """The first lines of a product's C function: they compute b^T a^T instead if the left operand should be packed.

    At run time ``silo_packs_left`` (``runtime/dot_tile.h``) chooses the operand that the next program reads again.
    """
    m, n = ("m", "n") if shape.part else (str(shape.rows), str(shape.columns))
    turned = replace(
        shape,
        left=shape.right,
        right=shape.left,
        rows=shape.columns,
        columns=shape.rows,
        part=True,
        either=False,
        turned=True,
    )
    product = _product(scope, turned, real, total)
    tiles = "(silo_tile){b.at, b.column, b.row}, (silo_tile){a.at, a.column, a.row}"
    sums = "" if shape.fresh else f"    silo_turn_sums(c, {m}, {n}, {shape.columns}, turned, {shape.rows});\n"
    return (
        f"  if (silo_packs_left(pair, kept, a, b, k, {m}, {n})) {{\n"
        f"{sums}"
        f"    {product}(k, {tiles}, turned, left, right, kept, room, {n}, {m});\n"
        f"    silo_turn_sums(turned, {n}, {m}, {shape.rows}, c, {shape.columns});\n"
        "    return;\n  }\n"
    )


def _may_pack(scope: LoweringScope, element: str, sizes: tuple[int, ...]) -> bool:
    """Whether elements may be multiplied in packed words of several elements.

    Packed words need instructions that the CPU may have beyond its CPU level; for bf16 the instructions of the level
    suffice. Words of f16 need matrix tiles, and are worth it in products that are not small. ``sizes`` are the numbers
    of rows and columns and the depth.
    """
    if scope.options.vector_bits != 512 or element not in _PACKED or sizes[-1] % _PACKED[element][2]:
        return False
    if element == "f16":
        return scope.options.dot_units > 1 and math.prod(sizes) >= _LEAST_PARTS
    return element == "bf16" or scope.options.dot_units > 0


def _blocks(scope: LoweringScope, kind: str, rows: int, vectors: int, *, narrow: bool) -> list[str]:
    """Emits functions that multiply one register block: a full block, the remaining rows, and the remaining columns.

    A block of the remaining columns has one vector per row if ``narrow``. Each function is emitted once. Returns C
    texts: the function for full blocks, the rows of a full block, the function for the remaining rows, the vectors of a
    full block, and the function for the remaining columns.
    """
    options = scope.options
    blocks = _BLOCKS[options.vector_bits]
    usual = next(block for block in blocks if vectors % block[0] == 0)
    wide = min(options.dot_vectors or usual[0], vectors)
    while vectors % wide:
        wide -= 1
    high = min(options.dot_rows or dict(_BLOCKS[options.vector_bits]).get(wide, usual[1]), rows)
    remainder = rows % high or high
    shapes = ((high, wide), (remainder, wide), (high, 1 if narrow else wide))
    for height, width in shapes:
        text = f"SILO_DOT_KERNEL_{kind}({height}, {width})"
        if text not in scope.constants:
            scope.constants.append(text)
    full, left, single = (f"silo_dot_{kind}_{height}x{width}" for height, width in shapes)
    return [full, str(high), left, str(wide), single]


def _work(scope: LoweringScope, ctype: str, size: int, item: int) -> LoopBuffer:
    buffer = LoopBuffer(scope.name("b"), ctype, size // item, item)
    scope.lifetimes.touch(buffer)
    return buffer


def _pad(scope: LoweringScope, rows: int, columns: int, lanes: int, ctype: str, into: str, *, fresh: bool) -> str:
    """The name of a copy of the accumulator whose rows are padded to whole vectors."""
    item = 8 if ctype == "double" else 4
    buffer = _work(scope, ctype, rows * lanes * item, item)
    if not fresh:
        i, j = scope.name("i"), scope.name("i")
        copy = Assign(f"{buffer.name}[{i} * {lanes} + {j}]", f"({into})[{i} * {columns} + {j}]")
        scope.emit(For(i, "0", str(rows), [For(j, "0", str(columns), [copy])]))
    return buffer.name


def _unpad(scope: LoweringScope, rows: int, columns: int, lanes: int, sums: str, into: str) -> None:
    i, j = scope.name("i"), scope.name("i")
    copy = Assign(f"({into})[{i} * {columns} + {j}]", f"{sums}[{i} * {lanes} + {j}]")
    scope.emit(For(i, "0", str(rows), [For(j, "0", str(columns), [copy])]))

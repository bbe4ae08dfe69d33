"""Runs nests that read transposed tiles in parts of 16 x 16 elements.

Transposing a whole tile and then running the nest that uses it waits for memory twice: for the cache lines of the
tile's rows, and then for the nest's reads and writes. Here the nest goes through parts of the tile instead. The lines
of a part are transposed in registers and used at once, and each row of a part has load instructions of its own, so that
the CPU can predict each row's next line.

Masks may cut the tile at its last rows and columns. The parts at this edge copy the elements that are left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.affine import is_index_only
from silo.kinds.triton.cpu.analysis.value_properties import load_parts, store_parts
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopCall, Statement
from silo.kinds.triton.cpu.lower.group import lower_group
from silo.kinds.triton.cpu.lower.index import Index
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.lower.nest_loops import limited
from silo.kinds.triton.cpu.lower.overlap import safe_to_fuse
from silo.kinds.triton.cpu.lower.streaming import streaming_of
from silo.kinds.triton.cpu.schedule.block_schedule import BufferFill, NestGroup
from silo.kinds.triton.front.operations.cpu.c_types import element_bytes
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = ["lower_transposes"]

_PART = 16  # rows of a part, and elements of each row: one cache line of four-byte elements
_ELEMENT_BYTES = 4
_WORD = re.compile(r"[A-Za-z_]\w*")


def lower_transposes(scope: LoweringScope, turned: list[NestGroup], group: NestGroup) -> None:
    """Emits ``group`` and the nests ``turned``, which transpose tiles that only ``group`` uses."""
    parts = _parts(scope, turned, group)
    if parts is None:
        for nest_group in [*turned, group]:
            lower_group(scope, nest_group)
        return
    with scope.collecting() as statements:
        for nest_group in [*turned, group]:
            lower_group(scope, nest_group)
    conditions = parts.check(scope)
    if group.checks:
        conditions.append(f"({safe_to_fuse(scope, group)})")
    if not conditions:
        for statement in parts.loops(scope):
            scope.emit(statement)
        return
    scope.emit(If(" && ".join(conditions), parts.loops(scope), statements))


class _PartNest(Nest):
    """A nest that reads the elements of transposed tiles from arrays that hold one part."""

    def __init__(self, scope: LoweringScope, group: NestGroup, tiles: dict[Value, str]) -> None:
        super().__init__(scope, group.shape, inner=group.inner)
        self.tiles = tiles
        self.first: Index = tuple(scope.name("first") for _ in group.shape)  # the indices at which a part begins

    def _evaluate(self, value: Value, index: Index) -> str:
        tile = self.tiles.get(value)
        if tile is None or index != self.index:
            return super()._evaluate(value, index)
        row, column = (f"({self.index[axis]} - {self.first[axis]})" for axis in self.axes)
        return self.put(ops.c_type(value.type), f"{tile}[{row} * {_PART} + {column}]", self.depth)


@dataclass(frozen=True, slots=True)
class _Source:
    """A tile in memory: its nest, the C name of a row's address, and the name of the array that holds one part of it.

    ``mask`` is the mask of the tile's load if no other mask limits the nest, else None.
    """

    nest: Nest
    ctype: str
    start: str
    tile: str
    mask: Value | None


@dataclass(frozen=True, slots=True)
class _Edge:
    """The edge of a nest whose masks keep leading rows and columns.

    ``rows`` and ``columns`` are the C names of the numbers of these rows and columns. ``fits`` is the C condition that
    no element of a row after the kept ones has a true mask.
    """

    rows: str
    columns: str
    fits: str


@dataclass(frozen=True, slots=True)
class _Parts:
    """A nest that is done in parts. Without an ``edge``, no mask may exclude an element of the tile."""

    nest: _PartNest
    sources: list[_Source]
    effects: list[Statement]
    unless: str  # the C condition under which the nest is faster as a whole; "" for never
    edge: _Edge | None

    def check(self, scope: LoweringScope) -> list[str]:
        """Emits the code before the first part; returns the C conditions under which the nest may run in parts."""
        conditions: list[str] = []
        own = self.nest
        for nest, mask in [*((source.nest, source.mask) for source in self.sources), (own, None)]:
            for statement in nest.levels[0]:
                scope.emit(statement)
            limits, extent = nest.limit_statements()
            # A tile needs no condition of its own if no mask cuts the tile, or if the tile's mask is true wherever the
            # masks of the nest that uses it are true.
            if not limits or (mask is not None and own.holds(mask, own.index)):
                continue
            if nest is own and self.edge is not None:
                conditions.append(self._look_for_edge(scope, self.edge))
                continue
            limit, whole = scope.name("limit"), scope.name("whole")
            look = limited(limit, str(extent), limits)
            if nest.level(*(name for text in limits for name in _WORD.findall(text))) == 0:
                for statement in look:
                    scope.emit(statement)
                conditions.append(f"{limit} == {extent}")
                continue
            scope.emit(Define("int32_t", whole, "1", mutable=True))
            (row, rows), *_ = nest.loops_over
            look = [*nest.levels[1], *look, Assign(whole, f"{whole} & ({limit} == {extent})")]
            scope.emit(For(row, "0", str(rows), look, ctype=nest.ctype))
            conditions.append(whole)
        if self.unless:
            conditions.append(f"!({self.unless})")
        return conditions

    def _look_for_edge(self, scope: LoweringScope, edge: _Edge) -> str:
        """Emits a loop over the rows that counts the rows and columns that the masks keep.

        Returns the C condition that the kept rows are the leading ones, all with equally many leading columns.
        """
        nest = self.nest
        limits, extent = nest.limit_statements()
        limit, alike, last = scope.name("limit"), scope.name("alike"), scope.name("last")
        (row, rows), *_ = nest.loops_over
        own: list[Statement] = [
            *nest.levels[1],
            *limited(limit, str(extent), limits),
        ]
        scope.emit(Define("int64_t", edge.columns, "0", mutable=True))
        scope.emit(For(row, "0", "1", [*own, Assign(edge.columns, limit)], ctype=nest.ctype))
        for name, start in ((alike, "1"), (edge.rows, "0"), (last, "0")):
            scope.emit(Define("int32_t", name, start, mutable=True))
        # The rows with a limit above 0 are the leading ones if there are as many of them as rows up to the last of
        # them.
        look: list[Statement] = [
            *own,
            Assign(alike, f"{alike} & (({edge.fits}) & (({limit} == 0) | ({limit} == {edge.columns})))"),
            Assign(edge.rows, f"{edge.rows} + ({limit} > 0)"),
            Assign(last, f"{limit} > 0 ? (int32_t){row} + 1 : {last}"),
        ]
        marks = (("&", alike), ("+", edge.rows), ("max", last))
        scope.emit(For(row, "0", str(rows), look, ctype=nest.ctype, simd=True, reductions=marks))
        return f"{alike} && {edge.rows} == {last}"

    def loops(self, scope: LoweringScope) -> list[Statement]:
        """The loops over all parts, in the order of the nest's own loops."""
        nest, edge = self.nest, self.edge
        outer, inner = nest.axes
        whole = self._part(scope)
        body: list[Statement] = whole
        if edge is None:
            ends = {axis: str(nest.shape[axis]) for axis in nest.axes}
        else:
            ends = {outer: edge.rows, inner: edge.columns}
            left = {axis: f"{ends[axis]} - {nest.first[axis]}" for axis in nest.axes}
            counts = {axis: scope.name("count") for axis in nest.axes}
            some: list[Statement] = [
                Define("int64_t", counts[axis], f"{left[axis]} < {_PART} ? {left[axis]} : {_PART}")
                for axis in nest.axes
            ]
            is_whole = " && ".join(f"{left[axis]} >= {_PART}" for axis in nest.axes)
            body = [If(is_whole, whole, [*some, *self._part(scope, counts)])]
        columns = For(nest.first[inner], "0", ends[inner], body, step=str(_PART))
        return [For(nest.first[outer], "0", ends[outer], [columns], step=str(_PART))]

    def _part(self, scope: LoweringScope, counts: Mapping[int, str] | None = None) -> list[Statement]:
        """The statements of one part; ``counts`` are the C names of its extents, if these may be less than 16."""
        nest = self.nest
        outer, inner = nest.axes

        def loop(index: str, axis: int, body: list[Statement], *, simd: bool = False, unrolled: int = 0) -> For:
            first = nest.first[axis]
            if counts is None:
                return For(index, first, f"{first} + {_PART}", body, simd=simd, unrolled=unrolled)
            return For(index, first, f"{first} + {counts[axis]}", body, simd=simd, most=_PART if simd else 0)

        body: list[Statement] = []
        for source in self.sources:
            rows = scope.name("rows")
            (row, _), *_ = source.nest.loops_over  # along the nest's innermost axis
            start = f"{source.start} + {nest.first[outer]}"
            look = [*source.nest.levels[1], Assign(f"{rows}[{row} - {nest.first[inner]}]", start)]
            body += [
                Define(source.ctype, f"{source.tile}[{_PART * _PART}]", None, mutable=True),
                Define("void const *", f"{rows}[{_PART}]", None, mutable=True),
                loop(row, inner, look),
                LoopCall(
                    f"silo_turn_lines_4({source.tile}, {rows}, {_PART}, {_PART})"
                    if counts is None
                    else f"silo_turn_some_4({source.tile}, {rows}, {counts[inner]}, {counts[outer]})"
                ),
            ]
        columns = loop(nest.index[inner], inner, [*nest.levels[nest.depth], *self.effects], simd=True)
        body.append(loop(nest.index[outer], outer, [*nest.levels[1], columns], unrolled=_PART))
        return body


def _parts(scope: LoweringScope, turned: list[NestGroup], group: NestGroup) -> _Parts | None:
    """Plans ``group`` in parts of 16 x 16 elements of four bytes.

    None if ``group`` or a tile that it reads cannot be cut into such parts, or if a mask may exclude single elements.
    """
    stores = group.stores
    if not turned or scope.reference or len(stores) != len(group.sinks):
        return None
    if any(extent % _PART for extent in group.shape if extent != 1):
        return None
    tiles: dict[Value, str] = {}
    sources: list[_Source] = []
    for nest_group in turned:
        source = _source(scope, nest_group)
        if source is None:
            return None
        sources.append(source)
        tiles[_filled(nest_group)] = source.tile
    nest = _PartNest(scope, group, tiles)
    nest.begin_body(fast=True)
    effects: list[Statement] = []
    stored: list[set[str]] = []
    for store in stores:
        effect = _stored(nest, store)
        if effect is None:
            return None
        stored.append(_limits_of(nest, store_parts(store)[2]))
        effects.append(effect)
    if nest.wants_runs:
        return None
    scope.pieces.add("transpose")
    streaming = streaming_of(scope, nest, stores, len(nest.levels[nest.depth]) + len(effects))
    unless = streaming.condition if streaming is not None else ""
    return _Parts(nest, sources, effects, unless, _edge(scope, nest, stored))


def _edge(scope: LoweringScope, nest: Nest, stored: list[set[str]]) -> _Edge | None:
    """The edge of a nest; None unless every store's mask sets all limits (numbers of leading elements) of the nest.

    ``stored`` holds the limits that each store's mask sets.
    """
    ended, fits = nest.ends()
    if not ended or not all(limits.issuperset(ended) for limits in stored):
        return None
    return _Edge(scope.name("rows"), scope.name("columns"), fits)


def _limits_of(nest: Nest, mask: Value | None) -> set[str]:
    """The limits (numbers of leading elements) that a store's mask sets.

    Empty if the mask depends on memory, because memory may change before the store.
    """
    return set() if mask is None or not is_index_only(mask) else nest.limits_set_by(mask)


def _filled(group: NestGroup) -> Value:
    (sink,) = group.sinks
    assert isinstance(sink, BufferFill)
    return sink.value


def _source(scope: LoweringScope, group: NestGroup) -> _Source | None:
    """The tile of 32-bit numbers that ``group`` loads.

    None for other elements, for rows that are not consecutive in memory, and if a mask is tested for each element.
    """
    value = _filled(group)
    load = value.owner
    if load is None or element_bytes(value.type.element) != _ELEMENT_BYTES or value.type.pointer:
        return None
    nest = Nest(scope, group.shape, inner=group.inner)
    nest.begin_body(fast=True)
    pointer, mask, _ = load_parts(load)
    if nest.mask(mask, nest.index) or nest.wants_runs:
        return None
    masks_own = nest.limit_statements()
    start = nest.row_start(pointer, nest.index)
    if start is None or nest.wants_runs:
        return None
    only_mask = mask if nest.limit_statements() == masks_own else None
    return _Source(nest, ops.c_type(value.type), start, scope.name("tile"), only_mask)


def _stored(nest: Nest, store: Operation) -> Statement | None:
    """The store of one element; None if a mask has to be tested for each element."""
    pointer, value, mask = store_parts(store)
    if nest.mask(mask, nest.index):
        return None
    text = nest.value(value, nest.index)
    address, _ = nest.place(pointer, nest.index)
    return Assign(address, text)

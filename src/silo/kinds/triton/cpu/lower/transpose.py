"""A nest that takes tiles which lie along another axis from memory in parts, as it goes.

A tile that is turned as a whole waits for memory twice: for its own lines, one in each row, and then for the nest's
reads and writes. Here the nest goes through parts of 16 x 16 elements. The lines of a part are turned in registers and
used at once, and each row of a part has instructions of its own, so that the CPU knows each row's next line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.value_properties import load_parts, store_parts
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopCall, Statement
from silo.kinds.triton.cpu.lower.group import lower_group
from silo.kinds.triton.cpu.lower.index import Index
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.lower.streaming import streaming_of
from silo.kinds.triton.cpu.schedule.block_schedule import BufferFill, NestGroup
from silo.kinds.triton.front.operations.cpu.c_types import element_bytes
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = ["lower_turning"]

_PART = 16  # rows, and elements of each: lines of memory of four-byte elements
_ELEMENT_BYTES = 4
_WORD = re.compile(r"[A-Za-z_]\w*")


def lower_turning(scope: LoweringScope, turned: list[NestGroup], group: NestGroup) -> None:
    """Emit ``group`` and the nests that turn tiles for it alone."""
    parts = _parts(scope, turned, group)
    if parts is None:
        for one in [*turned, group]:
            lower_group(scope, one)
        return
    with scope.collecting() as whole:
        for one in [*turned, group]:
            lower_group(scope, one)
    condition = parts.check(scope)
    if not condition:
        for statement in parts.loops(scope):
            scope.emit(statement)
        return
    scope.emit(If(condition, parts.loops(scope), whole))


class _PartNest(Nest):
    """A nest that finds the elements of turned tiles in arrays of one part."""

    def __init__(self, scope: LoweringScope, group: NestGroup, tiles: dict[Value, str]) -> None:
        super().__init__(scope, group.shape, inner=group.inner)
        self.tiles = tiles
        self.first: Index = tuple(scope.name("first") for _ in group.shape)  # where a part begins

    def _evaluate(self, value: Value, index: Index) -> str:
        tile = self.tiles.get(value)
        if tile is None or index != self.index:
            return super()._evaluate(value, index)
        row, column = (f"({self.index[axis]} - {self.first[axis]})" for axis in self.axes)
        return self.put(ops.c_type(value.type), f"{tile}[{row} * {_PART} + {column}]", self.depth)


@dataclass(frozen=True, slots=True)
class _Source:
    """A tile in memory: its nest, the C name of the address of one of its rows, and the array of a part of it."""

    nest: Nest
    ctype: str
    start: str
    tile: str


@dataclass(frozen=True, slots=True)
class _Parts:
    """The nest in parts."""

    nest: _PartNest
    sources: list[_Source]
    effects: list[Statement]
    unless: str  # the C condition under which the nest is better whole, "" for never

    def check(self, scope: LoweringScope) -> str:
        """Emit the code before the first part; returns the C condition that no mask cuts anything."""
        conditions: list[str] = []
        for nest in [*(source.nest for source in self.sources), self.nest]:
            for statement in nest.levels[0]:
                scope.emit(statement)
            limits, extent = nest.limit_statements()
            if not limits:
                continue
            limit, whole = scope.name("limit"), scope.name("whole")
            look: list[Statement] = [Define("int64_t", limit, str(extent), mutable=True)]
            look += [Assign(limit, text.replace("limit", limit)) for text in limits]
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
        return " && ".join(conditions)

    def loops(self, scope: LoweringScope) -> list[Statement]:
        """Part after part, in the order of the nest's own loops."""
        nest = self.nest
        outer, inner = nest.axes
        body: list[Statement] = []
        for source in self.sources:
            rows = scope.name("rows")
            (row, _), *_ = source.nest.loops_over  # along the nest's innermost axis
            start = f"{source.start} + {nest.first[outer]}"
            look = [*source.nest.levels[1], Assign(f"{rows}[{row} - {nest.first[inner]}]", start)]
            body += [
                Define(source.ctype, f"{source.tile}[{_PART * _PART}]", None, mutable=True),
                Define("void const *", f"{rows}[{_PART}]", None, mutable=True),
                _loop(row, nest.first[inner], look),
                LoopCall(f"silo_turn_lines_4({source.tile}, {rows}, {_PART}, {_PART})"),
            ]
        columns = _loop(nest.index[inner], nest.first[inner], [*nest.levels[nest.depth], *self.effects], simd=True)
        body.append(_loop(nest.index[outer], nest.first[outer], [*nest.levels[1], columns], unrolled=_PART))
        for axis in (inner, outer):
            body = [For(nest.first[axis], "0", str(nest.shape[axis]), body, step=str(_PART))]
        return body


def _loop(index: str, first: str, body: list[Statement], *, simd: bool = False, unrolled: int = 0) -> For:
    return For(index, first, f"{first} + {_PART}", body, simd=simd, unrolled=unrolled)


def _parts(scope: LoweringScope, turned: list[NestGroup], group: NestGroup) -> _Parts | None:
    """How ``group`` goes in parts; None where a tile is not turned by lines, or a mask may cut single elements."""
    stores = group.stores
    if not turned or scope.reference or group.checks or len(stores) != len(group.sinks):
        return None
    if any(extent % _PART for extent in group.shape):
        return None
    tiles: dict[Value, str] = {}
    sources: list[_Source] = []
    for one in turned:
        source = _source(scope, one)
        if source is None:
            return None
        sources.append(source)
        tiles[_filled(one)] = source.tile
    nest = _PartNest(scope, group, tiles)
    nest.begin_body(fast=True)
    effects: list[Statement] = []
    for store in stores:
        effect = _stored(nest, store)
        if effect is None:
            return None
        effects.append(effect)
    if nest.wants_runs:
        return None
    scope.pieces.add("transpose")
    streaming = streaming_of(scope, nest, stores, len(nest.levels[nest.depth]) + len(effects))
    return _Parts(nest, sources, effects, streaming.condition if streaming is not None else "")


def _filled(group: NestGroup) -> Value:
    (sink,) = group.sinks
    assert isinstance(sink, BufferFill)
    return sink.value


def _source(scope: LoweringScope, group: NestGroup) -> _Source | None:
    """The tile that ``group`` reads; None where its rows do not lie in memory as they are."""
    value = _filled(group)
    load = value.owner
    if load is None or element_bytes(value.type.element) != _ELEMENT_BYTES or value.type.pointer:
        return None
    nest = Nest(scope, group.shape, inner=group.inner)
    nest.begin_body(fast=True)
    pointer, mask, _ = load_parts(load)
    if nest.mask(mask, nest.index) or nest.wants_runs:
        return None
    start = nest.row_start(pointer, nest.index)
    if start is None or nest.wants_runs:
        return None
    return _Source(nest, ops.c_type(value.type), start, scope.name("tile"))


def _stored(nest: Nest, store: Operation) -> Statement | None:
    """The store of one element; None if a mask decides for each."""
    pointer, value, mask = store_parts(store)
    if nest.mask(mask, nest.index):
        return None
    text = nest.value(value, nest.index)
    place, _ = nest.place(pointer, nest.index)
    return Assign(place, text)

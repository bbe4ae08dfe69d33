"""Lowers one planned loop nest: its sinks (the buffers, stores and reductions that it writes) and its checks.

A limit is the number of leading elements of the innermost axis for which a mask is true: the loop over them tests no
mask.
"""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.affine import is_structurally_affine
from silo.kinds.triton.cpu.analysis.value_properties import combining_operation, load_parts, store_parts
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.folded_rows import RowOfNest, fold_rows, rows_to_fold
from silo.kinds.triton.cpu.lower.forms import AffineForms
from silo.kinds.triton.cpu.lower.index import linear_index
from silo.kinds.triton.cpu.lower.joined_rows import (
    ROW_TYPES,
    CombinedRow,
    JoinedRows,
    combined_text,
    join_rows,
    joined,
    seen_extent,
    whole_tile,
)
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope, Tail
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.lower.nest_loops import flat_cut, limited, reads_in_steps, usual_length
from silo.kinds.triton.cpu.lower.ordered_nests import lower_ordered
from silo.kinds.triton.cpu.lower.overlap import safe_to_fuse
from silo.kinds.triton.cpu.lower.reduction import FLAG_OF_NUMBERS, Accumulation, accumulation
from silo.kinds.triton.cpu.lower.streaming import Streaming, streaming_of
from silo.kinds.triton.cpu.schedule.block_schedule import (
    BufferFill,
    NestGroup,
    OrderedSink,
    ReduceSink,
    Sink,
    StoreSink,
)
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.c_types import NARROW
from silo.kinds.triton.front.operations.operation_table import ATOMICS
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = ["lower_group"]

# Vectors can transpose elements of these sizes in bytes (`runtime/transpose.h`), in tiles of at least this many rows
# and columns.
_TURNED_BYTES = (2, 4, 8)
_TURNED_FROM = 8
_TURNED_LINES = 16  # rows of four-byte elements that are transposed at a time if a vector is as long as a cache line
_MOST_REPEATED = 12  # the most statements of a loop that may be repeated to find an element that is a number (not NaN)
_LEAST_ROW_AHEAD = 64  # the fewest bytes of a row for which later rows are prefetched
_ACCESSES = ATOMICS | {tt.LOAD, tt.STORE}


def lower_group(scope: LoweringScope, group: NestGroup) -> None:
    """Emits the nest of ``group`` and binds the values that it computes."""
    if group.ordered is not None:
        lower_ordered(scope, group)
        return
    computed = {sink.value for sink in group.sinks if isinstance(sink, BufferFill) and sink.value is sink.target}
    for sink in group.sinks:
        _prepare(scope, sink)
    if not group.checks:
        _GroupLowering(scope, group, computed).emit()
        return
    condition = safe_to_fuse(scope, group)
    with scope.collecting() as fused:
        _GroupLowering(scope, group, computed).emit()
    with scope.collecting() as ordered:
        values = {store: scope.new_buffer(store_parts(store)[1].type) for store in group.stores}
        _GroupLowering(scope, group, computed, values).emit()
        for store, buffer in values.items():
            _GroupLowering(
                scope, NestGroup(group.shape, [StoreSink(store)], inner=group.inner), set(), replay={store: buffer}
            ).emit()
    scope.emit(If(condition, fused, ordered))


def _reads_memory(value: Value) -> bool:
    """Whether computing ``value`` loads from memory or uses a value that a loop carries."""
    pending, seen = [value], {value}
    while pending:
        current = pending.pop()
        operation = current.owner
        if operation is None:
            if current.type.tensor:
                return True
            continue
        if operation.name == tt.LOAD or operation.regions:
            return True
        fresh = [operand for operand in operation.operands if operand not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return False


def _prepare(scope: LoweringScope, sink: Sink) -> None:
    """Creates the buffer or variable that a sink (a fill or a reduction) writes, before anything is lowered."""
    match sink:
        case BufferFill():
            if not sink.staged:
                scope.buffer_for(sink.target)
        case ReduceSink(operation):
            result = operation.result
            if result.type.tensor:
                scope.buffer_for(result)
            else:
                name = scope.name("r")
                scope.emit(Define(ops.c_type(result.type), name, None, mutable=True))
                scope.bind(result, name)
        case StoreSink() | OrderedSink():
            pass


@dataclass(frozen=True, slots=True)
class _Rest:
    """The code for the elements of a row from the limit on; before the limit, every mask is true.

    ``body`` are the statements of one element, and ``repeated`` the reductions that add the same value for each of
    these elements.
    """

    body: list[Statement]
    repeated: list[tuple[ReduceSink, str]]
    simd: bool


@dataclass(frozen=True, slots=True)
class _Behind:
    """Two versions of the code for the elements of a row from the limit on; before the limit, every mask is true.

    ``plain`` tests the masks of each element. ``one_value``, if not None, is used if the C condition ``fits`` holds at
    run time: then all of these elements have one known value.
    """

    plain: _Rest
    one_value: _Rest | None
    fits: str


def _both(first: str, second: str) -> str:
    """The C condition that both conditions hold; "" and "1" stand for a condition that always holds."""
    conditions = [condition for condition in (first, second) if condition not in {"", "1"}]
    return " && ".join(conditions) or "1"


def _changes_nothing(body: list[Statement]) -> bool:
    """Whether ``body`` writes to each element only the value that it has read from the same element."""
    texts = {one.name: one.value for one in body if isinstance(one, Define)}
    return all(
        isinstance(one, Define) or (isinstance(one, Assign) and texts.get(one.value) == one.target) for one in body
    )


class _GroupLowering:
    """Lowers one version of a group's nest, with all its sinks (buffers, stores and reductions).

    The fused version has all stores. If its run-time check fails, a version that writes stored values to buffers
    (``spill``) runs instead, and then for each store a version that reads the buffer (``replay``).
    """

    def __init__(
        self,
        scope: LoweringScope,
        group: NestGroup,
        computed: set[Value],
        spill: dict[Operation, LoopBuffer] | None = None,
        replay: dict[Operation, LoopBuffer] | None = None,
    ) -> None:
        self.scope = scope
        self.group = group
        self.spill = spill or {}  # stores whose value goes to a buffer instead of its destination
        self.replay = replay or {}  # stores whose value comes from a buffer that another nest has filled
        cut = None if scope.reference else flat_cut(scope, group)
        self.nest = Nest(scope, group.shape, computed, cut, inner=group.inner)
        self.in_runs = lambda: Nest(scope, group.shape, computed, cut, inner=group.inner, in_runs=True)
        stores = all(isinstance(sink, StoreSink) for sink in group.sinks)
        self.nest.joins_masks = stores and cut is None and not scope.reference
        self.accumulators: dict[ReduceSink, tuple[str, str, Accumulation]] = {}
        self.unconditional: set[Operation] = set()  # stores that the loop body without masks executes for every element
        # the limits of each store: numbers of leading elements after which the store writes nothing
        self.limits_of: dict[Operation, set[str]] = {}
        # reductions, each with the value that it adds for every element after the limit (the number of leading elements
        # with true masks)
        self.repeated: list[tuple[ReduceSink, str]] = []
        # for each reduction along an outer axis: the element, and the place in the result that the last lowered body
        # combines with it
        self.combined: list[CombinedRow] = []
        self.streaming: Streaming | None = None
        self.turned: LoopBuffer | None = self._transposed()
        # the temporary buffers, while the body that stores to them is lowered; else None
        self.deferred: Streaming | None = None

    def emit(self) -> None:
        """Emits the loops of the nest."""
        nest, scope = self.nest, self.scope
        for sink in self.group.sinks:
            if isinstance(sink, ReduceSink) and self._is_inner(sink.operation):
                combining = combining_operation(sink.operation)
                assert combining is not None
                how = accumulation(combining)
                piece = NARROW.get(sink.operation.result.type.element)
                if piece is not None:
                    scope.pieces.add(piece)
                self.accumulators[sink] = (scope.name("acc"), scope.name("flag"), how)
        fast = self._body(fast=not scope.reference)
        if nest.wants_runs:
            nest = self.nest = self.in_runs()
            fast = self._body(fast=True)
        values, combined = list(nest.levels[nest.depth]), self.combined
        streamed = self._streamed(len(fast))
        simd = self._is_simd()
        ahead = self._rows_ahead()
        tail = nest.tail_limit()
        limits, extent = nest.limit_statements()
        rows = self._rows_to_turn()
        slow = self._body(fast=False, tail=tail) if limits else []
        behind = self._behind(slow, limits, simd=simd)
        if rows:
            self._turn_rows(rows, self._inner_loops(fast, streamed, behind, limits, extent, simd=simd), limits)
            return
        if simd and (count := self._rows_to_join(ahead, [*values, *nest.levels[nest.depth]])):
            end = seen_extent(scope, nest, [entry.operation for entry in combined])
            axis, common = nest.axes[-2], scope.name("common")
            single = self._inner_loops(fast, [], behind, limits, extent, simd=simd, start=common, end=end)
            before = [*nest.levels[nest.depth - 1], *ahead]
            masked, masked_rows = (list(nest.levels[nest.depth]), self.combined) if slow else ([], [])
            unmasked = whole_tile(scope, nest, end, axis, count, masked_rows)
            parts = JoinedRows(nest, axis, before, limits, end, values, combined, masked, masked_rows, unmasked)
            loops = nest.outer_loops(join_rows(scope, parts, count, common, single), within=2)
        else:
            row = self._row(fast, streamed, behind, limits, extent, simd=simd)
            accumulators = list(self.accumulators.values())
            if count := rows_to_fold(scope, nest, row, accumulators):
                loops = nest.outer_loops(fold_rows(scope, nest, row, accumulators, count, ahead), within=2)
            else:
                loops = nest.outer_loops([*ahead, *row.before, *row.loops, *row.after])
        for statement in loops:
            scope.emit(statement)
        if self.turned is not None:
            self._turn()

    def _rows_to_join(self, ahead: list[Statement], values: list[Statement]) -> int:
        """The number of rows that are read at a time; 0 if the nest does more than combine rows."""
        nest = self.nest
        if len(nest.axes) < 2 or nest.flat is not None or nest.runs is not None or self.streaming is not None:
            return 0
        axis = nest.axes[-2]
        for sink in self.group.sinks:
            if not isinstance(sink, ReduceSink) or sink.operation.attributes["axis"] != axis:
                return 0
            if sink.operation.result.type.element not in ROW_TYPES or not sink.operation.result.type.tensor:
                return 0
        before = [*nest.levels[nest.depth - 1], *ahead]
        plain = all(isinstance(statement, Define | Assign | LoopCall) for statement in (*before, *values))
        return joined(nest, axis) if plain else 0

    def _rows_ahead(self) -> list[Statement]:
        """Returns calls that prefetch the cache lines of later rows, if the nest sums rows and so reads each row once.

        Returns [] for any other nest.
        """
        nest, scope = self.nest, self.scope
        if (
            scope.reference
            or not scope.in_kernel
            or len(nest.axes) < 2
            or nest.flat is not None
            or nest.runs is not None
        ):
            return []
        summed = [isinstance(sink, ReduceSink) and not self._is_inner(sink.operation) for sink in self.group.sinks]
        carried = [isinstance(sink, BufferFill) and sink.target is not sink.value for sink in self.group.sinks]
        if not all(is_summed or is_carried for is_summed, is_carried in zip(summed, carried, strict=True)):
            return []
        axis, statements = nest.axes[-2], list[Statement]()
        for pointer, start in nest.rows.items():
            size = ops.element_bytes(pointer.type.element)
            bytes_ = nest.shape[nest.axes[-1]] * size
            if bytes_ < _LEAST_ROW_AHEAD or not is_structurally_affine(pointer):
                continue
            _, strides = AffineForms(scope, nest).of(pointer, tuple(range(len(nest.shape))))
            tiles, rows, stride = scope.name("tiles"), nest.shape[axis], strides.get(axis, "0")
            scope.locals.append(f"silo_tiles {tiles} = {{0, 0}};")
            scope.pieces.add("ahead")
            call = f"&{tiles}, {start}, {nest.index[axis]}, {rows}, {stride} * {size}, {bytes_}, {int(any(summed))}"
            statements.append(LoopCall(f"silo_ahead({call})"))
        return statements

    def _streamed(self, statements: int) -> list[Statement]:
        """The body without masks, whose stores write to temporary buffers (see ``streaming``).

        [] if the stores must not bypass the caches.
        """
        stores = self.group.stores
        special = self.nest.flat is not None or self.nest.runs is not None
        if self.spill or self.replay or special or not self.unconditional.issuperset(stores):
            return []
        self.streaming = streaming_of(self.scope, self.nest, stores, statements)
        if self.streaming is None:
            return []
        self.deferred = self.streaming
        body = self._body(fast=True)
        self.deferred = None
        return body

    def _is_simd(self) -> bool:
        return not self.scope.reference and not self._repeats_one_value()

    def _body(self, *, fast: bool, tail: str = "", ended: frozenset[str] = frozenset()) -> list[Statement]:
        self.nest.begin_body(fast=fast, tail=tail, ended=ended)
        self.combined = []
        self.repeated = []
        effects: list[Statement] = []
        # the body computes all values before the first effect, because its reads must happen before its writes
        for sink in self.group.sinks:
            effects.extend(self._sink(sink))
        return [*self.nest.levels[self.nest.depth], *effects]

    def _repeats_one_value(self) -> bool:
        """Whether a reduction adds a value that is the same in every iteration.

        The C compiler must not vectorize such a loop: gcc 12 and 13 would create an array for the value and misalign
        it.
        """
        return any(
            self.nest.level(self.nest.value(sink.operation.operands[0], self.nest.index)) < self.nest.depth
            for sink in self.accumulators
        )

    def _is_inner(self, operation: Operation) -> bool:
        return operation.attributes["axis"] == self.nest.axes[-1]

    # ---- sinks

    def _sink(self, sink: Sink) -> list[Statement]:
        match sink:
            case BufferFill():
                return [self._fill(sink)]
            case StoreSink(operation):
                return self._store(operation)
            case ReduceSink(operation):
                return self._reduce(sink, operation)
            case OrderedSink(operation):
                # the operation has a nest of its own, which ordered_nests.py lowers
                raise AssertionError(operation.name)

    def _fill(self, sink: BufferFill) -> Statement:
        nest, scope = self.nest, self.scope
        text = self._address(sink.value) or nest.value(sink.value, nest.index)
        if sink.staged:
            buffer = scope.stage(sink.target)
        else:
            buffer = scope.buffer(sink.target)
            assert buffer is not None
        scope.lifetimes.touch(buffer if self.turned is None else self.turned)
        # No tail is recorded for a nest with run-time checks: it is lowered twice, and a C name that one version
        # defines is unknown in the other and after both.
        if nest.tail and sink.value is sink.target and nest.level(text) == 0 and not self.group.checks:
            scope.tails[sink.value] = Tail(nest.axes[-1], nest.tail, text)
        if self.turned is not None:
            offset = linear_index(
                tuple(nest.index[axis] for axis in nest.axes), tuple(nest.shape[axis] for axis in nest.axes)
            )
            return Assign(f"{self.turned.name}[{offset}]", text)
        return Assign(f"{buffer.name}[{nest.linear(nest.index, sink.target.type.shape)}]", text)

    def _transposed(self) -> LoopBuffer | None:
        """A buffer for a copy of a tile in its original order, which vectors then transpose.

        None if the tile needs no transposing.
        """
        nest = self.nest
        match self.group.sinks:
            case [BufferFill(target=target, staged=False)] if not self.scope.reference:
                buffer = self.scope.buffer(target)
            case _:
                return None
        ordered = len(nest.axes) != 2 or nest.axes[0] < nest.axes[1] or nest.flat is not None
        if buffer is None or ordered or buffer.item_bytes not in _TURNED_BYTES:
            return None
        if min(nest.shape[axis] for axis in nest.axes) < _TURNED_FROM:
            return None
        self.scope.pieces.add("transpose")
        return LoopBuffer(self.scope.name("b"), buffer.ctype, buffer.elements, buffer.item_bytes)

    def _rows_to_turn(self) -> str:
        """The C name of a row's address, if the tile can be transposed directly from memory.

        "" if the tile must be copied to a buffer first.
        """
        if self.turned is None or self.nest.runs is not None:
            return ""
        (sink,) = self.group.sinks
        assert isinstance(sink, BufferFill)
        load = sink.value.owner
        if load is None or load.name != tt.LOAD or self.scope.resolve(sink.value) is not sink.value:
            return ""
        pointer, mask, _ = load_parts(load)
        if self.nest.mask(mask, self.nest.index):
            return ""
        return self.nest.row_start(pointer, self.nest.index) or ""

    def _turn_rows(self, start: str, copy: list[Statement], limits: list[str]) -> None:
        """Emits code that transposes a tile directly from memory, some rows at a time.

        For rows from which masks exclude elements, ``copy`` fills a buffer, and the buffer is transposed instead.
        """
        nest, scope, turned = self.nest, self.scope, self.turned
        assert turned is not None
        (sink,) = self.group.sinks
        assert isinstance(sink, BufferFill)
        buffer = scope.buffer(sink.target)
        assert buffer is not None
        for tile in (buffer, turned):
            scope.lifetimes.touch(tile)
        rows, count = (nest.shape[axis] for axis in nest.axes)
        (index, _), *_ = nest.loops_over
        lines = buffer.item_bytes == 4 and scope.options.vector_bits == 512 and min(rows, count) >= _TURNED_LINES
        part, function = (_TURNED_LINES, "lines") if lines else (_TURNED_FROM, "rows")
        first, parts, whole = scope.name("first"), scope.name("rows"), scope.name("whole")

        def each(body: list[Statement]) -> For:
            return For(index, first, f"{first} + {part}", [*nest.levels[1], *body], ctype=nest.ctype)

        look: list[Statement] = [Assign(f"{parts}[{index} - {first}]", start)]
        some: list[Statement] = []
        if limits:
            limit = scope.name("limit")
            look += limited(limit, str(count), limits)
            look.append(Assign(whole, f"{whole} & ({limit} == {count})"))
            again = Assign(f"{parts}[{index} - {first}]", f"{turned.name} + {index} * {count}")
            some = [If(f"!{whole}", [each([*copy, again])])]
        turn = LoopCall(f"silo_turn_{function}_{buffer.item_bytes}({buffer.name} + {first}, {parts}, {rows}, {count})")
        body: list[Statement] = [
            Define("void const *", f"{parts}[{part}]", None, mutable=True),
            *([Define("int32_t", whole, "1", mutable=True)] if limits else []),
            each(look),
            *some,
            turn,
        ]
        for statement in [*nest.levels[0], For(first, "0", str(rows), body, step=str(part))]:
            scope.emit(statement)

    def _turn(self) -> None:
        (sink,) = self.group.sinks
        assert isinstance(sink, BufferFill)
        buffer = self.scope.buffer(sink.target)
        assert buffer is not None
        assert self.turned is not None
        for tile in (buffer, self.turned):
            self.scope.lifetimes.touch(tile)
        rows, count = (self.nest.shape[axis] for axis in self.nest.axes)
        self.scope.emit(LoopCall(f"silo_turn_{buffer.item_bytes}({buffer.name}, {self.turned.name}, {rows}, {count})"))

    def _address(self, value: Value) -> str:
        """The C text of an address that is used only by accesses, if it is affine in the innermost index; else ""."""
        nest = self.nest
        if not value.type.pointer or not nest.fast or any(use.name not in _ACCESSES for use in value.uses):
            return ""
        form = nest.affine(value, nest.index)
        return "" if form is None or form[1] == "0" else f"&{nest.place(value, nest.index)[0]}"

    def _store(self, operation: Operation) -> list[Statement]:
        nest = self.nest
        pointer, value, mask = store_parts(operation)
        linear = nest.linear(nest.index, self.group.shape)
        if operation in self.spill:
            buffer = self.spill[operation]
            self.scope.lifetimes.touch(buffer)
            if nest.fast:
                self.limits_of[operation] = self._limits_of_mask(mask)
            return [Assign(f"{buffer.name}[{linear}]", nest.value(value, nest.index))]
        limit_count = len(nest.limits)
        condition = nest.mask(mask, nest.index)
        # only limits that come from the store's own mask are recorded, and none if this mask depends on memory, which
        # may change before the store
        if nest.fast:
            reads = mask is None or _reads_memory(mask)
            self.limits_of[operation] = set() if reads else set(nest.limits[limit_count:])
        if condition == "0":
            return []
        if operation in self.replay:
            buffer = self.replay[operation]
            self.scope.lifetimes.touch(buffer)
            text = f"{buffer.name}[{linear}]"
        else:
            text = nest.value(value, nest.index)
        if self.deferred is not None:
            return [Assign(self.deferred.place(operation, nest.inner), text)]
        if not condition:
            self.unconditional.add(operation)
        address, _ = nest.place(pointer, nest.index)
        return [Assign(address, text, condition)]

    def _limits_of_mask(self, mask: Value | None) -> set[str]:
        """The limits (numbers of leading elements) after which a deferred store writes nothing.

        Empty if the mask depends on memory, because memory may change before the store.
        """
        return set() if mask is None or _reads_memory(mask) else self.nest.limits_set_by(mask)

    def _reduce(self, sink: ReduceSink, operation: Operation) -> list[Statement]:
        nest = self.nest
        element = nest.value(operation.operands[0], nest.index)
        if sink in self.accumulators:
            name, flag, how = self.accumulators[sink]
            item = how.load.format(element)
            if (nest.tail or nest.ended) and how.repeat and nest.level(element) < nest.depth:
                self.repeated.append((sink, element))
                return []
            loaded = item if item == element else nest.put(how.ctype, item, nest.depth)
            statements: list[Statement] = [Assign(name, how.combine.format(name, loaded))]
            if how.flag:
                statements.append(Assign(flag, f"{flag} | ({how.flag.format(loaded)})"))
            return statements
        return self._reduce_outer(operation, element)

    def _reduce_outer(self, operation: Operation, element: str) -> list[Statement]:
        """Reduces along an axis other than the innermost: copies the first row, combines the others with it."""
        axis = operation.attributes["axis"]
        assert isinstance(axis, int)
        target = self._result_place(operation)
        self.combined.append(CombinedRow(operation, target, element))
        if self.nest.index[axis] == "0":
            return [Assign(target, element)]
        combining = combining_operation(operation)
        assert combining is not None
        # The combined value gets a statement of its own, because C compilers do not vectorise a loop with a comparison
        # inside of a conditional expression.
        name, text = self.scope.name("t"), combined_text(self.scope, combining, target, element)
        combined = Define(ops.c_type(operation.result.type), name, text)
        return [combined, Assign(target, f"{self.nest.index[axis]} == 0 ? {element} : {name}")]

    def _result_place(self, operation: Operation) -> str:
        result = operation.result
        if not result.type.tensor:
            return self.scope.scalar(result)
        buffer = self.scope.buffer(result)
        assert buffer is not None
        self.scope.lifetimes.touch(buffer)
        axis = operation.attributes["axis"]
        other_indices = tuple(name for position, name in enumerate(self.nest.index) if position != axis)
        return f"{buffer.name}[{linear_index(other_indices, result.type.shape)}]"

    # ---- loops

    def _behind(self, slow: list[Statement], limits: list[str], *, simd: bool) -> _Behind:
        """The code for the elements after the limits (for which a mask is false), perhaps with a faster version.

        The faster version is for elements that all have one known value.
        """
        values, marked = self.repeated, simd and (len(self.repeated) == len(self.accumulators) or self._is_simd())
        plain = _Rest(slow, values, simd=marked)
        fills = all(isinstance(sink, BufferFill) for sink in self.group.sinks)
        if not (self.accumulators or fills) or not limits or self.nest.tail or self.scope.reference:
            return _Behind(plain, None, "")
        ended, fits = self.nest.ends(in_runs=True)
        if not ended:
            return _Behind(plain, None, "")
        combined = self.combined
        body = self._body(fast=False, ended=ended)
        self.combined = combined
        seldom = plain if fits == "1" or self.nest.runs else _Rest(slow, [], simd=False)
        if fills and _changes_nothing(body):
            return _Behind(seldom, _Rest([], [], simd=simd), fits)
        if fills and self._is_one_value(body):
            return _Behind(seldom, _Rest(body, [], simd=simd), fits)
        if not self.repeated:  # no reduction adds one known value for all elements after the limits
            return _Behind(plain, None, "")
        marked = simd and (len(self.repeated) == len(self.accumulators) or self._is_simd())
        return _Behind(plain, _Rest(body, self.repeated, simd=marked), fits)

    def _is_one_value(self, body: list[Statement]) -> bool:
        """Whether each statement of an innermost loop only writes a value that does not change along the loop."""
        return all(isinstance(one, Assign) and self.nest.text_level(one.value) < self.nest.depth for one in body)

    def _rest(
        self, rest: _Rest, first: str, whole: str, extent: int, marks: tuple[tuple[str, str], ...]
    ) -> list[Statement]:
        """The statements for the elements from ``first`` up to ``whole``, for which at least one mask is false."""
        result: list[Statement] = []
        if rest.body:
            loop = For(self.nest.inner, first, whole, rest.body, simd=rest.simd, reductions=marks)
            result.append(If(f"{first} < {whole}", [loop]) if marks else loop)
        for sink, element in rest.repeated:
            name, flag, how = self.accumulators[sink]
            item = how.load.format(element)
            if how.clause == "+" and item == ops.zero(sink.operation.result.type):
                continue  # the sum is never -0, because it starts with 0, so that adding 0 changes nothing
            some = f"{first} < {extent}"
            result.append(Assign(name, how.repeat.format(name, item, f"{extent} - {first}"), some))
            if how.flag:
                result.append(Assign(flag, f"{flag} | ({how.flag.format(item)})", some))
        return result

    def _without_flags(self, fast: list[Statement], start: str, end: str) -> tuple[list[Statement], list[Statement]]:
        """Moves the flags "an element is a number (not NaN)" out of the main loop, which is then shorter.

        Returns the statements of the main loop, and statements after it that set the flags. A maximum above its start
        value proves that an element is a number. If the maximum is still the start value, a second loop looks for a
        number, and ends as soon as it finds one. The statements stay unchanged if the nest does more than reduce.
        """
        late = [
            (name, flag, how)
            for name, flag, how in self.accumulators.values()
            if how.flag == FLAG_OF_NUMBERS and not self.scope.reference
        ]
        plain = all(isinstance(statement, Define | Assign) for statement in fast) and len(fast) <= _MOST_REPEATED
        if not late or not plain or self.nest.runs is not None or len(self.accumulators) != len(self.group.sinks):
            return fast, []
        flags = {flag for _, flag, _ in late}
        unflagged = [
            statement for statement in fast if not (isinstance(statement, Assign) and statement.target in flags)
        ]
        later: list[Statement] = []
        for name, flag, how in late:
            look = [statement for statement in fast if not isinstance(statement, Assign) or statement.target == flag]
            loop = For(self.nest.inner, start, f"({flag} ? {start} : {end})", look, ctype=self.nest.ctype)
            later.append(If(f"!{flag} && {name} == {how.start}", [loop], [Assign(flag, "1")]))
        return unflagged, later

    def _rest_ends(self, limits: list[str], extent: int) -> str:
        """The C condition under which no element after the limits is stored; "" if no such condition is known.

        The condition is that the operands of the masks' comparisons fit in 32 bits: then, from the lowest limit on, one
        of the comparisons is false.
        """
        nest = self.nest
        if any(limit not in nest.bases for limit in limits):
            return ""
        for sink in self.group.sinks:
            if not isinstance(sink, StoreSink) or not self.limits_of.get(sink.operation, set()).issuperset(limits):
                return ""
        bases = dict.fromkeys(base for limit in limits if (base := nest.bases[limit]))
        return " && ".join(f"nest_fits({base}, {extent})" for base in bases) or "1"

    def _inner_loops(
        self,
        fast: list[Statement],
        streamed: list[Statement],
        behind: _Behind,
        limits: list[str],
        extent: int,
        *,
        simd: bool,
        start: str = "0",
        end: str = "",
    ) -> list[Statement]:
        """The loops over the innermost axis from ``start`` to ``end``; if ``end`` is "", to the axis' extent."""
        row = self._row(fast, streamed, behind, limits, extent, simd=simd, start=start, end=end)
        return [*row.before, *row.loops, *row.after]

    def _row(
        self,
        fast: list[Statement],
        streamed: list[Statement],
        behind: _Behind,
        limits: list[str],
        extent: int,
        *,
        simd: bool,
        start: str = "0",
        end: str = "",
    ) -> RowOfNest:
        """The statements of ``_inner_loops`` in three parts: before the loops, the loops, and after them."""
        inner = self.nest.inner
        full_end = end or str(extent)
        before: list[Statement] = []
        clauses: list[tuple[str, str]] = []
        for name, flag, how in self.accumulators.values():
            before.append(Define(how.ctype, name, how.start, mutable=True))
            clauses.append((how.clause, name))
            if how.flag:
                before.append(Define("int32_t", flag, "0", mutable=True))
                clauses.append(("|", flag))
        marks = tuple(clauses)
        if limits:
            limit = self.scope.name("limit")
            assigned = limited(limit, full_end, limits)
            in_runs = ""  # C condition: the runs reach the limits of the masks
            if self.nest.runs is not None:
                whole = self.scope.name("whole")
                assigned.insert(1 + len(self.nest.mask_limits()), Define("int64_t", whole, limit))
                in_runs = f"{limit} == {whole}"
            before += assigned
            end = limit
            remainder: list[Statement] = []
            nothing = self._rest_ends(self.nest.mask_limits(), extent) if behind.plain.body else ""
            fits = _both(in_runs, behind.fits)
            if nothing == "1" and not in_runs:
                pass
            elif nothing:
                slow: Statement = For(inner, limit, str(extent), behind.plain.body)
                if in_runs:
                    slow = If(f"{limit} < {full_end}", self._rest(behind.plain, limit, full_end, extent, marks))
                # Without runs, these statements run only if operands of the masks exceed 32 bits, which is so rare that
                # vectors are not worth their compile time.
                remainder.append(If(f"!({_both(in_runs, nothing)})", [slow]))
            elif behind.one_value is None:
                remainder += self._rest(behind.plain, limit, full_end, extent, marks)
            else:
                uniform: list[Statement] = self._rest(behind.one_value, limit, full_end, extent, marks)
                some = f"{limit} < {full_end}"
                if fits != "1":
                    others = self._rest(behind.plain, limit, full_end, extent, marks)
                    if uniform:
                        uniform = [If(fits, uniform, others)]
                    else:
                        remainder.append(If(f"!({fits}) && {some}", others))
                if uniform:
                    remainder.append(If(some, uniform))
        else:
            end, remainder = full_end, []
        unflagged, numbers = self._without_flags(fast, start, end)
        loops: list[Statement] = [
            For(inner, start, end, unflagged, ctype=self.nest.ctype, simd=simd, reductions=marks, most=extent)
        ]
        usual = usual_length(limits, extent) if simd and not (marks or self.streaming or self.nest.runs) else 0
        if usual and reads_in_steps(fast, inner):
            loops = [If(f"{end} == {usual}", [For(inner, "0", str(usual), unflagged, simd=True)], loops)]
        if self.nest.runs is not None:

            def run(first: str, last: str) -> For:
                return For(inner, first, last, fast, simd=simd, reductions=marks)

            loops = self.nest.runs.loop(end, self.nest.levels[self.nest.depth - 1], run)
        if self.streaming is not None:
            chunks = self.streaming.loops(self.scope, inner, end, streamed, marks)
            loops = [If(self.streaming.condition, chunks, loops)]
        after = [*remainder, *numbers]
        after += [
            Assign(self._result_place(sink.operation), how.finish.format(name, flag))
            for sink, (name, flag, how) in self.accumulators.items()
        ]
        return RowOfNest(before, loops, after)

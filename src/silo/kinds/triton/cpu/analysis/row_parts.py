"""Cuts the programs of a matrix product into parts by rows, so that several threads can share one program.

A kernel with few, long programs keeps few threads busy. If every store and every load of an accumulator tile can be
separated by rows, a part of a program is the program itself with its row indices shifted, and with a mask that ends
after the rows of the part. Products and loop nests end at the same mask. The caller promises that the kernel writes no
memory that it reads (``CpuOptions.row_parts``); two arguments that are one array are detected nevertheless. Each
element is computed by the same operations in the same order as in a whole program, so results do not depend on the
number of parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from silo.kinds.triton.cpu.analysis.ssa_rewriting import drop, insert, set_operand
from silo.kinds.triton.cpu.analysis.value_properties import load_parts, pointer_roots, store_parts
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.further_dialects import PART_FIRST, PART_ROWS
from silo.kinds.triton.front.operations.operation_table import RENDERED
from silo.kinds.triton.front.ssa import Attribute, Block, Module, Operation, Type, Value

__all__ = ["RowParts", "cut_rows"]

_LEAST_ROWS = 16  # the fewest rows of a part
_MOST_PARTS = 8
_MOST_VALUES = 400  # the most values that depend on the row indices
_BELOW = 2  # predicate of arith.cmpi: signed less
_LEAVES = frozenset({tt.SPLAT, tt.MAKE_RANGE, arith.CONSTANT})
_KNOWN = (
    RENDERED
    | _LEAVES
    | {tt.FUNC, tt.RETURN, flow.FOR, flow.YIELD, tt.STORE, tt.LOAD, tt.DOT, tt.TRANS, tt.EXPAND_DIMS, tt.BROADCAST}
    | {tt.GET_PROGRAM_ID, tt.GET_NUM_PROGRAMS, tt.ADDPTR}
)
_STAYS = frozenset({tt.FUNC, tt.RETURN, flow.FOR, flow.YIELD, tt.STORE})


class _NotSeparableError(Exception):
    """Raised for a program that cannot be cut by rows.

    Either a value mixes several rows, or all parts need a value of which each part computes only its own rows.
    """


@dataclass(frozen=True, slots=True)
class RowParts:
    """The most parts that a program can be cut into, and the pairs of arguments that must not be one array.

    Each pair is (written, read). A whole program finishes its reads before it writes; parts of a program do not wait
    for each other, so one part could overwrite memory that another part has yet to read.
    """

    most: int = 1
    distinct: tuple[tuple[int, int], ...] = ()


def cut_rows(module: Module) -> RowParts:
    """Rewrites the kernel so that a part of its rows can run alone. A kernel that cannot be cut stays as it is."""
    block = _only_block(module)
    if block is None:
        return RowParts()
    stores = [operation for operation in block.operations if operation.name == tt.STORE]
    dots = [operation for operation in module.walk() if operation.name == tt.DOT]
    shapes = {operation.result.type.shape for operation in dots}
    if not dots or not stores or len(shapes) != 1 or any(not _is_in_loop(dot, block) for dot in dots):
        return RowParts()
    written, read = _roots(module, tt.STORE), _roots(module, tt.LOAD)
    if written is None or read is None or written & read:
        return RowParts()
    shape = next(iter(shapes))
    rows = shape[0] if len(shape) == 2 else 0
    if rows < 2 * _LEAST_ROWS or rows & (rows - 1) or any(store.operands[0].type.shape != shape for store in stores):
        return RowParts()
    plan = _Plan(rows)
    try:
        for store in stores:
            for operand in store.operands:
                plan.want(operand, 0)
        plan.finish(module)
    except _NotSeparableError:
        return RowParts()
    if any((dot.result, 0) not in plan.wanted for dot in dots):
        return RowParts()
    _Rewriting(block, rows, plan).rewrite(stores)
    pairs = tuple((write.index, other.index) for write in _ordered(written) for other in _ordered(read))
    return RowParts(min(rows // _LEAST_ROWS, _MOST_PARTS), pairs)


def _roots(module: Module, name: str) -> set[Value] | None:
    """The arguments through which operations called ``name`` access memory; None if any memory may be accessed."""
    all_roots: set[Value] = set()
    for operation in module.walk():
        if operation.name == name:
            roots = pointer_roots(operation.operands[0])
            if roots is None:
                return None
            all_roots |= roots
    return all_roots


def _ordered(values: set[Value]) -> list[Value]:
    return sorted(values, key=lambda value: value.index)


def _only_block(module: Module) -> Block | None:
    """The kernel's only block; None if the module has another function, or an operation whose rows cannot be traced."""
    if len(module.functions) != 1 or len(module.entry.regions[0].blocks) != 1:
        return None
    block = module.entry.regions[0].blocks[0]
    for operation in module.walk():
        if operation.name not in _KNOWN or (operation.name == tt.LOAD and operation.attributes.get("isVolatile")):
            return None
        if operation.name == tt.STORE and operation.block is not block:
            return None
    return block


def _is_in_loop(dot: Operation, block: Block) -> bool:
    """Whether a dot accumulates into a value that a loop of the kernel's block carries."""
    loop = dot.block.region.owner if dot.block is not None and dot.block.region is not None else None
    if loop is None or loop.name != flow.FOR or loop.block is not block or dot.block is None:
        return False
    return dot.operands[2] in dot.block.arguments and dot.result.uses == [dot.block.operations[-1]]


@dataclass(slots=True)
class _Plan:
    """The values that depend on the first row of a part, with their row axes, and the values that all parts share."""

    rows: int
    wanted: dict[tuple[Value, int], None] = field(default_factory=dict[tuple[Value, int], None])
    carried: dict[tuple[Operation, int], int] = field(default_factory=dict[tuple[Operation, int], int])
    shared: set[Value] = field(default_factory=set[Value])

    def want(self, value: Value, axis: int) -> None:
        """Traces ``value``, whose row axis is ``axis``, back to ``tt.make_range``, splats and constants.

        Raises ``_NotSeparableError`` if that is impossible.
        """
        pending = [(value, axis)]
        while pending:
            current = pending.pop()
            if current in self.wanted:
                continue
            self.wanted[current] = None
            if len(self.wanted) > _MOST_VALUES or current[0].type.shape[current[1]] != self.rows:
                raise _NotSeparableError
            pending += self.sources_of(*current)

    def sources_of(self, value: Value, axis: int) -> list[tuple[Value, int]]:
        """The operands from which the rows of ``value`` are computed, each with its row axis."""
        operation = value.owner
        position = _carried_place(value)
        if position is not None:
            loop, index = position
            if self.carried.setdefault(position, axis) != axis:
                raise _NotSeparableError
            body = loop.regions[0].blocks[0]
            return [(loop.operands[3 + index], axis), (body.operations[-1].operands[index], axis)]
        if operation is None:
            raise _NotSeparableError
        operands = operation.operands
        match operation.name:
            case name if name in _LEAVES:
                if name == arith.CONSTANT and getattr(operation.attributes["value"], "splat", 0) is None:
                    raise _NotSeparableError
                self.shared.update(operands)
                return []
            case tt.EXPAND_DIMS:
                added = operation.attributes["axis"]
                assert isinstance(added, int)
                return [(operands[0], axis - (added < axis))]
            case tt.BROADCAST:
                if operands[0].type.shape[axis] == 1:
                    self.shared.add(operands[0])
                    return []
                return [(operands[0], axis)]
            case tt.TRANS:
                order = operation.attributes["order"]
                assert isinstance(order, tuple)
                source = order[axis]
                assert isinstance(source, int)
                return [(operands[0], source)]
            case tt.DOT:
                if axis != 0:
                    raise _NotSeparableError
                self.shared.add(operands[1])
                return [(operands[0], 0), (operands[2], 0)]
            case name if name in (tt.LOAD, tt.ADDPTR) or name in RENDERED:
                if any(operand.type.tensor and operand.type.shape != value.type.shape for operand in operands):
                    raise _NotSeparableError
                self.shared.update(operand for operand in operands if not operand.type.tensor)
                return [(operand, axis) for operand in operands if operand.type.tensor]
            case _:
                raise _NotSeparableError

    def finish(self, module: Module) -> None:
        """Traces the values that all parts share to the values that they are computed from.

        Raises ``_NotSeparableError`` if a shared value is computed from a loop-carried value of which each part has
        only its own rows.
        """
        loops = [operation for operation in module.walk() if operation.name == flow.FOR]
        pending = [*self.shared, *(bound for loop in loops for bound in loop.operands[:3])]
        self.shared = set()
        while pending:
            value = pending.pop()
            if value in self.shared:
                continue
            self.shared.add(value)
            position = _carried_place(value)
            if position is not None:
                if position in self.carried:
                    raise _NotSeparableError
                loop, index = position
                pending += [loop.operands[3 + index], loop.regions[0].blocks[0].operations[-1].operands[index]]
            elif value.owner is not None:
                pending += value.owner.operands


def _carried_place(value: Value) -> tuple[Operation, int] | None:
    """The loop that carries ``value``, and its position among the carried values; None if no loop carries it.

    ``value`` may be an argument of the loop's body or a result of the loop.
    """
    if value.owner is not None:
        return (value.owner, value.index) if value.owner.name == flow.FOR else None
    region = value.block.region if value.block is not None else None
    loop = region.owner if region is not None else None
    return (loop, value.index - 1) if loop is not None and loop.name == flow.FOR and value.index > 0 else None


class _Rewriting:
    """Shifts a ``_Plan``'s row indices by the first row of the part, and masks the rows after the part's last row."""

    def __init__(self, block: Block, rows: int, plan: _Plan) -> None:
        self.block = block
        self.rows = rows
        self.plan = plan
        self.moved: dict[tuple[Value, int], Value] = {}
        self.masks: dict[tuple[tuple[int, ...], int], Value] = {}
        self.at = 0  # index in the kernel's block at which the next operation is inserted
        range_ = Type("i32", (rows,), tensor=True, pointer=False)
        own: dict[str, Attribute] = {"rows": rows}
        self.first = self._begin(tt.SPLAT, [self._begin(PART_FIRST, [], Type("i32"), own)], range_)
        count = self._begin(tt.SPLAT, [self._begin(PART_ROWS, [], Type("i32"), own)], range_)
        local = self._begin(tt.MAKE_RANGE, [], range_, {"start": 0, "end": rows})
        flags = Type("i1", (rows,), tensor=True, pointer=False)
        self.inside = self._begin(arith.CMPI, [local, count], flags, {"predicate": _BELOW})

    def _begin(
        self, name: str, operands: list[Value], type_: Type, attributes: dict[str, Attribute] | None = None
    ) -> Value:
        result = Value(f"part{self.at}", type_)
        insert(self.block, self.at, Operation(name, operands, [result], attributes or {}))
        self.at += 1
        return result

    def _mask(self, shape: tuple[int, ...], axis: int) -> Value:
        """A mask of the elements of a tile that belong to rows of the part."""
        mask = self.masks.get((shape, axis))
        if mask is None:
            mask = self.inside
            for added in (other for other in range(len(shape)) if other != axis):
                narrow = tuple(self.rows if dimension == axis else 1 for dimension in range(len(shape)))
                assert len(shape) == 2, "tiles of sums have two axes"
                mask = self._begin(tt.EXPAND_DIMS, [mask], Type("i1", narrow, tensor=True), {"axis": added})
                mask = self._begin(tt.BROADCAST, [mask], Type("i1", shape, tensor=True))
            self.masks[shape, axis] = mask
        return mask

    def rewrite(self, stores: list[Operation]) -> None:
        """Rewrites every operation that ``stores`` need, and removes unused operations."""
        for store in stores:
            pointer, value, mask = (part and self._move(part, 0) for part in store_parts(store))
            assert pointer is not None
            assert value is not None
            inside = self._both(mask, pointer.type.shape, 0, store)
            self._insert_part(store, tt.STORE, [pointer, value, inside], None, dict(store.attributes))
            drop(self.block, store)
        for (loop, index), axis in self.plan.carried.items():
            end = loop.regions[0].blocks[0].operations[-1]
            for operation, position in ((loop, 3 + index), (end, index)):
                set_operand(operation, position, self._move(operation.operands[position], axis))
        _drop_unused(self.block)

    def _insert_part(
        self,
        neighbor: Operation,
        name: str,
        operands: list[Value],
        type_: Type | None,
        attributes: dict[str, Attribute],
    ) -> Value | None:
        """Inserts a new operation before ``neighbor``, and returns its result."""
        block = neighbor.block
        assert block is not None
        results = [] if type_ is None else [Value(f"{neighbor.results[0].name}_part", type_)]
        operation = Operation(name, operands, results, attributes, location=neighbor.location)
        insert(block, block.operations.index(neighbor), operation)
        return results[0] if results else None

    def _both(self, mask: Value | None, shape: tuple[int, ...], axis: int, operation: Operation) -> Value:
        inside = self._mask(shape, axis)
        if mask is None:
            return inside
        block = operation.block
        assert block is not None
        result = Value(f"{mask.name}_inside", mask.type)
        conjunction = Operation(arith.ANDI, [mask, inside], [result], {}, location=operation.location)
        insert(block, block.operations.index(operation), conjunction)
        return result

    def _move(self, value: Value, axis: int) -> Value:
        """Returns ``value`` recomputed for the rows of the part."""
        key = (value, axis)
        if key not in self.moved:
            self.moved[key] = self._moved(value, axis)
        return self.moved[key]

    def _moved(self, value: Value, axis: int) -> Value:
        operation = value.owner
        if operation is None or _carried_place(value) is not None:
            return value
        if operation.name == tt.MAKE_RANGE:
            attributes: dict[str, Attribute] = {"overflowFlags": "#arith.overflow<none>"}
            block = operation.block
            assert block is not None
            result = Value(f"{value.name}_part", value.type)
            addition = Operation(arith.ADDI, [value, self.first], [result], attributes, location=operation.location)
            insert(block, block.operations.index(operation) + 1, addition)
            return result
        sources = dict(self.plan.sources_of(value, axis))
        operands = [
            self._move(operand, sources[operand]) if operand in sources else operand for operand in operation.operands
        ]
        if operands == operation.operands:
            return value
        attributes = dict(operation.attributes)
        if operation.name == tt.LOAD:
            pointer, mask, other = load_parts(operation)
            pointer, mask, other = (part and self._move(part, axis) for part in (pointer, mask, other))
            assert pointer is not None
            operands = [pointer, self._both(mask, value.type.shape, axis, operation), *([other] if other else [])]
            attributes["operandSegmentSizes"] = (1, 1, int(other is not None))
        made_value = self._insert_part(operation, operation.name, operands, value.type, attributes)
        assert made_value is not None
        return made_value


def _drop_unused(block: Block) -> None:
    """Removes operations without effects whose results are unused, in ``block`` and the loops inside it."""
    for operation in reversed(block.operations[:]):
        for region in operation.regions:
            for inner in region.blocks:
                _drop_unused(inner)
        if operation.name not in _STAYS and not any(result.uses for result in operation.results):
            drop(block, operation)

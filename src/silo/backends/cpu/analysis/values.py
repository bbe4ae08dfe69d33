"""Properties of values and of the operations that make them: costs, axes, constants, parts."""

from __future__ import annotations

from silo.backends.cpu.analysis.combining import combining_operation
from silo.backends.cpu.operations import arith, tt
from silo.backends.cpu.operations.table import OPAQUE, ORDERED, VIEWS, WHOLE, own_cost
from silo.sources.triton.ssa import Block, Operation, Value

__all__ = [
    "arithmetic_cost",
    "constant_scalar",
    "defining_block",
    "dot_inputs",
    "first_tensor",
    "inner_axis",
    "is_ordered",
    "is_repeated_load",
    "is_unit_reshape",
    "is_whole",
    "load_parts",
    "loaded_by",
    "recompute_cost",
    "scalar_source",
    "store_parts",
    "stored_operands",
]

_COST_LIMIT = 2.0**40
# Of a load whose element serves a whole run of an innermost loop.
_REPEATED_LOAD_COST = 4.0
_SHORTEST_RUN = 16


def recompute_cost(value: Value, known: dict[Value, float]) -> float:
    """About how many cheap operations evaluating one element of ``value`` costs, from buffers and scalars.

    ``known`` memoises over one function. A value that reads memory costs more than any threshold.
    """
    found = known.get(value)
    if found is not None:
        return found
    operation = value.owner
    if operation is None or not value.type.tensor or operation.name in OPAQUE:
        cost = 0.0
    else:
        own = _REPEATED_LOAD_COST if is_repeated_load(operation) else own_cost(operation)
        cost = own + sum(recompute_cost(operand, known) for operand in operation.operands)
    cost = min(cost, _COST_LIMIT)
    known[value] = cost
    return cost


def is_repeated_load(operation: Operation) -> bool:
    """Whether a ``tt.load`` reads one element again and again: at ``base + i // d`` for a constant ``d``.

    Its mask, if it has one, reads no memory.
    """
    if operation.name != tt.LOAD:
        return False
    pointer, mask, other = load_parts(operation)
    made = pointer.owner
    if (
        made is None
        or made.name != tt.ADDPTR
        or scalar_source(made.operands[0]) is None
        or not _is_quotient(made.operands[1])
    ):
        return False
    return _reads_nothing(mask) and (other is None or scalar_source(other) is not None)


def _is_quotient(value: Value) -> bool:
    operation = value.owner
    while operation is not None and operation.name == arith.EXTSI:
        operation = operation.operands[0].owner
    if operation is None or operation.name != arith.DIVSI:
        return False
    divisor = constant_scalar(operation.operands[1])
    return isinstance(divisor, int) and divisor >= _SHORTEST_RUN and _reads_nothing(operation.operands[0])


def _reads_nothing(value: Value | None) -> bool:
    """Whether a value is made of scalars, ranges and arithmetic of integers alone."""
    if value is None or not value.type.tensor:
        return True
    operation = value.owner
    if operation is None or operation.regions:
        return False
    if operation.name not in VIEWS and operation.name != tt.MAKE_RANGE and not operation.name.startswith("arith."):
        return False
    return all(_reads_nothing(operand) for operand in operation.operands)


def arithmetic_cost(cost: float) -> float:
    """The part of a ``recompute_cost`` that is not reading memory."""
    return cost if cost >= _COST_LIMIT else cost % tt.LOAD_COST


def defining_block(value: Value) -> Block | None:
    """The block in which ``value`` comes to be."""
    return value.owner.block if value.owner is not None else value.block


def is_unit_reshape(operation: Operation) -> bool:
    """Whether a ``tt.reshape`` only adds or removes dimensions of extent one."""
    before = [extent for extent in operation.operands[0].type.shape if extent != 1]
    after = [extent for extent in operation.result.type.shape if extent != 1]
    return before == after


def is_ordered(operation: Operation) -> bool:
    """Whether the operation has a loop nest of its own that runs in order. Of scalars it is just one statement."""
    if not any(operand.type.tensor for operand in operation.operands):
        return False
    if operation.name == tt.REDUCE:
        return combining_operation(operation) is None
    return operation.name in ORDERED


def is_whole(operation: Operation) -> bool:
    """Whether the operation takes whole tensors from memory where code is optimized: running sums do there, too."""
    return operation.name in WHOLE or _is_running_sum(operation)


def _is_running_sum(operation: Operation) -> bool:
    """Whether a ``tt.scan`` adds along rows that lie in one piece, for which the runtime has functions."""
    if operation.name != tt.SCAN or operation.operands[0].type.element not in {"f32", "f64", "i32", "i64"}:
        return False
    combining = combining_operation(operation)
    axis = operation.attributes["axis"]
    assert isinstance(axis, int)
    shape = operation.operands[0].type.shape
    within = all(extent == 1 for extent in shape[axis + 1 :])
    return within and combining is not None and combining.name in {arith.ADDF, arith.ADDI}


def first_tensor(operation: Operation) -> Value:
    """The operand whose indices an ordered nest runs over."""
    return next(operand for operand in operation.operands if operand.type.tensor)


def stored_operands(operation: Operation) -> frozenset[int]:
    """Positions of the operands that must lie in memory for one element of the result to be evaluated."""
    match operation.name:
        case tt.GATHER:
            return frozenset({0})
        case tt.CAT:
            return frozenset({0, 1})
        case tt.RESHAPE if not is_unit_reshape(operation):
            return frozenset({0})
        case _:
            return frozenset()


def inner_axis(view: Operation, axis: int | None) -> int | None:
    """Which axis of an operand follows the ``axis`` of the result; None where the operand has no such."""
    if axis is None or view.name == tt.SPLAT:
        return None
    if view.name == tt.SPLIT:
        return axis
    if view.name == tt.JOIN:
        return axis if axis < len(view.operands[0].type.shape) else None
    if view.name not in VIEWS:
        return axis
    before, after = view.operands[0].type.shape, view.result.type.shape
    match view.name:
        case tt.EXPAND_DIMS:
            added = view.attributes["axis"]
            assert isinstance(added, int)
            return None if axis == added else axis - (axis > added)
        case tt.BROADCAST:
            return axis if before[axis] == after[axis] else None
        case tt.TRANS:
            order = view.attributes["order"]
            assert isinstance(order, tuple)
            source = order[axis]
            assert isinstance(source, int)
            return source
        case _:
            if after[axis] == 1 or not is_unit_reshape(view):
                return None
            rank = sum(extent != 1 for extent in after[:axis])
            return [place for place, extent in enumerate(before) if extent != 1][rank]


def constant_scalar(value: Value) -> int | float | bool | None:
    """The one value that a constant (scalar or splat) holds, else None."""
    operation = value.owner
    if operation is None or operation.name != arith.CONSTANT:
        return None
    attribute = operation.attributes["value"]
    if isinstance(attribute, (int, float)):
        return attribute
    return getattr(attribute, "splat", None)


def scalar_source(value: Value) -> Value | None:
    """The scalar or splat constant that every element of ``value`` equals, where that shows, else None."""
    while value.type.tensor:
        operation = value.owner
        if operation is None:
            return None
        if operation.name == arith.CONSTANT:
            return value if constant_scalar(value) is not None else None
        if operation.name not in VIEWS:
            return None
        value = operation.operands[0]
    return value


def load_parts(operation: Operation) -> tuple[Value, Value | None, Value | None]:
    """Pointer, mask and ``other`` of a ``tt.load``."""
    groups = operation.operand_segments()
    if len(groups) == 1:
        operands = [*operation.operands, None, None]
        pointer = operands[0]
        assert pointer is not None
        return pointer, operands[1], operands[2]
    return groups[0][0], (groups[1][0] if groups[1] else None), (groups[2][0] if groups[2] else None)


def store_parts(operation: Operation) -> tuple[Value, Value, Value | None]:
    """Pointer, value and mask of a ``tt.store``."""
    operands = operation.operands
    return operands[0], operands[1], (operands[2] if len(operands) > 2 else None)


def dot_inputs(operation: Operation) -> tuple[Value, ...]:
    """The operands of a dot but for the accumulator, the third: its factors, and their scales if it has any."""
    return (*operation.operands[:2], *operation.operands[3:])


def loaded_by(value: Value) -> Operation | None:
    """The ``tt.load`` that ``value`` comes from, by nothing but transpositions."""
    operation = value.owner
    while operation is not None and operation.name == tt.TRANS:
        operation = operation.operands[0].owner
    return operation if operation is not None and operation.name == tt.LOAD else None

"""Properties of values and of the operations that make them: axes, constants, parts."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.combining import combining_operation
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.operation_table import ORDERED, VIEWS, WHOLE
from silo.kinds.triton.front.ssa import Block, Operation, Value

__all__ = [
    "constant_scalar",
    "defining_block",
    "dot_inputs",
    "first_tensor",
    "inner_axis",
    "is_ordered",
    "is_unit_reshape",
    "is_whole",
    "load_parts",
    "loaded_by",
    "scalar_source",
    "store_parts",
    "stored_operands",
]


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

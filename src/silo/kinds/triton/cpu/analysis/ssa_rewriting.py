"""Small changes of the SSA form, which keep the lists of uses true."""

from __future__ import annotations

from silo.kinds.triton.front.ssa import Block, Operation, Type, Value

__all__ = ["cast", "drop", "insert", "replace"]


def insert(block: Block, place: int, operation: Operation) -> None:
    """Put a new operation into ``block``, before the one at ``place``."""
    operation.block = block
    for result in operation.results:
        result.owner = operation
    for operand in operation.operands:
        operand.uses.append(operation)
    block.operations.insert(place, operation)


def replace(old: Value, new: Value) -> None:
    """Let every user of ``old`` use ``new``."""
    for user in dict.fromkeys(old.uses):
        for position, operand in enumerate(user.operands):
            if operand is old:
                user.operands[position] = new
                new.uses.append(user)
    old.uses.clear()


def drop(block: Block, operation: Operation) -> None:
    """Take an operation that nobody uses out of ``block``."""
    for operand in operation.operands:
        operand.uses.remove(operation)
    block.operations.remove(operation)


def cast(block: Block, name: str, value: Value, type_: Type, beside: Operation, *, after: bool) -> Value:
    """The result of a new operation ``name`` of ``value``, right before ``beside`` or after it."""
    result = Value(f"{value.name}_{type_.element}", type_)
    operation = Operation(name, [value], [result], {}, location=beside.location)
    insert(block, block.operations.index(beside) + after, operation)
    return result

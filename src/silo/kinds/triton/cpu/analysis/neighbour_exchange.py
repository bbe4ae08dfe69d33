"""Finds elements exchanged with their neighbours: Triton makes sorts and flips of that, spelled with exclusive or.

Along an axis of extent 2, ``x ^ (x[0] ^ x[1])`` is ``x`` with its two elements exchanged.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.combining import combining_operation
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.own import MIRROR
from silo.kinds.triton.front.ssa import Block, Module, Operation, Value

__all__ = ["find_mirrors"]


def find_mirrors(module: Module) -> None:
    """Replace what exchanges elements by ``silo.mirror``, in place."""
    for operation in module.walk():
        if operation.name != arith.XORI:
            continue
        for value, folded in (operation.operands, reversed(operation.operands)):
            reduce = _folded(folded, value)
            if reduce is not None:
                _replace(operation, value, reduce)
                break


def _folded(value: Value, source: Value) -> Operation | None:
    """The reduction of which ``value`` is the result, spread again over the axis that it folded."""
    spread = value.owner
    if spread is None or spread.name != tt.BROADCAST:
        return None
    expand = spread.operands[0].owner
    if expand is None or expand.name != tt.EXPAND_DIMS:
        return None
    reduce = expand.operands[0].owner
    if reduce is None or reduce.name != tt.REDUCE or reduce.operands != [source]:
        return None
    combining, axis = combining_operation(reduce), reduce.attributes["axis"]
    assert isinstance(axis, int)
    exclusive = combining is not None and combining.name == arith.XORI
    return reduce if exclusive and expand.attributes["axis"] == axis and source.type.shape[axis] == 2 else None


def _replace(operation: Operation, value: Value, reduce: Operation) -> None:
    dropped = [operand for operand in operation.operands if operand is not value]
    operation.name = MIRROR
    operation.operands = [value]
    operation.attributes = {"axis": reduce.attributes["axis"]}
    for operand in dropped:
        operand.uses.remove(operation)
        _drop_unused(operand)


def _drop_unused(root: Value) -> None:
    """Take away what computes ``root`` if nothing else uses it: views and the reduction."""
    pending = [root]
    while pending:
        operation = pending.pop().owner
        if operation is None or any(result.uses for result in operation.results):
            continue
        if operation.name not in {tt.BROADCAST, tt.EXPAND_DIMS, tt.REDUCE}:
            continue
        block = operation.block
        assert isinstance(block, Block)
        block.operations.remove(operation)
        for operand in operation.operands:
            operand.uses.remove(operation)
        pending.extend(operation.operands)

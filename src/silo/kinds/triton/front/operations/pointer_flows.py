"""Flows: the values that an operation hands its operands on to, so that pointers can be followed to their roots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from silo.kinds.triton.front.ssa import Module, Operation, Value

__all__ = [
    "Flow",
    "branch_flow",
    "call_flow",
    "derived",
    "for_flow",
    "if_flow",
    "no_flow",
    "reduction_flow",
    "while_flow",
]

Flow: TypeAlias = "Callable[[Module, Operation], Iterator[tuple[Value, Value]]]"
"""(source, target) of every value that an operation of a module hands to another value."""


def derived(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Address arithmetic and changes of shape: the results point where the operands point."""
    return ((source, target) for target in operation.results for source in operation.operands)


def _terminators(operation: Operation, region: int) -> Iterator[Operation]:
    for block in operation.regions[region].blocks if region < len(operation.regions) else ():
        if block.operations:
            yield block.operations[-1]


def for_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """A counted loop: its carried values, from operands and yields to the block and the results."""
    carried = operation.regions[0].blocks[0].arguments[1:]
    yield from zip(operation.operands[3:], carried, strict=False)
    yield from zip(operation.operands[3:], operation.results, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands, carried, strict=False)
        yield from zip(end.operands, operation.results, strict=False)


def if_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """A choice: from the yields to the results."""
    for region in range(len(operation.regions)):
        for end in _terminators(operation, region):
            yield from zip(end.operands, operation.results, strict=False)


def while_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """A loop with a condition: from operands, the condition and yields to both regions and the results."""
    before, after = (operation.regions[index].blocks[0].arguments for index in (0, 1))
    yield from zip(operation.operands, before, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands[1:], after, strict=False)
        yield from zip(end.operands[1:], operation.results, strict=False)
    for end in _terminators(operation, 1):
        yield from zip(end.operands, before, strict=False)


def reduction_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """A reduction or a scan: from the operands and its region to the results."""
    inner = operation.regions[0].blocks[0].arguments
    yield from zip((*operation.operands, *operation.operands), inner, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands, operation.results, strict=False)


def branch_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """A branch: to the arguments of its successors."""
    for index, block in enumerate(operation.successors):
        yield from zip(operation.successor_operands(index), block.arguments, strict=False)


def call_flow(module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """A call: to the function's arguments, and from its returns."""
    callee = module.functions.get(operation.callee)
    if callee is None or not callee.regions[0].blocks:
        return
    yield from zip(operation.operands, callee.regions[0].blocks[0].arguments, strict=False)
    for end in _terminators(callee, 0):
        if end.name == "tt.return":
            yield from zip(end.operands, operation.results, strict=False)


def no_flow(_module: Module, _operation: Operation) -> Iterator[tuple[Value, Value]]:
    """None of its operands reaches another value."""
    return iter(())

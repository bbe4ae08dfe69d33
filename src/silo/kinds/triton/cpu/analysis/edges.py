"""Branches whose two edges lead to one block, as Triton leaves chains of ``if ...: return ...``."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.ssa_rewriting import insert
from silo.kinds.triton.front.operations import arith, flow
from silo.kinds.triton.front.ssa import Module, Operation, Value

__all__ = ["join_edges"]


def join_edges(module: Module) -> None:
    """Make each such branch a jump, in place: what the edges pass is selected before it."""
    for operation in list(module.walk()):
        if operation.name == flow.COND_BR and operation.successors[0] is operation.successors[1]:
            _join(operation)


def _join(branch: Operation) -> None:
    (condition,), *edges = branch.operand_segments()
    block = branch.block
    assert block is not None
    for operand in branch.operands:
        operand.uses.remove(branch)
    pairs = zip(*edges, strict=True)
    passed = [left if left is right else _select(branch, condition, left, right) for left, right in pairs]
    branch.name, branch.operands, branch.attributes = flow.BR, passed, {}
    branch.successors = branch.successors[:1]
    for operand in passed:
        operand.uses.append(branch)


def _select(branch: Operation, condition: Value, left: Value, right: Value) -> Value:
    block = branch.block
    assert block is not None
    result = Value(f"{left.name}_or_{right.name}", left.type)
    operation = Operation(arith.SELECT, [condition, left, right], [result], {}, location=branch.location)
    insert(block, block.operations.index(branch), operation)
    return result

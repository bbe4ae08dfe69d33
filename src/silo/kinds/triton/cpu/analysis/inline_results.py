"""Replaces inline assembly of several results by one operation for each result."""

from __future__ import annotations

from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.nvidia.ptx import inline_parts
from silo.kinds.triton.front.ssa import Module

__all__ = ["split_inline"]


def split_inline(module: Module) -> None:
    """Make a text of several results one for each, in place: each computes its own from the same operands."""
    for operation in list(module.walk()):
        if operation.name == tt.ELEMENTWISE_INLINE_ASM and len(operation.results) > 1:
            assert operation.block is not None
            parts = inline_parts(operation)
            for operand in dict.fromkeys(operation.operands):
                times = operand.uses.count(operation)
                operand.uses[:] = [use for use in operand.uses if use is not operation]
                operand.uses += [part for part in parts for _ in range(times)]
            for part, result in zip(parts, operation.results, strict=True):
                result.owner, result.index = part, 0
            place = operation.block.operations.index(operation)
            operation.block.operations[place : place + 1] = parts

"""The functions that reductions and scans apply to two elements."""

from __future__ import annotations

from silo.kinds.triton.front.operations.operation_table import ASSOCIATIVE
from silo.kinds.triton.front.ssa import Operation

__all__ = ["combining_operation"]


def combining_operation(operation: Operation) -> Operation | None:
    """The only operation with which a ``tt.reduce`` or ``tt.scan`` combines two elements, or None for any other."""
    block = operation.regions[0].blocks[0]
    if len(operation.operands) != 1 or len(block.operations) != 2:
        return None
    combining, end = block.operations
    if combining.name not in ASSOCIATIVE or end.operands != combining.results:
        return None
    return combining if set(combining.operands) == set(block.arguments) else None

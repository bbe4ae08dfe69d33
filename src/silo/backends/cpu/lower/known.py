"""Which conditions hold wherever the leading part of an innermost loop is: it ends where one of its masks would not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from silo.backends.cpu.analysis.values import constant_scalar, is_unit_reshape, scalar_source
from silo.backends.cpu.lower.index import Index, remap
from silo.backends.cpu.operations import arith, tt
from silo.backends.cpu.operations.table import VIEWS
from silo.sources.triton.ssa import Value

__all__ = ["holds_within"]


def holds_within(
    limits: Sequence[str], condition: Value, index: Index, limit_of: Callable[[Value, Index], str | None]
) -> bool:
    """Whether ``condition`` at ``index`` follows from ``limits`` that accesses of the loop have set already.

    ``limit_of`` is the limit that a comparison, or a condition which the loop does not change, would set; None where
    it must not be looked into, as its value lies in memory.
    """
    source = scalar_source(condition)
    if source is not None and constant_scalar(source) is not None:
        return bool(constant_scalar(source))
    limit = limit_of(condition, index)
    if limit is None:
        return False
    if limit and limit in limits:
        return True
    operation = condition.owner
    if operation is None or not condition.type.tensor:
        return False
    if operation.name in VIEWS and not (operation.name == tt.RESHAPE and not is_unit_reshape(operation)):
        return holds_within(limits, operation.operands[0], remap(operation, index), limit_of)
    if operation.name == arith.ANDI:
        return all(holds_within(limits, operand, index, limit_of) for operand in operation.operands)
    return False

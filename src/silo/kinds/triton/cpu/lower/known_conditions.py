"""Which conditions hold wherever the leading part of an innermost loop is: it ends where one of its masks would not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar, is_unit_reshape, scalar_source
from silo.kinds.triton.cpu.lower.index import Index, remap
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.operation_table import VIEWS
from silo.kinds.triton.front.ssa import Value

__all__ = ["holds_within"]


def holds_within(
    limits: Sequence[str], condition: Value, index: Index, limit_of: Callable[[Value, Index], str | None]
) -> bool:
    """Whether ``condition`` at ``index`` follows from ``limits`` that accesses of the loop have set already.

    ``limit_of`` is the limit that a comparison, or a condition which the loop does not change, would set; None where
    it must not be looked into, as its value lies in memory.
    """
    seen: set[tuple[Value, Index]] = set()
    pending = [(condition, index)]
    while pending:
        part = pending.pop()
        if part in seen:
            continue
        seen.add(part)
        source = scalar_source(part[0])
        if source is not None and constant_scalar(source) is not None:
            if not constant_scalar(source):
                return False
            continue
        limit = limit_of(*part)
        if limit is None:
            return False
        if limit and limit in limits:
            continue
        operands = _conjunction(*part)
        if not operands:
            return False
        pending.extend(reversed(operands))
    return True


def _conjunction(condition: Value, index: Index) -> list[tuple[Value, Index]]:
    """The conditions that hold together where ``condition`` does; [] if it is no conjunction and no view of one."""
    operation = condition.owner
    if operation is None or not condition.type.tensor:
        return []
    if operation.name in VIEWS and not (operation.name == tt.RESHAPE and not is_unit_reshape(operation)):
        return [(operation.operands[0], remap(operation, index))]
    return [(operand, index) for operand in operation.operands] if operation.name == arith.ANDI else []

"""Which loops do nothing but add one product to a carried tensor, so that several of their turns can be one product."""

from __future__ import annotations

from silo.kinds.triton.cpu.schedule.block_schedule import BlockSchedule, Carried, DotStep, ScalarStep
from silo.kinds.triton.front.operations.cpu.c_types import HALVES
from silo.kinds.triton.front.operations.operation_table import EFFECTS

__all__ = ["lone_dot"]


def lone_dot(plan: BlockSchedule, carried: list[Carried]) -> DotStep | None:
    """The dot that is all that the body of a loop does, adding to a carried tensor of the type of its sums."""
    rest = [step for step in plan.steps if not isinstance(step, ScalarStep)]
    step = rest[0] if len(rest) == 1 else None
    if not isinstance(step, DotStep):
        return None
    # Scalars are computed to look at an iteration, and again where it turns out to be no part of the product.
    if any(isinstance(other, ScalarStep) and other.operation.name in EFFECTS for other in plan.steps):
        return None
    plain = step.accumulator is None and not step.fresh and step.target.type.element not in HALVES
    in_place = step.left is not None and step.right is not None and len(step.target.type.shape) == 2
    others = [entry for entry in carried if entry.argument is not step.target]
    if not plain or not in_place or any(entry.kind == "buffer" for entry in others):
        return None
    return step

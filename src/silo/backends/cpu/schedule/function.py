"""Plans every block of a function."""

from __future__ import annotations

from silo.backends.cpu.options import CpuOptions
from silo.backends.cpu.schedule import optimized, reference
from silo.backends.cpu.schedule.plan import BlockPlan
from silo.sources.triton.ssa import Operation, Value

__all__ = ["plan_function"]


def plan_function(function: Operation, options: CpuOptions) -> list[BlockPlan]:
    """One plan for each block of ``function``, in order."""
    blocks = function.regions[0].blocks
    if options.mode == "reference":
        return [reference.plan_block(block) for block in blocks]
    plans: list[BlockPlan] = []
    external: set[Value] = set()
    for block in reversed(blocks):  # blocks are in an order where definitions come first
        plan = optimized.plan_block(block, frozenset(external))
        external |= {value for value, _ in plan.free}
        plans.insert(0, plan)
    return plans

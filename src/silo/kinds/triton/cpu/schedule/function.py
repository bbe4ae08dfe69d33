"""Plans every block of a function."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.value_properties import unchanged
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.schedule import optimized_schedule as optimized
from silo.kinds.triton.cpu.schedule import reference_schedule as reference
from silo.kinds.triton.cpu.schedule.block_schedule import BlockSchedule
from silo.kinds.triton.cpu.schedule.loop_values import declare_results
from silo.kinds.triton.front.operations.operation_table import BARRIERS
from silo.kinds.triton.front.ssa import Operation, Region, Value

__all__ = ["plan_function", "plan_region"]


def plan_function(function: Operation, options: CpuOptions) -> list[BlockSchedule]:
    """One plan for each block of ``function``, in order."""
    blocks = function.regions[0].blocks
    declare_results(function)
    if options.mode == "reference":
        return [reference.plan_block(block) for block in blocks]
    # After a barrier, a program may write memory that other indices read before the barrier, so the promise of
    # elements_apart (the order of indices does not matter) is not used for a function with barriers.
    disjoint = options.elements_apart and not _has_barrier(function)
    plans: list[BlockSchedule] = []
    external: dict[tuple[Value, bool], None] = {}
    with unchanged():
        # in reverse, because blocks that use a value come after the block that defines it
        for block in reversed(blocks):
            plan = optimized.plan_block(block, tuple(external), disjoint=disjoint)
            external |= dict.fromkeys(plan.free)
            plans.insert(0, plan)
    return plans


def plan_region(region: Region, options: CpuOptions) -> list[BlockSchedule]:
    """Plans each block of a region that is applied to single elements, and so contains only scalars."""
    plan_block = reference.plan_block if options.mode == "reference" else optimized.plan_block
    return [plan_block(block) for block in region.blocks]


def _has_barrier(operation: Operation) -> bool:
    inner = (op for region in operation.regions for block in region.blocks for op in block.operations)
    return any(op.name in BARRIERS or _has_barrier(op) for op in inner)

"""Facts that the optimised schedule depends on: users of values, orders of loops, loops with a single product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silo.kinds.triton.cpu.analysis.affine import unit_axis
from silo.kinds.triton.cpu.analysis.costs import row_axis
from silo.kinds.triton.cpu.analysis.value_properties import load_parts, store_parts
from silo.kinds.triton.cpu.schedule.block_schedule import (
    BlockSchedule,
    Carried,
    DotStep,
    NestGroup,
    ReduceSink,
    ScalarStep,
    Step,
    StoreSink,
)
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.c_types import HALVES
from silo.kinds.triton.front.operations.operation_table import ATOMICS, EFFECTS, MESSAGES
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = [
    "Demand",
    "inner_axis_of",
    "lone_dot",
    "one_by_one",
    "read_across",
    "reads_out_of_order",
    "transposed_by",
    "whole_demand",
]

# ---- The demands on a value: which steps use it, and in which way ----


@dataclass(frozen=True, slots=True)
class Demand:
    """One use of a value.

    identity: the step uses the element at the index of its own nest. stored: the step needs the whole value in memory.
    inner: the axis of the value along which the nest's innermost loop runs, None if the value does not change along it.
    """

    step: Step | None  # the step that uses the value; None stands for the end of the block
    identity: bool = False
    stored: bool = False
    inner: int | None = None


def whole_demand(group: NestGroup) -> Demand:
    """Returns the demand of a nest that uses, at each of its indices, the value's element at the same index."""
    return Demand(group, identity=True, inner=group.inner)


def reads_out_of_order(operation: Operation, demands: Sequence[Demand]) -> bool:
    """Whether the operation loads successive addresses along one axis, but a user needs them along another axis."""
    axis = row_axis(operation)
    return axis is not None and any(demand.inner != axis for demand in demands)


def one_by_one(step: Step | None) -> bool:
    """Whether the step is an ordered operation whose nest is a single loop over all elements, testing every mask."""
    operation = step.ordered if isinstance(step, NestGroup) else None
    return operation is not None and operation.name not in ATOMICS | MESSAGES


def transposed_by(demands: Sequence[Demand], across: int) -> NestGroup | None:
    """The only nest that uses a tile which is read along the axis ``across``; None if there is no such nest.

    The nest must use the tile at its own indices and only store. Such a nest may read the tile from memory part by part
    while it stores, if none of its stores writes an address that another element of the nest reads.
    """
    nests = {demand.step for demand in demands}
    (nest,) = nests if len(nests) == 1 else (None,)
    if not isinstance(nest, NestGroup) or not all(demand.identity and not demand.stored for demand in demands):
        return None
    stores = all(isinstance(sink, StoreSink) for sink in nest.sinks)
    matrix = sum(extent != 1 for extent in nest.shape) == _MATRIX
    return nest if stores and nest.inner != across and matrix else None


_FEWEST_COLUMNS = 8
_MATRIX = 2

# ---- The axis of a nest's innermost loop ----


def inner_axis_of(group: NestGroup) -> int:
    """The axis of the innermost loop: the axis along which stores write successive addresses, if all stores share it.

    A nest of reductions along rows has columns innermost if the reductions only read tiles that are contiguous along
    columns.
    """
    last = len(group.shape) - 1
    reduces = [sink.operation for sink in group.sinks if isinstance(sink, ReduceSink)]
    if len(reduces) == len(group.sinks) and all(_reads_columns(reduce) for reduce in reduces):
        return 0
    if not group.stores or len(group.stores) != len(group.sinks):
        return last
    axes = {unit_axis(store_parts(store)[0]) for store in group.stores}
    (axis,) = axes if len(axes) == 1 else (None,)
    return last if axis is None else axis


_SUMMED = frozenset({"f32", "f64", "i32", "i64"})


def _reads_columns(reduce: Operation) -> bool:
    """Whether a reduction of a matrix along its rows reads only tiles that are contiguous along columns."""
    result, matrix = reduce.result.type, reduce.operands[0].type
    if reduce.attributes["axis"] != 1 or len(matrix.shape) != 2 or min(matrix.shape) < _FEWEST_COLUMNS:
        return False
    if result.element not in _SUMMED:
        return False
    reads_column, seen, pending = False, set[Value](), [reduce.operands[0]]
    while pending:
        value = pending.pop()
        operation = value.owner
        if value in seen or 1 in value.type.shape or len(value.type.shape) != 2:
            continue
        seen.add(value)
        if operation is None:
            return False
        if operation.name == tt.LOAD:
            if unit_axis(load_parts(operation)[0]) != 0:
                return False
            reads_column = True
        elif operation.name.startswith(("arith.", "math.")) or operation.name in {tt.BROADCAST, tt.SPLAT}:
            pending.extend(operation.operands)
        else:
            return False
    return reads_column


def read_across(load: Operation, inner: Sequence[int | None]) -> int | None:
    """The axis along which a load reads successive addresses, if every nest that needs it runs along another axis.

    ``inner`` has an item for each of these nests: the axis of the loaded value along which its innermost loop runs, or
    None if the value does not change along it. Returns None if an item is None or is the load's own axis.
    """
    axis = unit_axis(load_parts(load)[0])
    if axis is None or any(other is None or other == axis for other in inner):
        return None
    return axis


# ---- Loops that only add a product to a carried tensor ----


def lone_dot(plan: BlockSchedule, carried: list[Carried]) -> DotStep | None:
    """The only dot of a loop body that does nothing else, if it adds to a carried tensor in that tensor's type."""
    block_steps = [step for step in plan.steps if not isinstance(step, ScalarStep)]
    step = block_steps[0] if len(block_steps) == 1 else None
    if not isinstance(step, DotStep):
        return None
    # The body's scalar operations must be free of effects: in the first iteration that turns out not to be part of the
    # product, they are evaluated twice.
    if any(isinstance(other, ScalarStep) and other.operation.name in EFFECTS for other in plan.steps):
        return None
    plain = step.accumulator is None and not step.fresh and step.target.type.element not in HALVES
    in_place = step.left is not None and step.right is not None and len(step.target.type.shape) == 2
    others = [entry for entry in carried if entry.argument is not step.target]
    if not plain or not in_place or any(entry.kind == "buffer" for entry in others):
        return None
    return step

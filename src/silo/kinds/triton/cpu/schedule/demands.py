"""Who needs a value, and how: what the optimised schedule decides by whether it is evaluated in place or stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silo.kinds.triton.cpu.analysis.costs import row_axis
from silo.kinds.triton.cpu.schedule.block_schedule import NestGroup, Step, StoreSink
from silo.kinds.triton.front.operations.operation_table import ATOMICS, MESSAGES
from silo.kinds.triton.front.ssa import Operation

__all__ = ["Demand", "one_by_one", "reads_out_of_order", "turned_by", "whole_demand"]


@dataclass(frozen=True, slots=True)
class Demand:
    """One place that needs a value.

    identity: at the index of the nest itself. stored: as a whole in memory.
    inner: the axis of the value that follows the innermost loop of a nest, None where it does not change along it.
    """

    step: Step | None  # None stands for after the last step
    identity: bool = False
    stored: bool = False
    inner: int | None = None


def whole_demand(group: NestGroup) -> Demand:
    """The demand for the value of every index of ``group``."""
    return Demand(group, identity=True, inner=group.inner)


def reads_out_of_order(operation: Operation, demands: Sequence[Demand]) -> bool:
    """Whether the operation is a load of successive places that are wanted in another order."""
    axis = row_axis(operation)
    return axis is not None and any(demand.inner != axis for demand in demands)


def one_by_one(step: Step | None) -> bool:
    """Whether the nest of an ordered operation has one loop for all elements, in which every mask is asked."""
    operation = step.ordered if isinstance(step, NestGroup) else None
    return operation is not None and operation.name not in ATOMICS | MESSAGES


def turned_by(demands: Sequence[Demand], across: int) -> NestGroup | None:
    """The nest that alone wants a tile which is read along ``across``, at its own indices; None where there is none.

    Such a nest may take the tile from memory in parts as it goes, where nothing that it writes is read by another
    element.
    """
    nests = {demand.step for demand in demands}
    (nest,) = nests if len(nests) == 1 else (None,)
    if not isinstance(nest, NestGroup) or not all(demand.identity and not demand.stored for demand in demands):
        return None
    stores = all(isinstance(sink, StoreSink) for sink in nest.sinks)
    return nest if stores and nest.inner != across and len(nest.shape) == 2 else None

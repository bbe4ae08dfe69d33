"""Which axis of a nest the innermost loop goes along: the one along which memory is written, and read, in order.

A transpose reads along one axis and writes along the other. Its tile is read in order into a buffer, which is small
enough for a near cache, and from there written in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from silo.kinds.triton.cpu.analysis.affine import unit_axis
from silo.kinds.triton.cpu.analysis.value_properties import load_parts, store_parts
from silo.kinds.triton.cpu.schedule.block_schedule import NestGroup
from silo.kinds.triton.front.ssa import Operation

__all__ = ["inner_axis_of", "read_across"]


def inner_axis_of(group: NestGroup) -> int:
    """The axis for the innermost loop: the one along which stores write successive places, where all of them do."""
    last = len(group.shape) - 1
    if not group.stores or len(group.stores) != len(group.sinks):
        return last
    found = {unit_axis(store_parts(store)[0]) for store in group.stores}
    (axis,) = found if len(found) == 1 else (None,)
    return last if axis is None else axis


def read_across(load: Operation, inner: Sequence[int | None]) -> int | None:
    """The axis along which a load reads successive places, where every nest that needs it goes along another one.

    ``inner`` are the axes of the loaded value that the innermost loops of these nests follow; None follows none.
    """
    axis = unit_axis(load_parts(load)[0])
    if axis is None or any(other is None or other == axis for other in inner):
        return None
    return axis

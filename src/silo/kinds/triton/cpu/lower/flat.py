"""Loops over many short axes as one or two long ones, of which the indices along the axes are bits.

Sorts work on tensors with one axis of extent 2 for each bit of the place: loops over such axes would be all overhead.
"""

from __future__ import annotations

import math

from silo.kinds.triton.cpu.loop_ir import Define, Statement
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.schedule.block_schedule import BufferFill, NestGroup, StoreSink
from silo.kinds.triton.front.operations.operation_table import OPAQUE
from silo.kinds.triton.front.operations.own import MIRROR
from silo.kinds.triton.front.ssa import Value

__all__ = ["FlatLoops", "flat_cut"]

_SHORT = 16  # an innermost loop of fewer iterations is not worth being one
_FEWEST_AXES = 3


class FlatLoops:
    """The axes before ``cut`` as the outer loop, the others as the inner one; all extents are powers of two."""

    def __init__(self, scope: LoweringScope, shape: tuple[int, ...], index: tuple[str, ...], cut: int) -> None:
        self.shape, self.index, self.cut = shape, index, cut
        parts = [shape[:cut], shape[cut:]] if cut else [shape]
        self.loops = [(scope.name("i"), math.prod(part)) for part in parts]
        self.levels = {name: self._level(axis) for axis, name in enumerate(index) if name != "0"}

    def coordinates(self, level: int) -> list[Statement]:
        """Definitions of the indices along the axes of one loop."""
        return [
            Define("int32_t", name, self._coordinate(axis, level))
            for axis, name in enumerate(self.index)
            if name != "0" and self._level(axis) == level
        ]

    def _coordinate(self, axis: int, level: int) -> str:
        return f"{self.loops[level - 1][0]} >> {self._shift(axis)} & {self.shape[axis] - 1}"

    def linear(self, exchanged: list[int]) -> str:
        """The place of the present index with some of its axes, of extent 2, mirrored."""
        texts: list[str] = []
        for level, (name, _) in enumerate(self.loops, 1):
            bits = sum(1 << self._shift(axis) for axis in exchanged if self._level(axis) == level)
            texts.append(f"({name} ^ {bits})" if bits else name)
        return texts[0] if len(texts) == 1 else f"{texts[0]} * {self.loops[1][1]} + {texts[1]}"

    def _level(self, axis: int) -> int:
        return 2 if self.cut and axis >= self.cut else 1

    def _shift(self, axis: int) -> int:
        """Bits of the axes inside of this one in the same loop."""
        end = self.cut if self.cut and axis < self.cut else len(self.shape)
        return math.prod(self.shape[axis + 1 : end]).bit_length() - 1


def flat_cut(scope: LoweringScope, group: NestGroup) -> int | None:
    """Where to cut the axes of a nest for two flat loops, 0 for one; None where its loops are better as they are."""
    shape = group.shape
    long = [extent for extent in shape if extent != 1]
    if len(long) < _FEWEST_AXES or long[-1] >= _SHORT or any(extent & (extent - 1) for extent in shape):
        return None
    if group.checks or not all(isinstance(sink, BufferFill | StoreSink) for sink in group.sinks):
        return None
    mirrored = _mirrored_axes(scope, group)
    if not mirrored:
        cut = next((axis for axis in range(len(shape), 0, -1) if math.prod(shape[axis:]) >= _SHORT), 0)
        return cut if math.prod(shape[cut:]) >= _SHORT else 0
    # The elements of a run inside of every mirrored axis are exchanged as a whole.
    cut = max(mirrored) + 1
    return cut if math.prod(shape[cut:]) >= _SHORT else 0


def _mirrored_axes(scope: LoweringScope, group: NestGroup) -> set[int]:
    """The axes along which the nest reads mirrored elements."""
    found: set[int] = set()
    seen: set[Value] = set()
    pending = [operand for sink in group.sinks for operand in _roots(sink)]
    while pending:
        value = scope.resolve(pending.pop())
        operation = value.owner
        filled = any(isinstance(sink, BufferFill) and sink.value is value for sink in group.sinks)
        if value in seen or operation is None or operation.name in OPAQUE:
            continue
        seen.add(value)
        if scope.buffer(value) is not None and not filled:
            continue
        if operation.name == MIRROR:
            axis = operation.attributes["axis"]
            assert isinstance(axis, int)
            found.add(axis)
        pending.extend(operation.operands)
    return found


def _roots(sink: object) -> list[Value]:
    if isinstance(sink, BufferFill):
        return [sink.value]
    return list(sink.operation.operands) if isinstance(sink, StoreSink) else []

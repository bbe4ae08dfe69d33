"""The run-time check that lets loads and stores through different arguments share a loop."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.value_properties import load_parts
from silo.kinds.triton.cpu.loop_ir import Define
from silo.kinds.triton.cpu.lower.forms import AffineForms
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.schedule.block_schedule import NestGroup
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.c_types import element_bytes
from silo.kinds.triton.front.ssa import Operation

__all__ = ["safe_to_fuse"]


def safe_to_fuse(scope: LoweringScope, group: NestGroup) -> str:
    """Emit the ranges of the accesses that ``group.checks`` names; the C condition that fusing them is right.

    Two accesses may share a loop if they touch different memory, or if they touch the same place at the same index and
    no place twice.
    """
    ranges: dict[Operation, _Range] = {}
    for access in dict.fromkeys(access for pair in group.checks for access in pair):
        ranges[access] = _Range(scope, access)
    return " && ".join(f"({_pair(ranges[one], ranges[two], group.shape)})" for one, two in group.checks)


class _Range:
    """First byte, one past the last byte, and the step in bytes along each axis of one access."""

    def __init__(self, scope: LoweringScope, access: Operation) -> None:
        pointer = load_parts(access)[0] if access.name == tt.LOAD else access.operands[0]
        shape = pointer.type.shape
        nest = Nest(scope, shape)
        base, strides = AffineForms(scope, nest).of(pointer, tuple(range(len(shape))))
        size = element_bytes(pointer.type.element)
        for statement in nest.levels[0]:
            scope.emit(statement)
        self.base = scope.name("at")
        scope.emit(Define("int64_t", self.base, f"(int64_t)({base})"))
        self.strides: list[str] = []
        self.shape = shape
        low, high = [self.base], [self.base, str(size)]
        for axis, extent in enumerate(shape):
            if extent == 1:
                continue
            step = scope.name("step")
            scope.emit(Define("int64_t", step, f"{strides.get(axis, '0')} * {size}"))
            self.strides.append(step)
            low.append(f"({step} < 0 ? {step} * {extent - 1} : 0)")
            high.append(f"({step} > 0 ? {step} * {extent - 1} : 0)")
        self.low, self.high = scope.name("low"), scope.name("high")
        scope.emit(Define("int64_t", self.low, " + ".join(low)))
        scope.emit(Define("int64_t", self.high, " + ".join(high)))
        self.size = size
        extents = [extent for extent in shape if extent != 1]
        # Row-major and without overlap: each step passes everything the inner axes span.
        self.injective = [f"{step} != 0" for step in self.strides[-1:]]
        for outer, inner, extent in zip(self.strides, self.strides[1:], extents[1:], strict=False):
            self.injective.append(
                f"({outer} < 0 ? -{outer} : {outer}) >= ({inner} < 0 ? -{inner} : {inner}) * {extent}"
            )


def _pair(one: _Range, two: _Range, shape: tuple[int, ...]) -> str:
    disjoint = f"{one.high} <= {two.low} || {two.high} <= {one.low}"
    if one.size != two.size or one.shape != shape or two.shape != shape:
        return disjoint  # one place would meet several iterations
    same = [f"{one.base} == {two.base}", *(f"{a} == {b}" for a, b in zip(one.strides, two.strides, strict=True))]
    return f"{disjoint} || ({' && '.join([*same, *one.injective])})"

"""Checks against overlapping memory: at run time for the arguments of one loop, when compiling for scratch buffers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from silo.errors import CompileError
from silo.kinds.triton.cpu.analysis.value_properties import load_parts
from silo.kinds.triton.cpu.loop_ir import (
    Assign,
    Copy,
    Define,
    For,
    Forever,
    If,
    LoopBuffer,
    LoopCall,
    Return,
    Statement,
)
from silo.kinds.triton.cpu.lower.forms import AffineForms
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.schedule.block_schedule import NestGroup
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.c_types import element_bytes
from silo.kinds.triton.front.ssa import Operation

__all__ = ["check_sharing", "clashes", "safe_to_fuse"]

# ---- The run-time check that lets loads and stores through different arguments share a loop ----


def safe_to_fuse(scope: LoweringScope, group: NestGroup) -> str:
    """Emits code that computes the address ranges of the accesses in ``group.checks``.

    Returns the C condition under which the accesses may share a loop: each pair touches different memory, or the same
    address at the same index and no address at two indices.
    """
    ranges: dict[Operation, _Range] = {}
    for access in dict.fromkeys(access for pair in group.checks for access in pair):
        ranges[access] = _Range(scope, access)
    return " && ".join(f"({_pair(ranges[first], ranges[second], group.shape)})" for first, second in group.checks)


class _Range:
    """One access: its first byte, one past its last byte, and its step in bytes along each axis."""

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
        # The access touches no address twice if its last step is not 0, and each other step is at least the next step
        # times the extent of the next axis.
        self.injective = [f"{step} != 0" for step in self.strides[-1:]]
        for outer, inner, extent in zip(self.strides, self.strides[1:], extents[1:], strict=False):
            self.injective.append(
                f"({outer} < 0 ? -{outer} : {outer}) >= ({inner} < 0 ? -{inner} : {inner}) * {extent}"
            )


def _pair(one: _Range, two: _Range, shape: tuple[int, ...]) -> str:
    disjoint = f"{one.high} <= {two.low} || {two.high} <= {one.low}"
    if one.size != two.size or one.shape != shape or two.shape != shape:
        return disjoint  # accesses of other sizes or shapes may touch the same address in different iterations
    same = [f"{one.base} == {two.base}", *(f"{a} == {b}" for a, b in zip(one.strides, two.strides, strict=True))]
    return f"{disjoint} || ({' && '.join([*same, *one.injective])})"


# ---- The check, made on finished statements, that no two buffers which share memory are in use at once ----

_NAME = re.compile(r"\bb\d+\b")


def check_sharing(function: str, buffers: Sequence[LoopBuffer], body: Sequence[Statement]) -> None:
    """Raises ``CompileError`` if two ``buffers`` of ``function`` share memory while both are in use."""
    clashing = clashes(buffers, body)
    if clashing:
        pairs = ", ".join(
            f"{first.name} ({first.offset} to {first.offset + first.bytes}) and {second.name} (from {second.offset})"
            for first, second in clashing
        )
        raise CompileError(
            f"{function}: buffers in scratch memory would overwrite each other: {pairs}. This is a fault of Silo's and"
            " not of the kernel's: please report it with the kernel; nothing was run"
        )


def clashes(buffers: Sequence[LoopBuffer], body: Sequence[Statement]) -> list[tuple[LoopBuffer, LoopBuffer]]:
    """The pairs of ``buffers`` that share memory although both are in use at some point of ``body``.

    A buffer is in use from its first to its last mention. A buffer mentioned both before a loop and in it is in use
    until the loop ends, because the next iteration uses it again. A ``kept`` buffer is always in use.
    """
    spans = _Spans({buffer.name for buffer in buffers})
    spans.walk(body)
    used: list[tuple[int, int, LoopBuffer]] = []
    for buffer in buffers:
        first, last = (0, sys.maxsize) if buffer.kept else spans.found.get(buffer.name, (1, 0))
        if first <= last:
            used.append((first, last, buffer))
    used.sort(key=lambda entry: entry[2].offset)
    pairs: list[tuple[LoopBuffer, LoopBuffer]] = []
    for index, (first, last, buffer) in enumerate(used):
        for other_first, other_last, other in used[index + 1 :]:
            if other.offset >= buffer.offset + buffer.bytes:
                break
            if first <= other_last and other_first <= last:
                pairs.append((buffer, other))
    return pairs


class _Spans:
    """The first and last statement in which each name occurs.

    A name that occurs both before a loop and in it counts as used until the loop ends (see :func:`clashes`).
    """

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.clock = 0
        self.found: dict[str, tuple[int, int]] = {}

    def walk(self, body: Sequence[Statement]) -> None:
        """Records every name in ``body``."""
        for statement in body:
            self.clock += 1
            match statement:
                case For() if statement.end.isdigit():
                    # The loops of one nest count as one statement, because any iteration may read what another
                    # iteration writes.
                    for text in _texts([statement]):
                        self._note(text)
                case For(_, start, end, inner):
                    self._note(f"{start} {end} {statement.step}")
                    self._loop(inner)
                case Forever(inner):
                    self._loop(inner)
                case If(condition, then, otherwise):
                    self._note(condition)
                    self.walk(then)
                    self.walk(otherwise)
                case _:
                    for text in _texts([statement]):
                        self._note(text)

    def _loop(self, body: Sequence[Statement]) -> None:
        self.clock += 1
        start = self.clock
        self.walk(body)
        self.clock += 1
        for name, (first, last) in self.found.items():
            if first < start <= last:
                self.found[name] = first, self.clock

    def _note(self, text: str) -> None:
        for name in _NAME.findall(text):
            if name in self.names:
                first, _ = self.found.get(name, (self.clock, 0))
                self.found[name] = first, self.clock


def _texts(body: Sequence[Statement]) -> Iterator[str]:
    """Every piece of C text in ``body``."""
    for statement in body:
        match statement:
            case Define(_, _, value):
                yield value or ""
            case Assign(target, value, condition):
                yield f"{target} {value} {condition}"
            case LoopCall(text):
                yield text
            case Copy(target, source):
                yield f"{target.name} {source.name}"
            case Return(value):
                yield value
            case For(_, start, end, inner):
                yield f"{start} {end} {statement.step}"
                yield from _texts(inner)
            case Forever(inner):
                yield from _texts(inner)
            case If(condition, then, otherwise):
                yield condition
                yield from _texts(then)
                yield from _texts(otherwise)
            case _:
                pass

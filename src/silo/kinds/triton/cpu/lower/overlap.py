"""Checks of overlap: at run time of the arguments that share a loop, here of buffers that share memory."""

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


# ---- The check of finished statements that buffers sharing memory never hold values at the same time ----

_NAME = re.compile(r"\bb\d+\b")


def check_sharing(function: str, buffers: Sequence[LoopBuffer], body: Sequence[Statement]) -> None:
    """``CompileError`` if ``buffers`` of ``function`` share memory that both need."""
    found = clashes(buffers, body)
    if found:
        pairs = ", ".join(
            f"{one.name} ({one.offset} to {one.offset + one.bytes}) and {two.name} (from {two.offset})"
            for one, two in found
        )
        raise CompileError(
            f"{function}: buffers in scratch memory would overwrite each other: {pairs}. This is a fault of Silo's and"
            " not of the kernel's: please report it with the kernel; nothing was run"
        )


def clashes(buffers: Sequence[LoopBuffer], body: Sequence[Statement]) -> list[tuple[LoopBuffer, LoopBuffer]]:
    """The pairs of ``buffers`` that share memory although one is used in ``body`` while the other is.

    A buffer is in use from its first to its last mention. A buffer mentioned before a loop and in it is in use until
    the loop ends, because the next round uses it again; a ``kept`` buffer always is.
    """
    spans = _Spans({buffer.name for buffer in buffers})
    spans.walk(body)
    used: list[tuple[int, int, LoopBuffer]] = []
    for buffer in buffers:
        first, last = (0, sys.maxsize) if buffer.kept else spans.found.get(buffer.name, (1, 0))
        if first <= last:
            used.append((first, last, buffer))
    used.sort(key=lambda entry: entry[2].offset)
    found: list[tuple[LoopBuffer, LoopBuffer]] = []
    for place, (first, last, buffer) in enumerate(used):
        for other_first, other_last, other in used[place + 1 :]:
            if other.offset >= buffer.offset + buffer.bytes:
                break
            if first <= other_last and other_first <= last:
                found.append((buffer, other))
    return found


class _Spans:
    """First and last statement in which each name occurs, loops counted as above."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.clock = 0
        self.found: dict[str, tuple[int, int]] = {}

    def walk(self, body: Sequence[Statement]) -> None:
        """Note every name in ``body``."""
        for statement in body:
            self.clock += 1
            match statement:
                case For() if statement.end.isdigit():
                    # The loops of one nest: the writes of a round may be read in any other.
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

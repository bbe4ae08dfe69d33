"""The check of finished statements that buffers sharing memory never hold values at the same time.

Where buffers lie is decided from what the lowering said of their uses while it ran. Here the same is found from the
statements alone, so that a use that was not said, or a buffer that lasts longer than was thought, ends in an error and
never in wrong numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from silo.errors import CompileError
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

__all__ = ["check_sharing", "clashes"]

_NAME = re.compile(r"\bb\d+\b")


def check_sharing(function: str, buffers: Sequence[LoopBuffer], body: Sequence[Statement]) -> None:
    """``CompileError`` where ``buffers`` of ``function`` share memory that both need."""
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

    A buffer is in use from its first to its last mention. One mentioned before a loop and in it is in use until the
    loop ends, because the next round uses it again; one that is ``kept`` always is.
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
                    # The loops of one nest: what a round wrote may be read in any other.
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

"""The layout of scratch memory: buffers that are never in use at the same time share memory."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from silo.kinds.triton.cpu.loop_ir import LoopBuffer

__all__ = ["Lifetimes"]

_ALIGNMENT = 64


@dataclass(slots=True)
class Lifetimes:
    """The first and last use of each buffer, counted in steps; all uses within one step happen at the same time.

    A buffer that is in use when a loop starts and is used inside it stays in use until the loop ends, because the next
    iteration uses it again.
    """

    clock: int = 0
    spans: dict[LoopBuffer, list[int]] = field(default_factory=dict[LoopBuffer, list[int]])

    def touch(self, buffer: LoopBuffer) -> None:
        """Records a read or a write of ``buffer`` in the current step."""
        if buffer.external:
            return
        span = self.spans.setdefault(buffer, [self.clock, self.clock])
        span[1] = max(span[1], self.clock)

    def keep(self, buffer: LoopBuffer) -> None:
        """Records that ``buffer`` keeps its contents from program to program, so that nothing may share its memory."""
        buffer.kept = True
        self.spans[buffer] = [0, sys.maxsize]

    def advance(self) -> None:
        """Starts the next step."""
        self.clock += 1

    @contextmanager
    def loop(self) -> Generator[None]:
        """A context manager for the body of a loop, whose steps are repeated."""
        self.clock += 1
        start = self.clock
        yield
        self.clock += 1
        for span in self.spans.values():
            if span[0] < start <= span[1]:
                span[1] = max(span[1], self.clock)  # a kept buffer is in use longer than any loop

    def assign(self, *, shared: bool) -> int:
        """Assigns an offset to every buffer and returns the total bytes. Unless ``shared``, no buffers share memory."""
        placed: list[tuple[LoopBuffer, int, int]] = []
        total = 0
        for buffer, (first, last) in sorted(self.spans.items(), key=lambda item: (item[1][0], item[0].name)):
            size = -(-max(buffer.bytes, 1) // _ALIGNMENT) * _ALIGNMENT
            occupied = sorted(
                (other.offset, other.offset + -(-other.bytes // _ALIGNMENT) * _ALIGNMENT)
                for other, other_first, other_last in placed
                if not shared or (first <= other_last and other_first <= last)
            )
            offset = 0
            for start, end in occupied:
                if offset + size <= start:
                    break
                offset = max(offset, end)
            buffer.offset = offset
            placed.append((buffer, first, last))
            total = max(total, offset + size)
        return total

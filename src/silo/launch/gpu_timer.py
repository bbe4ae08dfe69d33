"""Timing kernels on GPUs with the driver's events, on the stream that launches go to.

A sample depends on the state of the L2 cache, which is part of the timing's name:

- ``cold``: one launch between two events, after a fill of twice the cache has put everything else out of it. The fill
  is enqueued first and takes longer than enqueuing the launch, so the device never waits for the host within a sample.
- ``warm``: launches back to back between two events; kernels shorter than the host takes to launch them are measured
  as slow as that.

Events count in steps of about half a microsecond; medians of many samples are finer than that.
"""

from __future__ import annotations

from collections.abc import Callable

from silo.core.plugins import driver_of
from silo.launch import native
from silo.launch.native import torch_with_gpu

__all__ = ["GpuTimer", "current_stream", "flush_bytes"]


def flush_bytes(kind: str, l2_bytes: int) -> int:
    """How much is written between cold samples.

    >>> flush_bytes("cuda", 50 << 20) >> 20
    100
    """
    return max(2 * l2_bytes, driver_of(kind).least_flush)


def current_stream(kind: str, index: int) -> int:
    """The stream that launches without ``stream=`` go to: torch's current stream if torch uses the GPU, else 0."""
    torch = torch_with_gpu(kind)
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_stream(index).cuda_stream)


class GpuTimer:
    """Implements :class:`silo.core.protocols.Timer`. Used by one thread."""

    def __init__(self, kind: str, index: int, l2_bytes: int, *, cold: bool) -> None:
        self._kind = kind
        self._index = index
        self._flush_bytes = flush_bytes(kind, l2_bytes)
        self._cold = cold
        self._flush: native.GpuBuffer | None = None
        self._events: list[native.GpuEvent] = []

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Nanoseconds that ``repeats`` launches take on the device.

        Raises the exception of a launch or of the device.
        """
        stream = current_stream(self._kind, self._index)
        if not self._cold:
            begin, end = self._pair(0)
            begin.record(stream)
            for _ in range(repeats):
                launch()
            end.record(stream)
            end.synchronize()
            return end.elapsed_ns(begin)
        if self._flush is None:
            self._flush = native.GpuBuffer((self._flush_bytes,), "uint8", self._kind, self._index)
        for turn in range(repeats):
            begin, end = self._pair(turn)
            self._flush.fill(0, stream)
            begin.record(stream)
            launch()
            end.record(stream)
        self._pair(repeats - 1)[1].synchronize()
        return sum(end.elapsed_ns(begin) for begin, end in (self._pair(turn) for turn in range(repeats)))

    def _pair(self, turn: int) -> tuple[native.GpuEvent, native.GpuEvent]:
        while len(self._events) < 2 * turn + 2:
            self._events.append(native.GpuEvent(self._kind, self._index))
        return self._events[2 * turn], self._events[2 * turn + 1]

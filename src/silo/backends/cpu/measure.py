"""Timing kernels on the CPU: wall time, caches as warm as the previous launch left them, no thread pinned."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["CPU_TIMING", "CpuTimer"]

# Wall time and not the CPU time of threads: a kernel spread over more threads is to win if it is done sooner.
CPU_TIMING = "cpu-wall-warm/1"


class CpuTimer:
    """Reads the monotonic clock round launches that return when the kernel is done.

    >>> CpuTimer().elapsed_ns(lambda: None, 3) >= 0
    True
    """

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Nanoseconds for ``repeats`` launches back to back."""
        clock = time.perf_counter_ns
        turns = range(repeats)
        begin = clock()
        for _ in turns:
            launch()
        return clock() - begin

"""Measures how much of this machine other programs use while something is timed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)  # columns user, nice, system, irq, softirq, steal of the line "cpu" (proc(5))


@dataclass(frozen=True)
class MachineLoad:
    """The average number of cores that other programs used (None if unknown), and the number of all cores."""

    others: float | None
    cores: int

    def __str__(self) -> str:
        if self.others is None:
            return f"the machine has {self.cores} cores; how busy they were is not counted here"
        said = f"other programs took {self.others:.1f} of {self.cores} cores meanwhile"
        return said + (": times of both sides are longer than on an idle machine" if self.others > 0.2 else "")


class LoadMeter:
    """Measures the use of the machine by other programs since this object was made."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._own = sum(os.times()[:4])
        self._all = _busy_seconds()

    def read(self) -> MachineLoad:
        """Return the use by other programs since the object was made."""
        cores = os.cpu_count() or 1
        now = _busy_seconds()
        if self._all is None or now is None:
            return MachineLoad(None, cores)
        elapsed = max(time.monotonic() - self._begin, 1e-3)
        own = sum(os.times()[:4]) - self._own
        return MachineLoad(max(now - self._all - own, 0) / elapsed, cores)


def _busy_seconds() -> float | None:
    """Return the seconds that all cores of the machine have worked so far; None outside Linux."""
    try:
        line = _STAT.read_text(encoding="ascii").split("\n", 1)[0]
    except OSError:
        return None
    counts = [int(word) for word in line.split()[1:]]
    return sum(counts[place] for place in _BUSY if place < len(counts)) / os.sysconf("SC_CLK_TCK")

"""Axes: from values to places, and the round values in between that are written there."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LinearScale", "LogScale"]


@dataclass(frozen=True, slots=True)
class LinearScale:
    """From ``low`` to ``high``, drawn from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Where a value lies."""
        span = self.high - self.low
        return self.start + (self.end - self.start) * ((value - self.low) / span if span else 0.5)

    def ticks(self, count: int = 6) -> list[float]:
        """Round values in the range, about ``count`` of them.

        >>> LinearScale(1, 12, 0, 1).ticks()
        [2, 4, 6, 8, 10, 12]
        """
        step = _round_step((self.high - self.low) / max(count, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """As :class:`LinearScale` with equal factors equally far apart. ``low`` is positive."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Where a value lies; what is not positive lies at the low end."""
        span = math.log(self.high / self.low)
        share = math.log(max(value, self.low) / self.low) / span if span else 0.5
        return self.start + (self.end - self.start) * share

    def ticks(self, count: int = 6) -> list[float]:
        """Round values: 1, 2, 5 and powers of ten over wide ranges, linear steps within a factor of four.

        >>> LogScale(3, 700, 0, 1).ticks()
        [5, 10, 20, 50, 100, 200, 500]
        """
        if self.high / self.low < 4:
            return LinearScale(self.low, self.high, self.start, self.end).ticks(count)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1, 2, 5) if len(decades) <= 4 else (1,)
        marks = [factor * 10.0**power for power in decades for factor in factors]
        return [int(mark) if mark >= 1 else mark for mark in marks if self.low <= mark <= self.high]


def _round_step(raw: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is at least ``raw``, as an integer where it is one."""
    if raw <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(raw) + 1e-9)
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return int(step) if step >= 1 else step

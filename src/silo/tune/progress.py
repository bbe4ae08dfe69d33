"""Progress of a session as plain data, and the line that says how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from silo.core.config import Config
from silo.tune.trial import Trial

__all__ = ["Progress", "ProgressCallback", "format_duration", "format_time"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a session stands after one more config is known.

    ``total`` is how many configs it will look at if no time limit stops it; ``done`` counts those known by now, of
    which ``reused`` came from the store. ``best_ns`` is the median of the fastest so far. ``failures`` counts by
    kind. ``eta_s`` is None until something was measured. ``phase`` is ``search``, ``final`` or ``done``.
    """

    done: int
    total: int
    reused: int
    elapsed_s: float
    eta_s: float | None
    best: Config | None = None
    best_ns: int | None = None
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    last: Trial | None = None
    phase: str = "search"


ProgressCallback = Callable[[Progress], None]


def format_time(time_ns: int) -> str:
    """A time with a unit that suits it.

    >>> format_time(1234567)
    '1.23 ms'
    """
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if time_ns >= size:
            return f"{time_ns / size:.3g} {unit}" if time_ns < 1000 * size else f"{time_ns / size:.0f} {unit}"
    return f"{time_ns} ns"


def format_duration(seconds: float) -> str:
    """A duration as people say it.

    >>> format_duration(2.13), format_duration(75.0)
    ('2.1 s', '1 min 15 s')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"

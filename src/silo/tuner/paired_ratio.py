"""Whether one of two kernels is faster, from samples that were taken in turns, with a limit on false alarms."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum

from silo.core.protocols import Timer
from silo.frozen import frozen
from silo.tuner.measure import Contender, MeasurePolicy, interleave
from silo.tuner.statistics import PPM, estimate, quiet_rounds

__all__ = ["Ratio", "Speed", "compare_times", "judge_ratio", "sample_until_decided"]

# The interval of each look at the samples. Looks stop early, and up to eight are taken: at this confidence, all of them
# together are wrong about two equal kernels in fewer than one of a hundred comparisons.
_CONFIDENCE_PERMILLE = 999
_FIRST_ROUNDS, _MOST_ROUNDS = 16, 4096


class Speed(Enum):
    """The result of comparing two times."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


@frozen
class Ratio:
    """A new time as a part of an old one, in millionths: the median of paired quotients, with its interval.

    ``rounds`` is the number of pairs; ``new_ns`` and ``old_ns`` are median times in nanoseconds.
    """

    speed: Speed
    median_ppm: int
    low_ppm: int
    high_ppm: int
    rounds: int
    new_ns: int
    old_ns: int

    @property
    def text(self) -> str:
        """The ratio with its interval.

        >>> Ratio(Speed.SLOWER, 1_021_000, 1_015_000, 1_027_000, 64, 1021, 1000).text
        '1.021 (1.015 to 1.027)'
        """
        return f"{self.median_ppm / PPM:.3f} ({self.low_ppm / PPM:.3f} to {self.high_ppm / PPM:.3f})"


def judge_ratio(new: Sequence[int], old: Sequence[int], margin_ppm: int) -> Ratio:
    """Compares samples in nanoseconds, of which the ones at one place were taken in the same round.

    Rounds in which other work had the machine are left out. The new time is ``SLOWER`` or ``FASTER`` if the whole
    interval of the quotients lies beyond the margin, and the ``SAME`` if all of it lies within.

    >>> judge_ratio([102, 103, 102, 103] * 6, [100, 101, 100, 101] * 6, 10_000).speed.value
    'slower'
    >>> judge_ratio([100, 101, 100, 101] * 6, [100, 101, 100, 101] * 6, 10_000).speed.value
    'same'

    Raises:
        ValueError: without samples, or with other numbers of them.
    """
    if len(new) != len(old) or not new:
        raise ValueError(f"{len(new)} and {len(old)} samples are no pairs")
    quiet = quiet_rounds({b"new": tuple(new), b"old": tuple(old)})
    pairs = list(zip(quiet[b"new"], quiet[b"old"], strict=True))
    found = estimate([one * PPM // max(two, 1) for one, two in pairs], _CONFIDENCE_PERMILLE)
    slow, fast = PPM + margin_ppm, PPM * PPM // (PPM + margin_ppm)
    if found.low_ns > slow:
        speed = Speed.SLOWER
    elif found.high_ns < fast:
        speed = Speed.FASTER
    elif fast <= found.low_ns and found.high_ns <= slow:
        speed = Speed.SAME
    else:
        speed = Speed.UNDECIDED
    new_ns, old_ns = (estimate([pair[place] for pair in pairs]).median_ns for place in (0, 1))
    return Ratio(speed, found.median_ns, found.low_ns, found.high_ns, len(pairs), new_ns, old_ns)


def compare_times(
    new: Contender,
    old: Contender,
    timer: Timer,
    policy: MeasurePolicy,
    margin_ppm: int,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Ratio:
    """Launches two contenders in turns until their ratio is decided, or for ``limit_s`` seconds."""

    def take(rounds: int) -> tuple[Sequence[int], Sequence[int]]:
        found = interleave({"old": old, "new": new}, timer, policy, rounds=rounds)
        return found["new"], found["old"]

    return sample_until_decided(take, margin_ppm, limit_s, clock)


def sample_until_decided(
    take: Callable[[int], tuple[Sequence[int], Sequence[int]]],
    margin_ppm: int,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Ratio:
    """Takes samples until their ratio is decided, or for ``limit_s`` seconds.

    ``take`` returns samples of the new and of the old contender that were taken in turns, about as many as asked. Each
    further look at the samples has at least twice as many as the one before.
    """
    end = clock() + limit_s
    new: list[int] = []
    old: list[int] = []
    rounds = _FIRST_ROUNDS
    while True:
        while len(new) < rounds and (not new or clock() < end):
            taken_new, taken_old = take(rounds - len(new))
            new += taken_new
            old += taken_old
        ratio = judge_ratio(new, old, margin_ppm)
        rounds = 2 * len(new)
        if ratio.speed is not Speed.UNDECIDED or rounds > _MOST_ROUNDS or clock() >= end:
            return ratio

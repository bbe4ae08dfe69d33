"""Fewer measurements for tuners that measure by Triton's benchmark: short ones of all configs, full ones at the top.

Triton measures each config for 125 ms of the kernel's time. Here each config is measured shortly first; the fastest
quarter, but for configs that are slower by more than a quarter, is then measured in full, as Triton does; and those
that are close to the fastest take turns in short measurements, until their order is sure or they are as good as equal.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from silo.kinds.triton.front.adapter import Benchmark, benchmark_replaced
from silo.tuner.statistics import NOISE_LIMIT_PERMILLE, PPM, estimate, median

__all__ = [
    "LEAST_CONFIGS",
    "ShortSearch",
    "Standing",
    "close_to_fastest",
    "reported_times",
    "standing",
    "to_measure_fully",
]

LEAST_CONFIGS = 4  # of a tuner: with fewer, short measurements beside full ones save nothing
_NEAR_PERMILLE = 250  # a short measurement of a config may be wrong by this
_CLOSE_PERMILLE = 30  # full measurements of equal configs may differ by this, because they are not taken in turns
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 8
# Milliseconds of a short measurement, and of warming up: the latter in full after a pause, in which clocks may sink.
_SHORT_MS, _WARM_MS, _COLD_MS = 8, 2, 25
_PAUSE_S = 0.05
# Samples of a config that may be the fastest: with fewer, a single disturbed sample would decide.
_LEAST_SAMPLES, _PERHAPS_FASTEST = 3, 1.5

Times: TypeAlias = tuple[float, ...]  # quantiles in milliseconds, the median first, as tuners request them


def to_measure_fully(short: Mapping[int, float]) -> tuple[int, ...]:
    """The configs that get a full measurement, the fastest first. Pure.

    The fastest quarter, two at least, but for those that are slower than the fastest by more than a quarter.

    >>> to_measure_fully({0: 3.0, 1: 1.0, 2: 1.05, 3: 2.0, 4: 1.2})
    (1, 2)

    Args:
        short: the median of each config's short measurement, in milliseconds. Configs that failed are left out.
    """
    order = sorted(short, key=lambda place: (short[place], place))
    quarter = order[: max(2, math.ceil(len(order) / 4))]
    return tuple(one for one in quarter if short[one] * 1000 <= short[quarter[0]] * (1000 + _NEAR_PERMILLE))


def close_to_fastest(full: Mapping[int, float]) -> tuple[int, ...]:
    """The configs whose order full measurements leave open, the fastest first. Pure.

    >>> close_to_fastest({4: 1.02, 7: 1.0, 1: 1.2, 2: math.inf})
    (7, 4)
    """
    order = sorted(
        (place for place, time in full.items() if math.isfinite(time)), key=lambda place: (full[place], place)
    )
    return tuple(one for one in order if full[one] * 1000 <= full[order[0]] * (1000 + _CLOSE_PERMILLE))


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a race: its leader, and the configs that take part in the next round, () if it is over.

    ``gaps`` is how long each config takes beside the leader in the rounds they share, in millionths.
    """

    leader: int
    next: tuple[int, ...]
    gaps: Mapping[int, int]


def standing(rounds: Mapping[int, Sequence[int]]) -> Standing:
    """Judge the rounds of a race. Pure.

    A config is out once it is surely slower than the leader; it is as good as equal once it is surely at most 1 %
    slower. The race is over if no other config is left, or after the most rounds.

    >>> standing({3: [100, 101, 99], 5: [150, 151, 149]})
    Standing(leader=3, next=(), gaps={3: 1000000, 5: 1500000})

    Args:
        rounds: the median of each config in each round it took part in, from the first one on, in nanoseconds.
    """
    most = max(map(len, rounds.values()))
    first = next(iter(rounds))
    alive = [one for one, taken in rounds.items() if len(taken) == most]
    leader = min(alive, key=lambda one: (median(_quotients(rounds[one], rounds[first])), one))
    gaps = {one: max(median(_quotients(taken, rounds[leader])), PPM) for one, taken in rounds.items()}
    if most < _LEAST_ROUNDS:
        return Standing(leader, tuple(alive), gaps)
    open_: list[int] = []
    for one in alive:
        found = estimate(_quotients(rounds[one], rounds[leader]))
        equal = found.high_ns * 1000 <= PPM * (1000 + NOISE_LIMIT_PERMILLE)
        if one != leader and not equal and found.low_ns <= PPM:
            open_.append(one)
    over = not open_ or most >= _MOST_ROUNDS
    return Standing(leader, () if over else tuple(sorted([leader, *open_])), gaps)


def _quotients(taken: Sequence[int], other: Sequence[int]) -> list[int]:
    return [one * PPM // max(two, 1) for one, two in zip(taken, other, strict=False)]


def reported_times(
    short: Mapping[int, Times], full: Mapping[int, Times], winner: int, gaps: Mapping[int, int]
) -> dict[int, Times]:
    """The times of all configs beside the winner's full measurement, which is reported as it is and is the least. Pure.

    A config that took turns with the winner counts by the rounds they share, a shortly measured config by its short
    measurement beside the winner's: both as if they had been measured while the winner's full measurement was.

    >>> reported_times({0: (2.0,), 1: (1.0,), 2: (3.0,)}, {0: (2.5,), 1: (1.5,)}, 1, {})
    {1: (1.5,), 0: (2.5,), 2: (4.5,)}
    """
    best = full[winner][0]
    found: dict[int, Times] = {winner: full[winner]}
    for place, times in short.items():
        if place == winner:
            continue
        own = full.get(place, times)
        if place not in full:
            target = own[0] * best / short[winner][0] if short[winner][0] > 0 else own[0]
        elif place in gaps and math.isfinite(own[0]):
            target = best * gaps[place] / PPM
        else:
            target = own[0]
        # The tuner takes the least of all times, and of two equal ones any.
        found[place] = _scaled(own, max(target, math.nextafter(best, math.inf)))
    return found


def _scaled(times: Times, target: float) -> Times:
    """Times in proportion, with another median."""
    if times[0] == target:
        return times
    return tuple(one * target / times[0] if times[0] > 0 else target for one in times)


def _quantiles(samples: Sequence[float], quantiles: Sequence[float]) -> Times:
    """Quantiles as Triton works them out: between samples, in proportion."""
    ordered = sorted(samples)
    points = [one * (len(ordered) - 1) for one in quantiles]
    ends = [(ordered[math.floor(point)], ordered[math.ceil(point)], point - math.floor(point)) for point in points]
    return tuple((1 - share) * low + share * high for low, high, share in ends)


@dataclass(slots=True)
class ShortSearch:
    """Measures all configs of a tuner for one key. ``run`` calls the tuner's own measurement of the config at a place.

    ``shorts``, ``fulls`` and ``turns`` count measurements: of all configs, of the top, and in the race.
    """

    tuner: Any
    benchmark: Benchmark
    run: Callable[[int], Any]
    clock: Callable[[], float] = time.perf_counter
    shorts: int = 0
    fulls: int = 0
    turns: int = 0
    _samples: list[float] = field(default_factory=list[float])
    _least_ms: float = math.inf  # the least median so far
    _ended: float = -math.inf

    def times(self, order: Iterable[int], measured: Callable[[int, Any], None] | None = None) -> list[Any]:
        """The times of each config, as the tuner's benchmark returns them: the winner's are the least.

        ``order`` has the place of each config once, in the order of the short measurements. ``measured`` is called
        after each config's short measurement, with its place and result.
        """
        found: dict[int, Any] = {}
        short: dict[int, Times] = {}
        for place in order:
            result, samples = self._short(place)
            self.shorts += 1
            found[place] = result
            if samples:  # else the tuner tolerated an error
                short[place] = tuple(result)
            if measured is not None:
                measured(place, result)
        full = {place: self._full(place) for place in to_measure_fully(_medians(short))} if short else {}
        close = close_to_fastest(_medians(full))
        if close:
            winner, gaps = self._race(close)
            for place, times in reported_times(short, full, winner, gaps).items():
                found[place] = list(times)
        return [found[place] for place in range(len(found))]

    def _full(self, place: int) -> Times:
        result = tuple(self.run(place))
        self.fulls += 1
        self._ended = self.clock()
        return result

    def _race(self, close: Sequence[int]) -> tuple[int, Mapping[int, int]]:
        if len(close) == 1:
            return close[0], {}
        rounds: dict[int, list[int]] = {place: [] for place in close}
        state = Standing(close[0], tuple(close), {})
        while state.next:
            number = len(rounds[state.leader])
            turned = state.next[number % len(state.next) :] + state.next[: number % len(state.next)]
            for place in turned:
                _, samples = self._short(place)
                if not samples:
                    return close[0], {}  # it ran twice and fails now: the full measurements decide
                self.turns += 1
                rounds[place].append(median(round(one * 1e6) for one in samples))
            state = standing(rounds)
        return state.leader, state.gaps

    def _short(self, place: int) -> tuple[Any, list[float]]:
        """The result of a short measurement, and its samples in milliseconds: none if the tuner tolerated an error."""
        self._samples = []
        with benchmark_replaced(self.tuner, self._bench):
            result = self.run(place)
        return result, self._samples

    def _bench(self, call: Callable[[], object], quantiles: Iterable[float]) -> list[float]:
        call()  # compiles, or waits for a worker that does
        warm = _COLD_MS if self.clock() - self._ended > _PAUSE_S else _WARM_MS
        milliseconds = (
            _SHORT_MS if math.isinf(self._least_ms) else max(_SHORT_MS, (_LEAST_SAMPLES + 1) * self._least_ms)
        )
        samples = list(self.benchmark(call, warmup=warm, rep=milliseconds, return_mode="all"))
        middle = statistics.median(samples)
        if len(samples) < _LEAST_SAMPLES and middle <= self._least_ms * _PERHAPS_FASTEST:
            more = (_LEAST_SAMPLES + 1) * middle
            samples += self.benchmark(call, warmup=_WARM_MS, rep=more, return_mode="all")
        self._samples = samples
        self._least_ms = min(self._least_ms, statistics.median(samples))
        self._ended = self.clock()
        return list(_quantiles(self._samples, tuple(quantiles)))


def _medians(times: Mapping[int, Times]) -> dict[int, float]:
    return {place: one[0] for place, one in times.items()}

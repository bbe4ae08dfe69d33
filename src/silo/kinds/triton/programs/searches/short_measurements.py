"""Saves measurements for tuners that use Triton's benchmark: all configs are measured briefly, the fastest in full.

Triton measures each config for 125 ms of the kernel's time. Here each config is first measured briefly. The fastest
quarter, without configs that are slower than the fastest by more than a quarter, is then measured in full, as Triton
does. Configs that are close to the fastest are measured again, briefly and in turns, until their order is certain or
their times are as good as equal.
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

# the fewest configs for which a tuner's measurements are shortened; with fewer, short measurements save nothing
LEAST_CONFIGS = 4
_NEAR_PERMILLE = 250  # the possible error of a short measurement, in thousandths of its time
# The greatest difference, in thousandths, between full measurements of equally fast configs: the configs are measured
# one after the other, and the machine's speed may change in between.
_CLOSE_PERMILLE = 30
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 8
# Milliseconds of a short measurement, and of warming up: _COLD_MS after a pause, in which clock rates may have dropped.
_SHORT_MS, _WARM_MS, _COLD_MS = 8, 2, 25
_PAUSE_S = 0.05
# The fewest samples of a config whose time is below 1.5 times the lowest, so that it may be the fastest: with fewer, a
# single disturbed sample would decide.
_LEAST_SAMPLES, _PERHAPS_FASTEST = 3, 1.5

Times: TypeAlias = tuple[float, ...]  # quantiles in milliseconds, the median first, as tuners request them


def to_measure_fully(short: Mapping[int, float]) -> tuple[int, ...]:
    """The configs to measure in full, the fastest first. A pure function.

    These are the fastest quarter, at least two, without those that are slower than the fastest by more than a quarter.

    >>> to_measure_fully({0: 3.0, 1: 1.0, 2: 1.05, 3: 2.0, 4: 1.2})
    (1, 2)

    Args:
        short: the median of each config's short measurement, in milliseconds. Configs that failed are left out.
    """
    order = sorted(short, key=lambda place: (short[place], place))
    quarter = order[: max(2, math.ceil(len(order) / 4))]
    return tuple(index for index in quarter if short[index] * 1000 <= short[quarter[0]] * (1000 + _NEAR_PERMILLE))


def close_to_fastest(full: Mapping[int, float]) -> tuple[int, ...]:
    """The configs whose order the full measurements do not settle, the fastest first. A pure function.

    >>> close_to_fastest({4: 1.02, 7: 1.0, 1: 1.2, 2: math.inf})
    (7, 4)
    """
    order = sorted(
        (config_index for config_index, time in full.items() if math.isfinite(time)),
        key=lambda place: (full[place], place),
    )
    return tuple(index for index in order if full[index] * 1000 <= full[order[0]] * (1000 + _CLOSE_PERMILLE))


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a race, in which configs are measured in turns: its leader, and the configs of the next round.

    ``next`` is () if the race is over. ``gaps`` is the time of each config relative to the leader's in the rounds they
    share, in millionths.
    """

    leader: int
    next: tuple[int, ...]
    gaps: Mapping[int, int]


def standing(rounds: Mapping[int, Sequence[int]]) -> Standing:
    """Computes the state of a race from its rounds. A pure function.

    A config leaves the race once it is certainly slower than the leader. It counts as equal once it is certainly at
    most 1 % slower. The race is over if no other config is left, or after a fixed number of rounds.

    >>> standing({3: [100, 101, 99], 5: [150, 151, 149]})
    Standing(leader=3, next=(), gaps={3: 1000000, 5: 1500000})

    Args:
        rounds: the median of each config in each round it took part in, from the first one on, in nanoseconds.
    """
    most_rounds = max(map(len, rounds.values()))
    first = next(iter(rounds))
    alive = [index for index, samples in rounds.items() if len(samples) == most_rounds]
    leader = min(alive, key=lambda one: (median(_quotients(rounds[one], rounds[first])), one))
    gaps = {index: max(median(_quotients(samples, rounds[leader])), PPM) for index, samples in rounds.items()}
    if most_rounds < _LEAST_ROUNDS:
        return Standing(leader, tuple(alive), gaps)
    undecided: list[int] = []
    for index in alive:
        interval = estimate(_quotients(rounds[index], rounds[leader]))
        equal = interval.high_ns * 1000 <= PPM * (1000 + NOISE_LIMIT_PERMILLE)
        if index != leader and not equal and interval.low_ns <= PPM:
            undecided.append(index)
    over = not undecided or most_rounds >= _MOST_ROUNDS
    return Standing(leader, () if over else tuple(sorted([leader, *undecided])), gaps)


def _quotients(times: Sequence[int], other: Sequence[int]) -> list[int]:
    return [own_time * PPM // max(other_time, 1) for own_time, other_time in zip(times, other, strict=False)]


def reported_times(
    short: Mapping[int, Times], full: Mapping[int, Times], winner: int, gaps: Mapping[int, int]
) -> dict[int, Times]:
    """The times to report for all configs; the winner's full measurement is reported unchanged and is the lowest.

    The other times are scaled as if they had been measured together with the winner's full measurement. If a config was
    measured in turns with the winner, the scale is the ratio of their times in these rounds; if it was only measured
    briefly, the scale comes from the winner's short measurement. A pure function.

    >>> reported_times({0: (2.0,), 1: (1.0,), 2: (3.0,)}, {0: (2.5,), 1: (1.5,)}, 1, {})
    {1: (1.5,), 0: (2.5,), 2: (4.5,)}
    """
    best = full[winner][0]
    reported: dict[int, Times] = {winner: full[winner]}
    for index, times in short.items():
        if index == winner:
            continue
        measured = full.get(index, times)
        if index not in full:
            target = measured[0] * best / short[winner][0] if short[winner][0] > 0 else measured[0]
        elif index in gaps and math.isfinite(measured[0]):
            target = best * gaps[index] / PPM
        else:
            target = measured[0]
        # The other times stay above the winner's, because the tuner takes the config with the lowest time, and any of
        # several equal ones.
        reported[index] = _scaled(measured, max(target, math.nextafter(best, math.inf)))
    return reported


def _scaled(times: Times, target: float) -> Times:
    """The times scaled in proportion, so that their median is ``target``."""
    if times[0] == target:
        return times
    return tuple(sample * target / times[0] if times[0] > 0 else target for sample in times)


def _quantiles(samples: Sequence[float], quantiles: Sequence[float]) -> Times:
    """Quantiles as Triton computes them: interpolated linearly between samples."""
    ordered = sorted(samples)
    points = [quantile * (len(ordered) - 1) for quantile in quantiles]
    ends = [(ordered[math.floor(point)], ordered[math.ceil(point)], point - math.floor(point)) for point in points]
    return tuple((1 - share) * low + share * high for low, high, share in ends)


@dataclass(slots=True)
class ShortSearch:
    """Measures all configs of a tuner for one key.

    ``run`` calls the tuner's own measurement of the config at a position.

    ``shorts`` counts the short measurements of all configs, ``fulls`` the full measurements, and ``turns`` the short
    measurements in turns (races) of the configs that are close to the fastest.
    """

    tuner: Any
    benchmark: Benchmark
    run: Callable[[int], Any]
    clock: Callable[[], float] = time.perf_counter
    shorts: int = 0
    fulls: int = 0
    turns: int = 0
    _samples: list[float] = field(default_factory=list[float])
    _least_ms: float = math.inf  # the lowest median so far, in milliseconds
    _ended: float = -math.inf

    def times(self, order: Iterable[int], measured: Callable[[int, Any], None] | None = None) -> list[Any]:
        """The times of each config, in the form that the tuner's benchmark returns; the winner's are the lowest.

        ``order`` yields the position of each config once, in the order of the short measurements. ``measured`` is
        called after each config's short measurement, with its position and result.
        """
        results: dict[int, Any] = {}
        short: dict[int, Times] = {}
        for index in order:
            result, samples = self._short(index)
            self.shorts += 1
            results[index] = result
            if samples:  # without samples, the config failed and the tuner tolerated the error
                short[index] = tuple(result)
            if measured is not None:
                measured(index, result)
        full = {index: self._full(index) for index in to_measure_fully(_medians(short))} if short else {}
        close = close_to_fastest(_medians(full))
        if close:
            winner, gaps = self._race(close)
            for index, times in reported_times(short, full, winner, gaps).items():
                results[index] = list(times)
        return [results[index] for index in range(len(results))]

    def _full(self, index: int) -> Times:
        result = tuple(self.run(index))
        self.fulls += 1
        self._ended = self.clock()
        return result

    def _race(self, close: Sequence[int]) -> tuple[int, Mapping[int, int]]:
        if len(close) == 1:
            return close[0], {}
        rounds: dict[int, list[int]] = {index: [] for index in close}
        state = Standing(close[0], tuple(close), {})
        while state.next:
            number = len(rounds[state.leader])
            turned = state.next[number % len(state.next) :] + state.next[: number % len(state.next)]
            for index in turned:
                _, samples = self._short(index)
                if not samples:
                    # a config that has run now fails: the race ends, and the config that is fastest in full
                    # measurements wins
                    return close[0], {}
                self.turns += 1
                rounds[index].append(median(round(sample * 1e6) for sample in samples))
            state = standing(rounds)
        return state.leader, state.gaps

    def _short(self, index: int) -> tuple[Any, list[float]]:
        """The result of a short measurement, and its samples in milliseconds; [] if the tuner tolerated an error."""
        self._samples = []
        with benchmark_replaced(self.tuner, self._bench):
            result = self.run(index)
        return result, self._samples

    def _bench(self, call: Callable[[], object], quantiles: Iterable[float]) -> list[float]:
        call()  # the first call compiles, or waits for a worker that compiles
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
    return {index: samples[0] for index, samples in times.items()}

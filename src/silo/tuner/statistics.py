"""Statistics of samples, in integers: medians with intervals, paired comparisons, and times relative to a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

from silo.core.config import Config
from silo.core.values import JSON, digest
from silo.tuner.trial import ReferenceSamples, Stage, Status, Trial

__all__ = [
    "FINALIST_PERMILLE",
    "NOISE_LIMIT_PERMILLE",
    "PPM",
    "Estimate",
    "ReferenceConfig",
    "Rounds",
    "Scales",
    "comparison_name",
    "counted_samples",
    "estimate",
    "indistinguishable",
    "median",
    "quiet_rounds",
    "successor",
]

# ---- Statistics of samples, in integers only ----

# A config whose median is this much slower than the best one never counts as equal, however noisy the samples are.
NOISE_LIMIT_PERMILLE = 10

# A config that was slower than the best by more than this in the search is not compared with it again at the end.
FINALIST_PERMILLE = 100

# Smaller differences are below the resolution of clocks and schedulers, even if all samples happen to agree exactly.
_RESOLUTION_PERMILLE = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median with its confidence interval, in nanoseconds, and the number of samples that it was computed from."""

    median_ns: int
    low_ns: int
    high_ns: int
    samples: int

    @property
    def noise_permille(self) -> int:
        """Half the width of the interval, in thousandths of the median."""
        return (self.high_ns - self.low_ns) * 500 // max(self.median_ns, 1)


def median(samples: Iterable[int]) -> int:
    """Returns the median, rounded down. Raises ValueError without samples.

    >>> median([5, 1, 4, 2])
    3
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples have no median")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def estimate(samples: Sequence[int], confidence_permille: int = 950) -> Estimate:
    """Returns the median of ``samples`` with its confidence interval.

    The interval runs between two order statistics, so it assumes nothing about the distribution of the noise. Fewer
    than six samples do not allow an interval of this confidence: then the interval is the whole range of the samples.

    >>> estimate([10, 11, 12, 13, 14, 15, 16, 17, 99])
    Estimate(median_ns=14, low_ns=11, high_ns=17, samples=9)
    """
    ordered = sorted(samples)
    count = len(ordered)
    centre = median(ordered)
    # The true median lies outside [ordered[k], ordered[-1 - k]] with probability 2 * sum(comb(n, i), i <= k) / 2**n.
    drop, tail = 0, 1
    allowed = (1000 - confidence_permille) << count
    while drop + 1 <= (count - 1) // 2:
        tail += comb(count, drop + 1)
        if 2 * tail * 1000 > allowed:
            break
        drop += 1
    return Estimate(centre, ordered[drop], ordered[count - 1 - drop], count)


def indistinguishable(best: Estimate, other: Estimate) -> bool:
    """Returns whether the samples do not separate ``other`` from ``best``, which is at least as fast.

    That is so if the medians differ by less than clocks resolve (0.1 %), or if the intervals overlap and the medians
    are within 1 % of one another.
    """
    difference = (other.median_ns - best.median_ns) * 1000
    if difference <= best.median_ns * _RESOLUTION_PERMILLE:
        return True
    return difference <= best.median_ns * NOISE_LIMIT_PERMILLE and other.low_ns <= best.high_ns


# ---- Pairs: configs compared by samples of the same rounds, which a slow phase of the machine affects alike ----

PPM = 1_000_000

# A round is quiet if it took at most a tenth longer than the quickest tenth of all rounds; at least a quarter of the
# rounds count as quiet.
_QUIET_PERMILLE = 1100
_QUICKEST = 10
_LEAST_SHARE = 4


def comparison_name(samples: Mapping[Config, Sequence[int]]) -> str:
    """Returns the name of a comparison: 16 hexadecimal digits of a digest of its configs and samples."""
    document: JSON = [
        [config.to_json(), list(samples[config])] for config in sorted(samples, key=lambda c: c.order_key)
    ]
    return digest("comparison/1", document)[:16]


class Rounds:
    """The quiet rounds of all comparisons that the given trials belong to.

    Other work on a machine only makes a round longer, so long rounds are the least reliable.
    """

    def __init__(self, pools: Mapping[bytes, Sequence[Trial]]) -> None:
        together: dict[str, dict[bytes, tuple[int, ...]]] = {}
        self._all: dict[bytes, list[int]] = {}
        for key, pool in pools.items():
            finals = [trial for trial in pool if trial.stage is Stage.FINAL]
            self._all[key] = [sample for trial in finals for sample in trial.samples_ns]
            for trial in finals:
                if trial.comparison:
                    together.setdefault(trial.comparison, {})[key] = trial.samples_ns
        self._quiet = {name: quiet_rounds(samples) for name, samples in sorted(together.items())}
        self._estimates: dict[bytes, Estimate] = {}

    def __bool__(self) -> bool:
        """Returns whether any config was compared in rounds."""
        return bool(self._quiet)

    def shared(self, key: bytes, other: bytes) -> list[int]:
        """Returns the quotients of samples of ``key`` and ``other`` in the rounds that they share, in millionths."""
        return [
            own_sample * PPM // max(other_sample, 1)
            for round_samples in self._quiet.values()
            if key in round_samples and other in round_samples
            for own_sample, other_sample in zip(round_samples[key], round_samples[other], strict=True)
        ]

    def time(self, key: bytes) -> Estimate:
        """Returns a config's time in the quiet (undisturbed) rounds of comparisons; without rounds, in all samples."""
        if key not in self._estimates:
            quiet = [sample for round_samples in self._quiet.values() for sample in round_samples.get(key, ())]
            self._estimates[key] = estimate(quiet or self._all[key])
        return self._estimates[key]

    def middle(self, key: bytes, other: bytes) -> int:
        """Returns the time of config ``key`` in millionths of the time of ``other``."""
        shared = self.shared(key, other)
        return median(shared) if shared else self.quotient(key, other).median_ns

    def quotient(self, key: bytes, other: bytes) -> Estimate:
        """Returns the time of config ``key`` in millionths of the time of ``other``, with its interval.

        The result is computed from the rounds that both configs share. If they share none, the result is found through
        a third config that shares rounds with both (of several results, the middle one is used); without such a config,
        it is computed from the times of the two configs.
        """
        shared = self.shared(key, other)
        if shared:
            return estimate(shared)
        thirds = (self._through(key, third, other) for third in sorted(self._all) if third not in (key, other))
        quotients = sorted(
            (third for third in thirds if third), key=lambda one: (one.median_ns, one.low_ns, one.high_ns)
        )
        if quotients:
            return quotients[len(quotients) // 2]
        own_time, other_time = self.time(key), self.time(other)
        return Estimate(
            own_time.median_ns * PPM // max(other_time.median_ns, 1),
            own_time.low_ns * PPM // max(other_time.high_ns, 1),
            own_time.high_ns * PPM // max(other_time.low_ns, 1),
            min(own_time.samples, other_time.samples),
        )

    def _through(self, key: bytes, third: bytes, other: bytes) -> Estimate | None:
        first_ratios, second_ratios = self.shared(key, third), self.shared(third, other)
        if not first_ratios or not second_ratios:
            return None
        near, far = estimate(first_ratios), estimate(second_ratios)
        return Estimate(
            near.median_ns * far.median_ns // PPM,
            near.low_ns * far.low_ns // PPM,
            near.high_ns * far.high_ns // PPM,
            min(near.samples, far.samples),
        )

    def leader(self) -> bytes:
        """Returns the order key of the config whose worst comparison with another config is best.

        A comparison is the quotient of the config's time and the other config's time. The greatest quotient of the
        returned config is smaller than that of any other config; equal ones are decided by the median time.

        Raises ValueError without configs.
        """
        worst = dict.fromkeys(self._all, 0)
        keys = sorted(self._all)
        for number, key in enumerate(keys):
            for other in keys[number + 1 :]:
                ahead = max(self.middle(key, other), 1)
                worst[key] = max(worst[key], ahead)
                worst[other] = max(worst[other], PPM * PPM // ahead)
        return min(keys, key=lambda key: (worst[key], self.time(key).median_ns, key))


def quiet_rounds(samples_of: Mapping[bytes, tuple[int, ...]]) -> dict[bytes, tuple[int, ...]]:
    """Returns the samples of a comparison's quiet (undisturbed) rounds; empty if its trials do not share rounds."""
    if len({len(samples) for samples in samples_of.values()}) != 1:
        return {}
    totals = [sum(samples) for samples in zip(*samples_of.values(), strict=True)]
    ordered = sorted(totals)
    low_total = ordered[min(len(ordered) // _LEAST_SHARE, len(ordered) - 1)]
    limit = max(ordered[len(ordered) // _QUICKEST] * _QUIET_PERMILLE // 1000, low_total)
    quiet_numbers = [number for number, total in enumerate(totals) if total <= limit]
    return {key: tuple([samples[number] for number in quiet_numbers]) for key, samples in samples_of.items()}


# ---- The reference config: measured beside all others, so that times can be corrected for slow phases of the machine
# ----

# A config this many times faster becomes the reference, because a slow reference takes long and is imprecise.
_FASTER = 2
# An interval is widened by the reference's drift divided by this, because a slow phase does not slow all configs alike.
_DRIFT_SHARE = 4
_RESTLESS_PERMILLE = 1050


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """A config that others are measured beside, and its nominal time in nanoseconds.

    Samples are scaled as if each launch of the reference beside them had taken the nominal time.
    """

    config: Config
    time_ns: int


def counted_samples(samples: Sequence[int], reference_samples: Sequence[int], time_ns: int) -> tuple[int, ...]:
    """Scales samples as if each launch of the reference had taken ``time_ns`` nanoseconds.

    ``reference_samples`` are the reference's samples, spread evenly among ``samples``.

    >>> counted_samples([110, 200, 220], [100, 200, 200], 100)
    (110, 100, 110)
    """
    count = len(samples)
    return tuple(
        [
            sample * time_ns // max(reference_samples[number * len(reference_samples) // count], 1)
            for number, sample in enumerate(samples)
        ]
    )


class Scales:
    """The nominal times of references, and the samples and intervals of trials scaled by these times.

    The nominal time of a reference that was itself measured beside another reference is its scaled time in that
    measurement. The nominal time of the first reference is the lower quartile of its medians beside all other configs,
    because slow phases of the machine hardly affect this quartile.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._trials_by_config: dict[bytes, list[Trial]] = {}
        self._levels: dict[bytes, list[int]] = {}
        self._times: dict[bytes, int] = {}
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """Adds one more trial.

        A nominal time that was computed earlier does not change, so that all configs of a search are compared alike.
        """
        if trial.reference is None or trial.status is not Status.OK or trial.stage is not Stage.SEARCH:
            return
        beside = trial.reference.config.order_key
        self._levels.setdefault(beside, []).append(median(trial.reference.samples_ns))
        if beside != trial.config.order_key:
            self._trials_by_config.setdefault(trial.config.order_key, []).append(trial)

    def __bool__(self) -> bool:
        """Returns whether any trial has a reference."""
        return bool(self._levels)

    def time_ns(self, reference: ReferenceSamples) -> int:
        """Returns the nominal time of a reference in nanoseconds."""
        return self._time_ns(reference.config.order_key, frozenset())

    def _time_ns(self, key: bytes, above: frozenset[bytes]) -> int:
        if not above and key in self._times:
            return self._times[key]
        counted: list[int] = []
        for trial in self._trials_by_config.get(key, ()):
            assert trial.reference is not None
            parent = trial.reference.config.order_key
            if parent not in above and parent != key:
                time_ns = self._time_ns(parent, above | {key})
                counted += counted_samples(trial.samples_ns, trial.reference.samples_ns, time_ns)
        own_time_ns = median(counted) if counted else self._level(key)
        if not above:  # with ``above``, some trials were left out, so the result holds for this call only
            self._times[key] = max(own_time_ns, 1)
        return max(own_time_ns, 1)

    def samples(self, trial: Trial) -> tuple[int, ...]:
        """Returns a trial's samples, scaled by its reference; unscaled if it has none."""
        if trial.reference is None:
            return trial.samples_ns
        return counted_samples(trial.samples_ns, trial.reference.samples_ns, self.time_ns(trial.reference))

    def drift_permille(self, trial: Trial) -> int:
        """Returns how far the reference was from its usual level during the trial, in thousandths of that level.

        The level is the lower quartile of the medians that the reference had beside all trials.
        """
        if trial.reference is None:
            return 0
        level = self._level(trial.reference.config.order_key)
        return abs(median(trial.reference.samples_ns) - level) * 1000 // level

    @property
    def restless(self) -> bool:
        """Whether references were 5 % slower than their usual levels beside more than a tenth of the trials."""
        slow = sum(
            sum(level * 1000 > self._level(key) * _RESTLESS_PERMILLE for level in levels)
            for key, levels in self._levels.items()
        )
        return slow * 10 > sum(map(len, self._levels.values()))

    def _level(self, key: bytes) -> int:
        levels = sorted(self._levels.get(key, ())) or [1]
        return max(levels[(len(levels) - 1) // 4], 1)

    def estimate(self, pool: Sequence[Trial]) -> Estimate:
        """Returns the time of a config from all its trials.

        The interval is widened by a part of the reference's drift in the trial where it drifted least.
        """
        estimated = estimate([sample for trial in pool for sample in self.samples(trial)])
        drift = min(self.drift_permille(trial) for trial in pool)
        margin = estimated.median_ns * drift // (1000 * _DRIFT_SHARE)
        return replace(estimated, low_ns=max(estimated.low_ns - margin, 0), high_ns=estimated.high_ns + margin)


def successor(reference: ReferenceConfig | None, trial: Trial, scales: Scales) -> ReferenceConfig | None:
    """Returns the reference for later trials: the present one, or the config of ``trial`` if that is much faster.

    A trial without a reference changes nothing: its evaluator measures none.
    """
    if trial.reference is None or trial.status is not Status.OK:
        return reference
    if reference is None:
        reference = ReferenceConfig(trial.reference.config, scales.time_ns(trial.reference))
    time_ns = max(median(scales.samples(trial)), 1)
    return ReferenceConfig(trial.config, time_ns) if time_ns * _FASTER <= reference.time_ns else reference

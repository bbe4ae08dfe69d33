"""The reference config: measured beside the others, so that a slow phase of the machine slows no config alone.

Each trial holds samples of a reference config that were taken in turns with its own. The quotient of the two is what is
compared; multiplied by the time that the reference counts for, it is a time in nanoseconds again. Everything here is
computed from the set of trials, in integers, so every machine that has the same trials computes the same times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from silo.core.config import Config
from silo.tuner.statistics import Estimate, estimate, median
from silo.tuner.trial import ReferenceSamples, Stage, Status, Trial

__all__ = ["ReferenceConfig", "Scales", "counted_samples", "successor"]

# A config so many times faster than the reference takes its place: a slow reference takes long and tells little.
_FASTER = 2
# The part of the reference's drift by which an interval is widened: a slow phase does not slow all configs alike.
_DRIFT_SHARE = 4
_RESTLESS_PERMILLE = 1050


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """A config that others are measured beside, and the time in nanoseconds that one launch of it counts for."""

    config: Config
    time_ns: int


def counted_samples(samples: Sequence[int], beside: Sequence[int], time_ns: int) -> tuple[int, ...]:
    """Samples as they would have been, had the reference taken ``time_ns`` nanoseconds all the time.

    ``beside`` are the reference's samples, spread evenly among the others.

    >>> counted_samples([110, 200, 220], [100, 200, 200], 100)
    (110, 100, 110)
    """
    count = len(samples)
    return tuple(
        [sample * time_ns // max(beside[number * len(beside) // count], 1) for number, sample in enumerate(samples)]
    )


class Scales:
    """The times that references count for, and the samples and intervals of trials by these times.

    A reference that was itself measured beside another one counts for what it took then; the first one for the lower
    quartile of the medians that it had beside all others, which slow phases leave alone.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._own: dict[bytes, list[Trial]] = {}
        self._levels: dict[bytes, list[int]] = {}
        self._times: dict[bytes, int] = {}
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """Take in one more trial. A time that was computed stays, so that a search compares like with like."""
        if trial.reference is None or trial.status is not Status.OK or trial.stage is not Stage.SEARCH:
            return
        beside = trial.reference.config.order_key
        self._levels.setdefault(beside, []).append(median(trial.reference.samples_ns))
        if beside != trial.config.order_key:
            self._own.setdefault(trial.config.order_key, []).append(trial)

    def __bool__(self) -> bool:
        """Whether any trial has a reference."""
        return bool(self._levels)

    def time_ns(self, reference: ReferenceSamples) -> int:
        """The time that a reference counts for."""
        return self._time_ns(reference.config.order_key, frozenset())

    def _time_ns(self, key: bytes, above: frozenset[bytes]) -> int:
        if not above and key in self._times:
            return self._times[key]
        counted: list[int] = []
        for trial in self._own.get(key, ()):
            assert trial.reference is not None
            parent = trial.reference.config.order_key
            if parent not in above and parent != key:
                time_ns = self._time_ns(parent, above | {key})
                counted += counted_samples(trial.samples_ns, trial.reference.samples_ns, time_ns)
        found = median(counted) if counted else self._level(key)
        if not above:  # within a chain the result leaves out what is above it, so it is not the reference's own
            self._times[key] = max(found, 1)
        return max(found, 1)

    def samples(self, trial: Trial) -> tuple[int, ...]:
        """A trial's samples as they count: by its reference, or as they are where it has none."""
        if trial.reference is None:
            return trial.samples_ns
        return counted_samples(trial.samples_ns, trial.reference.samples_ns, self.time_ns(trial.reference))

    def drift_permille(self, trial: Trial) -> int:
        """How far the reference was from its usual level while the trial was measured, in thousandths of that level.

        The level is the lower quartile of the medians that it had beside all trials.
        """
        if trial.reference is None:
            return 0
        level = self._level(trial.reference.config.order_key)
        return abs(median(trial.reference.samples_ns) - level) * 1000 // level

    @property
    def restless(self) -> bool:
        """Whether a reference was slower by a twentieth than its usual level beside more than a tenth of the trials."""
        slow = sum(
            sum(one * 1000 > self._level(key) * _RESTLESS_PERMILLE for one in levels)
            for key, levels in self._levels.items()
        )
        return slow * 10 > sum(map(len, self._levels.values()))

    def _level(self, key: bytes) -> int:
        levels = sorted(self._levels.get(key, ())) or [1]
        return max(levels[(len(levels) - 1) // 4], 1)

    def estimate(self, pool: Sequence[Trial]) -> Estimate:
        """The time of a config by all its trials; its interval is wider by a part of the least drift among them."""
        found = estimate([sample for trial in pool for sample in self.samples(trial)])
        drift = min(self.drift_permille(trial) for trial in pool)
        margin = found.median_ns * drift // (1000 * _DRIFT_SHARE)
        return replace(found, low_ns=max(found.low_ns - margin, 0), high_ns=found.high_ns + margin)


def successor(reference: ReferenceConfig | None, trial: Trial, scales: Scales) -> ReferenceConfig | None:
    """The reference for the next trials after ``trial``: its own, or its config where that is much faster.

    Trials without a reference change nothing: what measured them measures none.
    """
    if trial.reference is None or trial.status is not Status.OK:
        return reference
    if reference is None:
        reference = ReferenceConfig(trial.reference.config, scales.time_ns(trial.reference))
    time_ns = max(median(scales.samples(trial)), 1)
    return ReferenceConfig(trial.config, time_ns) if time_ns * _FASTER <= reference.time_ns else reference

"""Pairs: configs compared by samples that were taken in the same rounds, so that what slows a machine cancels.

A comparison measures its configs in turns, a sample of each in every round. For two configs the quotients of their
samples in the rounds they share say which is faster, and how sure that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from silo.core.config import Config
from silo.core.values import JSON, digest
from silo.tuner.statistics import Estimate, estimate, median
from silo.tuner.trial import Stage, Trial

__all__ = ["PPM", "Rounds", "comparison_name"]

PPM = 1_000_000

# Rounds count that took at most a tenth longer than the quickest tenth of them, and never fewer than a quarter.
_QUIET_PERMILLE = 1100
_QUICKEST = 10
_LEAST_SHARE = 4


def comparison_name(samples: Mapping[Config, Sequence[int]]) -> str:
    """The name of a comparison: 16 hexadecimal digits of a digest of its configs and samples."""
    taken: JSON = [[config.to_json(), list(samples[config])] for config in sorted(samples, key=lambda c: c.order_key)]
    return digest("comparison/1", taken)[:16]


class Rounds:
    """The rounds of every comparison that some trials belong to: of each, the quiet ones.

    What else runs on a machine only ever makes a round longer, so rounds that took long say least.
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
        self._quiet = {name: _quiet(taken) for name, taken in sorted(together.items())}
        self._estimates: dict[bytes, Estimate] = {}

    def __bool__(self) -> bool:
        """Whether any config was compared in rounds."""
        return bool(self._quiet)

    def shared(self, key: bytes, other: bytes) -> list[int]:
        """The quotients of samples of ``key`` and ``other`` in the rounds they share, in millionths; none: []."""
        return [
            one * PPM // max(two, 1)
            for taken in self._quiet.values()
            if key in taken and other in taken
            for one, two in zip(taken[key], taken[other], strict=True)
        ]

    def time(self, key: bytes) -> Estimate:
        """The time of a config in the quiet rounds of its comparisons, or by all samples where it has no rounds."""
        if key not in self._estimates:
            quiet = [sample for taken in self._quiet.values() for sample in taken.get(key, ())]
            self._estimates[key] = estimate(quiet or self._all[key])
        return self._estimates[key]

    def middle(self, key: bytes, other: bytes) -> int:
        """How many millionths of the time of ``other`` a config takes."""
        shared = self.shared(key, other)
        return median(shared) if shared else self.quotient(key, other).median_ns

    def quotient(self, key: bytes, other: bytes) -> Estimate:
        """The same with its interval: in the rounds that both share.

        Where they share none it is found through a third config that has rounds with both (of several, the middle one
        decides); without any, by the times of the two.
        """
        shared = self.shared(key, other)
        if shared:
            return estimate(shared)
        thirds = (self._through(key, third, other) for third in sorted(self._all) if third not in (key, other))
        found = sorted((one for one in thirds if one), key=lambda one: (one.median_ns, one.low_ns, one.high_ns))
        if found:
            return found[len(found) // 2]
        one, two = self.time(key), self.time(other)
        return Estimate(
            one.median_ns * PPM // max(two.median_ns, 1),
            one.low_ns * PPM // max(two.high_ns, 1),
            one.high_ns * PPM // max(two.low_ns, 1),
            min(one.samples, two.samples),
        )

    def _through(self, key: bytes, third: bytes, other: bytes) -> Estimate | None:
        one, two = self.shared(key, third), self.shared(third, other)
        if not one or not two:
            return None
        near, far = estimate(one), estimate(two)
        return Estimate(
            near.median_ns * far.median_ns // PPM,
            near.low_ns * far.low_ns // PPM,
            near.high_ns * far.high_ns // PPM,
            min(near.samples, far.samples),
        )

    def leader(self) -> bytes:
        """The config that is furthest behind none: its worst quotient beside any other is the smallest.

        ``ValueError`` without configs.
        """
        worst = dict.fromkeys(self._all, 0)
        keys = sorted(self._all)
        for number, key in enumerate(keys):
            for other in keys[number + 1 :]:
                ahead = max(self.middle(key, other), 1)
                worst[key] = max(worst[key], ahead)
                worst[other] = max(worst[other], PPM * PPM // ahead)
        return min(keys, key=lambda key: (worst[key], self.time(key).median_ns, key))


def _quiet(taken: Mapping[bytes, tuple[int, ...]]) -> dict[bytes, tuple[int, ...]]:
    """The samples of the quiet rounds of one comparison; none where its trials do not have the same rounds."""
    if len({len(samples) for samples in taken.values()}) != 1:
        return {}
    totals = [sum(samples) for samples in zip(*taken.values(), strict=True)]
    ordered = sorted(totals)
    least = ordered[min(len(ordered) // _LEAST_SHARE, len(ordered) - 1)]
    limit = max(ordered[len(ordered) // _QUICKEST] * _QUIET_PERMILLE // 1000, least)
    kept = [number for number, total in enumerate(totals) if total <= limit]
    return {key: tuple([samples[number] for number in kept]) for key, samples in taken.items()}

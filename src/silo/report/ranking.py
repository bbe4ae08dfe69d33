"""Summaries of trials: the best time so far, the effect of each parameter, failures by kind, and a winner's speedup."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.values import Value
from silo.tuner.objective import values_of
from silo.tuner.statistics import Scales, median
from silo.tuner.trial import Stage, Status, Trial
from silo.tuner.winner import Winner, standings

__all__ = [
    "ConfigComparison",
    "FailureGroup",
    "FrontPoint",
    "ParameterEffect",
    "ValueLevel",
    "best_so_far",
    "compare",
    "effects",
    "failure_groups",
    "front",
    "parameter_names",
    "value_text",
]

_RESAMPLES = 1000
_MOST_SAMPLES = 200  # the most samples of either config; more make the bootstrap slower and the interval hardly better


@dataclass(frozen=True, slots=True)
class ConfigComparison:
    """The default config's time divided by the winner's: the ratio of the medians, and its 95 % interval."""

    ratio: float
    low: float
    high: float
    default_ns: int


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A config of a Pareto front: every faster config has a larger ``amount`` of the front's metric."""

    config: Config
    time_ns: int
    amount: float


def front(trials: Sequence[Trial], metric: str) -> tuple[FrontPoint, ...]:
    """Returns the Pareto front of time and another metric: configs that no other beats in both, fastest first.

    :mod:`silo.tuner.objective` lists the metrics. Each config after the first has less of the metric than all faster
    configs, so the front answers "the fastest config with at most 40 registers". Configs whose trials do not have the
    metric are left out. A pure function.
    """
    amounts = {config.order_key: value for config, value in values_of(metric, trials).items()}
    points: list[FrontPoint] = []
    for standing in standings(trials):
        amount = amounts.get(standing.config.order_key)
        if amount is not None and (not points or amount < points[-1].amount):
            points.append(FrontPoint(standing.config, standing.time.median_ns, amount))
    return tuple(points)


@dataclass(frozen=True, slots=True)
class ValueLevel:
    """The configs that have one value of a parameter: their median times, ascending, and the number that failed."""

    text: str
    times_ns: tuple[int, ...]
    failed: int

    @property
    def best_ns(self) -> int | None:
        """The time in nanoseconds of the fastest config with this value; None if all failed."""
        return self.times_ns[0] if self.times_ns else None


@dataclass(frozen=True, slots=True)
class ParameterEffect:
    """A parameter that was tried with more than one value.

    ``share`` is the part of the variance of log times that the parameter's value alone explains (eta squared, 0 to 1).
    """

    name: str
    levels: tuple[ValueLevel, ...]
    share: float


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Configs whose failures have the same kind and the same first line.

    ``detail`` is the whole message of one of the failures.
    """

    kind: str
    headline: str
    detail: str
    configs: tuple[Config, ...]


def parameter_names(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Returns the names in all configs, in the order of first appearance; the options come last."""
    values: dict[str, None] = {}
    options: dict[str, None] = {}
    for trial in trials:
        values.update(dict.fromkeys(name for name, _ in trial.config.values))
        options.update(dict.fromkeys(name for name, _ in trial.config.options))
    return (*values, *options)


def best_so_far(trials: Sequence[Trial]) -> list[int | None]:
    """Returns the least median of the working configs up to each trial; None before the first working config."""
    fastest: list[int | None] = []
    best: int | None = None
    for trial in trials:
        if trial.samples_ns:
            time = median(trial.samples_ns)
            best = time if best is None else min(best, time)
        fastest.append(best)
    return fastest


def effects(trials: Sequence[Trial]) -> tuple[ParameterEffect, ...]:
    """Returns the effect of every parameter with more than one value; the parameter that explains most comes first."""
    times = {standing.config.order_key: standing.time.median_ns for standing in standings(trials)}
    configs = {trial.config.order_key: trial.config for trial in trials}
    parameter_effects = [_effect(name, configs, times) for name in parameter_names(trials)]
    shown = [effect for effect in parameter_effects if len(effect.levels) > 1]
    return tuple(sorted(shown, key=lambda effect: (-effect.share, effect.name)))


def _effect(name: str, configs: Mapping[bytes, Config], times: Mapping[bytes, int]) -> ParameterEffect:
    groups: dict[tuple[object, ...], tuple[str, list[int], int]] = {}
    for key, config in configs.items():
        members = config.as_dict()
        text = value_text(members[name]) if name in members else "(none)"
        order = _order(members.get(name))
        _, good, failed = groups.get(order, (text, [], 0))
        groups[order] = (text, [*good, times[key]], failed) if key in times else (text, good, failed + 1)
    levels = tuple(ValueLevel(text, tuple(sorted(good)), failed) for _, (text, good, failed) in sorted(groups.items()))
    return ParameterEffect(name, levels, _share([level.times_ns for level in levels]))


def _order(value: Value) -> tuple[object, ...]:
    """Returns a sort key that puts numbers in order of size, and then all other values in order of their text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, value, "")
    return (1, 0, value_text(value))


def value_text(value: Value) -> str:
    """Returns a value as text: floats in the short form of ``%g``."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _share(groups: Sequence[Sequence[int]]) -> float:
    logs = [[math.log(max(time, 1)) for time in group] for group in groups if group]
    every = [value for group in logs for value in group]
    if len(every) < 2:
        return 0.0
    mean = sum(every) / len(every)
    total = sum((value - mean) ** 2 for value in every)
    if total == 0:
        return 0.0
    return sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in logs) / total


def failure_groups(trials: Iterable[Trial]) -> tuple[FailureGroup, ...]:
    """Groups the failed configs by the kind and the first line of the failure; the largest groups come first."""
    groups: dict[tuple[str, str], dict[bytes, Trial]] = {}
    for trial in trials:
        if trial.status is not Status.OK:
            headline = trial.message.partition("\n")[0]
            groups.setdefault((trial.status.value, headline), {})[trial.config.order_key] = trial
    failures = [
        FailureGroup(
            kind,
            headline,
            next(iter(failed.values())).message,
            tuple(failed_trial.config for failed_trial in failed.values()),
        )
        for (kind, headline), failed in groups.items()
    ]
    return tuple(sorted(failures, key=lambda group: (-len(group.configs), group.kind, group.headline)))


def compare(trials: Sequence[Trial], winner: Winner, default: Config, seed: str) -> ConfigComparison | None:
    """Compares the default with the winner. None if one of them has no samples.

    If samples of both were taken in turns, only these samples are compared. The interval is from a bootstrap of the
    ratio of medians (1000 resamples, seeded by ``seed``, so that the same trials give the same interval).
    """
    scales = Scales(trials)
    for stage in (Stage.FINAL, Stage.SEARCH):
        ours, theirs = (_samples(trials, config, stage, scales) for config in (winner.config, default))
        if ours and theirs:
            break
    else:
        return None
    best, other = median(ours), median(theirs)
    draw = random.Random(seed)  # noqa: S311  # a bootstrap, no secret
    ratios = sorted(
        median(draw.choices(theirs, k=len(theirs))) / max(median(draw.choices(ours, k=len(ours))), 1)
        for _ in range(_RESAMPLES)
    )
    tail = _RESAMPLES // 40
    return ConfigComparison(other / max(best, 1), ratios[tail], ratios[-1 - tail], other)


def _samples(trials: Iterable[Trial], config: Config, stage: Stage, scales: Scales) -> list[int]:
    pooled = [
        sample
        for trial in trials
        if trial.stage is stage and trial.config.order_key == config.order_key
        for sample in scales.samples(trial)
    ]
    step = -(-len(pooled) // _MOST_SAMPLES) if pooled else 1
    return pooled[::step]

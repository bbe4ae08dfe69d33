"""Objectives: the metric by which configs are ranked, and the constraints that a winner must meet.

Each trial has the samples of its times and the resources of its code. Other metrics are measured only if an objective
names them, and the trial keeps their raw samples. The winner of an objective depends on the trials alone
(:func:`silo.tuner.winner.choose_winner`), so trials that were measured for one objective serve any other objective
whose metrics they hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from silo.core.config import Config
from silo.errors import TuneError
from silo.frozen import frozen
from silo.tuner.trial import Status, Trial

__all__ = ["METRICS", "TIME", "Constraint", "Objective", "metric_text", "named", "values_of"]

METRICS = {
    "time": "nanoseconds of a launch",
    "energy": "nanojoules of a launch, by the device's own counter",
    "gflops": "10^9 floating-point operations a second, by the case's flops; more is better",
    "memory": "bytes of a program's shared memory and scratch memory",
    "registers": "registers of a thread",
    "shared_bytes": "bytes of a program's shared memory",
    "scratch_bytes": "bytes of a program's scratch memory",
    "spills": "values of a thread that are kept in local memory",
    "threads": "threads of a program",
}
_OF_CODE = ("memory", "registers", "shared_bytes", "scratch_bytes", "spills", "threads")
_ABSENT_IS_ZERO = ("spills", "scratch_bytes")  # a trial without one of these resources used none of it
_MORE_IS_BETTER = ("gflops",)
_UNITS = {"time": "ns", "energy": "nJ", "gflops": "GFLOP/s", "memory": "bytes"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CONSTRAINT = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*(<=|>=)\s*([0-9.]{1,30}(?:[eE][+-]?[0-9]{1,3})?)\s*")


@frozen
class Constraint:
    """An upper or lower limit of a metric. A config whose value of the metric is unknown does not meet it."""

    metric: str
    at_most: bool
    limit: float

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Parses a constraint that a user wrote.

        >>> str(Constraint.parse("registers <= 40"))
        'registers<=40'

        Raises:
            TuneError: ``text`` is not a constraint.
        """
        match = _CONSTRAINT.fullmatch(text)
        try:
            limit = math.nan if match is None else float(match[3])
        except ValueError:
            limit = math.nan
        if match is None or not math.isfinite(limit):
            raise TuneError(
                f"{text!r} is not a constraint: write METRIC<=NUMBER or METRIC>=NUMBER, such as registers<=40; the "
                f"metrics are {', '.join(METRICS)}, and the case's own"
            )
        return cls(match[1], match[2] == "<=", limit)

    def met_by(self, value: float | None) -> bool:
        """Returns whether a config with this value of the metric meets the limit. ``value`` is None if unknown."""
        if value is None:
            return False
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{self.metric}{'<=' if self.at_most else '>='}{self.limit:.15g}"


@frozen
class Objective:
    """A metric to minimize (``gflops``: to maximize) among the configs that meet every constraint."""

    metric: str = "time"
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, metric: str = "time", constraints: Sequence[str] = ()) -> Objective:
        """Parses the metric and the constraints that a user named.

        >>> str(Objective.of("energy", ["registers<=40"]))
        'energy, registers<=40'

        Raises:
            TuneError: ``metric`` is not a metric, or one of ``constraints`` is not a constraint.
        """
        if not _NAME.fullmatch(metric):
            raise TuneError(f"{metric!r} is no metric; the metrics are {', '.join(METRICS)}, and the case's own")
        limits = {str(constraint): constraint for constraint in map(Constraint.parse, constraints)}
        return cls(metric, tuple(limits[text] for text in sorted(limits)))

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Parses the result of ``str``: a metric and constraints, separated by commas.

        Raises TuneError for other text.
        """
        metric, *constraints = (part.strip() for part in text.split(","))
        return cls.of(metric, constraints)

    def __str__(self) -> str:
        return ", ".join([self.metric, *map(str, self.constraints)])

    @property
    def is_time(self) -> bool:
        """Whether this is the default objective: time, without constraints."""
        return self == TIME

    @property
    def measured(self) -> tuple[str, ...]:
        """The metrics that must be measured for this objective, besides time."""
        names = dict.fromkeys([self.metric, *(constraint.metric for constraint in self.constraints)])
        return tuple(name for name in names if name != "time" and name not in _OF_CODE)

    def is_measured(self, trials: Iterable[Trial]) -> bool:
        """Returns whether a config needs no more measuring: it failed, or its trials hold every metric's samples."""
        metric_names = set[str]()
        for trial in trials:
            if trial.status is not Status.OK:
                return True
            metric_names.update(name for name, _ in trial.metrics)
        return metric_names.issuperset(self.measured)

    def unmet(self, trials: Sequence[Trial]) -> tuple[Constraint, ...]:
        """Returns the constraints that a config with these trials does not meet."""
        return tuple(
            constraint for constraint in self.constraints if not constraint.met_by(_value(constraint.metric, trials))
        )

    def admitted(self, distinct: Sequence[Trial]) -> tuple[Trial, ...]:
        """Returns the trials of the configs that meet every constraint, and all failed trials.

        Failed trials are kept because they rule configs out.
        """
        if not self.constraints:
            return tuple(distinct)
        pools = _pools(distinct)
        refused = {key for key, pool in pools.items() if self.unmet(pool)}
        return tuple(
            trial for trial in distinct if trial.status is not Status.OK or trial.config.order_key not in refused
        )

    def cost(self, trials: Sequence[Trial]) -> float | None:
        """Returns the cost of one config; None if it does not meet a constraint or its value is unknown."""
        good = [trial for trial in trials if trial.status is Status.OK]
        if not good or self.unmet(good):
            return None
        value = _value(self.metric, good)
        if value is None:
            return None
        return self.cost_of(value)

    def cost_of(self, value: float) -> float:
        """Converts a value of the metric to a cost, so that smaller is better."""
        return 1 / max(value, 1e-300) if self.metric in _MORE_IS_BETTER else value

    def refusal(self, trials: Iterable[Trial]) -> str:
        """Returns the reason why no working config is eligible, or "".

        The reason names, for each constraint, the config that comes nearest to meeting the constraint.
        """
        pools = _pools(trials)
        if not pools or any(self.cost(pool) is not None for pool in pools.values()):
            return ""
        lines: list[str] = []
        for constraint in self.constraints:
            values = [
                (value, pool[0].config)
                for pool in pools.values()
                if (value := _value(constraint.metric, pool)) is not None
            ]
            if not values:
                lines.append(f"{constraint}: the value of no config is known")
                continue
            pick = min if constraint.at_most else max
            value, config = pick(values, key=lambda pair: pair[0])
            kind = "least" if constraint.at_most else "most"
            met = sum(constraint.met_by(value) for value, _ in values)
            lines.append(
                f"{constraint}: {met} of {len(pools)} configs meet it; the {kind} is {value:.15g}, of {config}"
            )
        if all(_value(self.metric, pool) is None for pool in pools.values()):
            lines.append(f"{self.metric}: the value of no config is known")
        return f"none of the {len(pools)} configs that work meets the objective ({self}): " + "; ".join(lines)


TIME = Objective()


def named(objective: Objective) -> str:
    """Returns the name of an objective in locks and dispatch rules; "" for time without constraints."""
    return "" if objective.is_time else str(objective)


def values_of(metric: str, trials: Iterable[Trial]) -> Mapping[Config, float]:
    """Returns the value of a metric for each usable config whose trials hold the metric."""
    values = {pool[0].config: _value(metric, pool) for pool in _pools(trials).values()}
    return {config: value for config, value in values.items() if value is not None}


def metric_text(metric: str, value: float) -> str:
    """Returns a value of a metric with its unit.

    >>> metric_text("energy", 1500), metric_text("registers", 40)
    ('1500 nJ', '40 registers')
    """
    return f"{value:.6g} {_UNITS.get(metric, metric)}"


def _pools(trials: Iterable[Trial]) -> dict[bytes, list[Trial]]:
    pools: dict[bytes, list[Trial]] = {}
    for trial in trials:
        if trial.status is Status.OK:
            pools.setdefault(trial.config.order_key, []).append(trial)
    return pools


def _value(metric: str, trials: Sequence[Trial]) -> float | None:
    """Returns a metric of one config: the median of all its samples, or for a resource the most that its code needs."""
    if metric == "time":
        return _middle([float(sample) for trial in trials for sample in trial.samples_ns])
    if metric == "memory":
        shared, scratch = (_resource(name, trials) for name in ("shared_bytes", "scratch_bytes"))
        return None if shared is None else shared + (scratch or 0)
    if metric in _OF_CODE:
        return _resource(metric, trials)
    return _middle(
        [sample for trial in trials for name, samples in trial.metrics if name == metric for sample in samples]
    )


def _resource(name: str, trials: Iterable[Trial]) -> float | None:
    counts = [dict(trial.resources) for trial in trials if trial.resources]
    counts_known = [count[name] for count in counts if name in count]
    if name in _ABSENT_IS_ZERO and counts:
        return float(max(counts_known, default=0))
    return float(max(counts_known)) if counts_known else None


def _middle(samples: Sequence[float]) -> float | None:
    """Returns the lower median, so that the result is one of the samples; None without samples."""
    return sorted(samples)[(len(samples) - 1) // 2] if samples else None

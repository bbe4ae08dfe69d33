"""The metrics that are measured for a case's configs besides their times, because an objective names them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.protocols import Device
from silo.errors import TuneError
from silo.measuring.device_energy import meter_of
from silo.settings import settings
from silo.tuner.objective import METRICS, TIME, Objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TIMES_ALONE", "MetricFunction", "MetricPlan", "plan_metrics", "wanted_objective"]

MetricFunction: TypeAlias = "Callable[[Mapping[str, NDArray[Any]], Mapping[str, Any]], float]"
"""A user's metric: takes host copies of the arrays after a launch, and the config's members; returns a number."""


@dataclass(frozen=True)
class MetricPlan:
    """The metrics to measure by name, the case's number of operations, and the functions of the case's own metrics."""

    names: tuple[str, ...] = ()
    flops: int | None = None
    functions: Mapping[str, MetricFunction] = field(default_factory=dict[str, "MetricFunction"])

    def taken(
        self,
        samples_ns: Sequence[int],
        energy: Callable[[], tuple[float, ...]],
        results: Callable[[], Mapping[str, Any]],
        config: Config,
    ) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """Measures the metrics of a config whose times are ``samples_ns``; returns the samples of each metric."""
        values_by_metric: dict[str, tuple[float, ...]] = {}
        for name in self.names:
            if name in self.functions:
                values_by_metric[name] = (_number(name, self.functions[name](results(), config.as_dict())),)
            elif name == "energy":
                values_by_metric[name] = energy()
        return tuple(sorted([*values_by_metric.items(), *self.of_times(samples_ns)]))

    def of_times(self, samples_ns: Sequence[int]) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """Returns the samples of the metrics that are computed from times, which may have been measured by an agent."""
        if "gflops" not in self.names or "gflops" in self.functions or self.flops is None:
            return ()
        return (("gflops", tuple(self.flops / max(sample, 1) for sample in samples_ns)),)


TIMES_ALONE = MetricPlan()


def wanted_objective() -> Objective:
    """Returns the objective of this process (SILO_OBJECTIVE). Raises TuneError if the setting cannot be read."""
    text = settings().objective
    try:
        return TIME if text == "time" else Objective.parse(text)
    except TuneError as error:
        raise TuneError(f"SILO_OBJECTIVE={text}: {error}") from error


def plan_metrics(
    objective: Objective,
    case: str,
    device: Device | None,
    flops: int | None,
    functions: Mapping[str, MetricFunction] | None = None,
) -> MetricPlan:
    """Makes the plan of the metrics to measure for a case on a device; ``device`` is None if agents measure.

    Raises:
        TuneError: the objective names a metric that cannot be measured for this case or on this device.
    """
    own = functions or {}
    for name in objective.measured:
        if name in own:
            continue
        if name not in METRICS:
            available = ", ".join([*METRICS, *own])
            raise TuneError(
                f"the objective {objective} names the metric {name!r}, which {case} does not have; it has {available}. "
                f"Give the case a function of its results: silo.Case(..., metrics={{{name!r}: function}})"
            )
        if name == "gflops" and flops is None:
            raise TuneError(
                f"the objective {objective} needs the number of operations of {case}: silo.Case(..., flops=...)"
            )
    by_device = [name for name in objective.measured if name in own or name != "gflops"]
    if by_device and device is None:
        raise TuneError(
            f"agents measure times alone, and the objective {objective} needs {', '.join(by_device)}: tune on the "
            "device's machine, without --agent and --ray"
        )
    if "energy" in objective.measured and "energy" not in own and device is not None:
        meter = meter_of(device)
        if isinstance(meter, Rejected):
            raise TuneError(f"the objective {objective}: energy is not measured on {device.target}: {meter.reason}")
    return MetricPlan(objective.measured, flops, own)


def _number(name: str, value: object) -> float:
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]  # a user's value
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise TuneError(f"the metric {name!r} returned {value!r}; a metric is a number that is 0 or more")
    return number

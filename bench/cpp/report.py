"""Turns samples of launches and first results into figures, bars and text. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.paired import Estimate, differences, median_interval, ratios


@dataclass(frozen=True)
class Bar:
    """A limit: the ``figure`` of a ``subject`` (a row of the table) is at most ``limit``, in ``unit``."""

    subject: str
    figure: str
    limit: float
    unit: str


EMPTY = "empty grid"
FIRST = "first result"
LIBRARY_BARS = (Bar("libsilo", "stripped", 200, "KB"), Bar("libsilo", "built", 15, "s of one core"))
CPU_BARS = (
    Bar("add on the CPU", EMPTY, 50, "ns"),
    Bar("demo bundle on the CPU", FIRST, 5, "ms"),
    Bar("1,000 variants on the CPU", FIRST, 15, "ms"),
)
GPU_BARS = (Bar("5+3 on the GPU", "of the floor", 1.05, "x"), Bar("demo bundle on the GPU", FIRST, 5, "ms"))


@dataclass(frozen=True)
class Launches:
    """The figures of one kernel's launches, in nanoseconds a call.

    Figures of a floor or an empty grid that was not measured are None.

    Estimates are medians with intervals. ``over_floor`` (difference) and ``of_floor`` (ratio) compare samples of the
    same round. ``minimum`` and ``floor_minimum`` are the least of all bursts.
    """

    rounds: int
    launch: Estimate
    minimum: float
    floor: Estimate | None
    floor_minimum: float | None
    over_floor: Estimate | None
    of_floor: Estimate | None
    empty: Estimate | None
    empty_minimum: float | None


@dataclass(frozen=True)
class Verdict:
    """A bar with the measured value; ``value`` and ``passed`` are None if the figure was not measured."""

    bar: Bar
    value: float | None
    passed: bool | None


def launches(samples: Mapping[str, Sequence[float]]) -> Launches:
    """Return the figures of the samples that a C program printed: "launch", and perhaps "floor" and "empty"."""
    launched, under, empty = samples["launch"], samples.get("floor"), samples.get("empty")
    return Launches(
        rounds=len(launched),
        launch=median_interval(launched),
        minimum=min(launched),
        floor=median_interval(under) if under else None,
        floor_minimum=min(under) if under else None,
        over_floor=median_interval(differences(launched, under), "over") if under else None,
        of_floor=median_interval(ratios(launched, under), "ratio") if under else None,
        empty=median_interval(empty) if empty else None,
        empty_minimum=min(empty) if empty else None,
    )


def firsts(samples: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the median and the minimum of each step over all processes, in milliseconds."""
    steps = [name for name, value in samples[0].items() if not isinstance(value, bool)] if samples else []
    found: dict[str, dict[str, float]] = {}
    for step in steps:
        times = [one[step] / 1e6 for one in samples]
        found[step] = {"median": round(statistics.median(times), 4), "min": round(min(times), 4)}
    return found


def judge(values: Mapping[tuple[str, str], float], bars: Sequence[Bar]) -> list[Verdict]:
    """Return a verdict for each bar."""
    verdicts: list[Verdict] = []
    for bar in bars:
        value = values.get((bar.subject, bar.figure))
        verdicts.append(Verdict(bar, value, None if value is None else value <= bar.limit))
    return verdicts


def values(
    library: Mapping[str, Any], kernels: Mapping[str, Launches], processes: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str], float]:
    """Return the values that bars limit, by (subject, figure)."""
    found = {
        ("libsilo", "stripped"): library["bytes"] / 1000,
        ("libsilo", "built"): library["cpu_s"],
    }
    for name, one in kernels.items():
        if one.empty is not None:
            found[name, EMPTY] = one.empty.median
        if one.of_floor is not None:
            found[name, "of the floor"] = one.of_floor.median
    for name, steps in processes.items():
        if FIRST in steps:
            found[name, FIRST] = steps[FIRST]["median"]
    return found


def lines(
    library: Mapping[str, Any],
    kernels: Mapping[str, Launches],
    processes: Mapping[str, Mapping[str, Mapping[str, float]]],
    verdicts: Sequence[Verdict],
) -> list[str]:
    """Return the report as lines of text: the library, the launches, the first results and the bars."""
    told = [
        f"libsilo: {library['bytes'] / 1000:.0f} KB stripped, built in {library['cpu_s']:.1f} s of one core",
        "",
        f"{'ns a call':34}{'floor':>20}{'silo_launch':>20}{'over the floor':>24}{'of the floor':>24}{'empty grid':>20}",
    ]
    for name, one in kernels.items():
        told.append(
            f"{name:34}{_short(one.floor):>20}{_short(one.launch):>20}{_interval(one.over_floor):>24}"
            f"{_interval(one.of_floor, 3):>24}{_short(one.empty):>20}"
        )
    steps = list(dict.fromkeys(step for one in processes.values() for step in one))
    told += ["", f"{'ms, median (min)':34}" + "".join(f"{step:>20}" for step in steps)]
    for name, one in processes.items():
        cells = (f"{one[step]['median']:.3f} ({one[step]['min']:.3f})" if step in one else "-" for step in steps)
        told.append(f"{name:34}" + "".join(f"{cell:>20}" for cell in cells))
    told += ["", "bars"]
    for one in verdicts:
        word = {True: "pass", False: "FAIL", None: "not measured"}[one.passed]
        value = "" if one.value is None else f"{one.value:.3f}"
        bar = one.bar
        told.append(f"  {word:13}{bar.subject}, {bar.figure}: {value} (at most {bar.limit:g} {bar.unit})")
    return told


def document(kernels: Mapping[str, Launches], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the computed part of the JSON: the figures and the bars."""
    return {
        "figures": {name: asdict(one) for name, one in kernels.items()},
        "bars": [{**asdict(one.bar), "value": one.value, "passed": one.passed} for one in verdicts],
    }


def _short(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.median:.1f}"


def _interval(estimate: Estimate | None, digits: int = 1) -> str:
    if estimate is None:
        return "-"
    return f"{estimate.median:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"

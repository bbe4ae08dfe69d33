"""Turns samples of launches into a table, bars and JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.paired import Estimate, differences, median_interval, ratios

JIT = "triton-jit"


@dataclass(frozen=True)
class Bar:
    """A limit for one row of a case, in nanoseconds or as a ratio.

    ``measure`` names the figure: ``over_floor`` (paired median), ``to_jit`` (paired median of ratios), ``minimum``
    (over bursts).
    """

    case: str
    row: str
    measure: str
    limit: float


GUARDED = ("silo", "silo-declared", "silo-bundle")
BARS = (
    *(Bar("5+3", row, "over_floor", 400) for row in GUARDED),
    *(Bar("5+3", row, "to_jit", 0.25) for row in GUARDED),
    *(Bar("12+8", row, "over_floor", 800) for row in GUARDED),
    *(Bar("58 positional", row, "over_floor", 1600) for row in GUARDED),
    *(Bar("58 keyword", row, "over_floor", 1600) for row in GUARDED),
    Bar("5+3", "silo-bound", "over_floor", 300),
    Bar("5+3", "silo-program", "over_floor", 600),
)
STUB_BARS = (Bar("5+3", "silo-held", "minimum", 250), *(Bar("5+3", row, "minimum", 330) for row in GUARDED[:2]))


@dataclass(frozen=True)
class Figures:
    """The figures of one row, in nanoseconds a launch; ``to_jit`` is None if Triton's JIT was not measured."""

    rounds: int
    wall: float
    minimum: float
    cpu: float
    over_floor: Estimate
    cpu_over_floor: Estimate
    over_floor_minimum: float
    to_jit: Estimate | None


@dataclass(frozen=True)
class Verdict:
    """A bar with the measured value; ``value`` and ``passed`` are None if the figure was not measured."""

    bar: Bar
    value: float | None
    passed: bool | None


def figures(row: Mapping[str, Any], jit: Mapping[str, Any] | None) -> Figures | None:
    """Return the figures of a row, or None if the row has no samples."""
    if row.get("status") != "measured":
        return None
    samples = row["samples"]
    wall, cpu = samples["wall"], samples["cpu"]
    to_jit = None
    if jit is not None and jit.get("status") == "measured" and len(jit["samples"]["wall"]) == len(wall):
        to_jit = median_interval(ratios(wall, jit["samples"]["wall"]), "jit")
    return Figures(
        rounds=len(wall),
        wall=median_interval(wall).median,
        minimum=min(wall),
        cpu=median_interval(cpu).median,
        over_floor=median_interval(differences(wall, samples["floor_wall"]), "wall"),
        cpu_over_floor=median_interval(differences(cpu, samples["floor_cpu"]), "cpu"),
        over_floor_minimum=min(wall) - min(samples["floor_wall"]),
        to_jit=to_jit,
    )


def summarize(cases: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Figures]]:
    """Return the figures of the measured rows, by case and row."""
    found: dict[str, dict[str, Figures]] = {}
    for case in cases:
        rows = case["rows"]
        made = {name: figures(row, rows.get(JIT)) for name, row in rows.items()}
        found[case["case"]] = {name: one for name, one in made.items() if one is not None}
    return found


def judge(summary: Mapping[str, Mapping[str, Figures]], bars: Sequence[Bar]) -> list[Verdict]:
    """Return a verdict for each bar."""
    verdicts: list[Verdict] = []
    for bar in bars:
        row = summary.get(bar.case, {}).get(bar.row)
        found = None if row is None else getattr(row, bar.measure)
        value = found.median if isinstance(found, Estimate) else found
        verdicts.append(Verdict(bar, value, None if value is None else value <= bar.limit))
    return verdicts


def table(cases: Sequence[Mapping[str, Any]], summary: Mapping[str, Mapping[str, Figures]]) -> list[str]:
    """Return the lines of a table with the microseconds of a launch."""
    lines: list[str] = []
    for case in cases:
        rows, known = case["rows"], summary[case["case"]]
        floor = [value for row in rows.values() if "samples" in row for value in row["samples"]["floor_wall"]]
        lines += ["", f"{case['case']} arguments, us a launch ({case['seconds']:.0f} s)"]
        head = ("wall", "min", "CPU", "over floor [95 %]", "CPU over [95 %]", "to JIT")
        lines.append(f"  {'':58}{head[0]:>8}{head[1]:>8}{head[2]:>8}{head[3]:>24}{head[4]:>24}{head[5]:>8}")
        if floor:
            lines.append(
                f"  {'floor: C loop over cuLaunchKernelEx':58}{median_interval(floor).median / 1e3:8.3f}"
                f"{min(floor) / 1e3:8.3f}"
            )
        for name, row in rows.items():
            one = known.get(name)
            if one is None:
                lines.append(f"  {row['label']:58}{row['status']}: {row['reason'].splitlines()[0][:90]}")
                continue
            ratio = "" if one.to_jit is None else f"{one.to_jit.median:8.2f}"
            lines.append(
                f"  {row['label']:58}{one.wall / 1e3:8.3f}{one.minimum / 1e3:8.3f}{one.cpu / 1e3:8.3f}"
                f"{_interval(one.over_floor):>24}{_interval(one.cpu_over_floor):>24}{ratio}"
            )
    return lines


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Return one line of text for each bar."""
    lines = ["", "bars"]
    for one in verdicts:
        bar = one.bar
        word = {True: "pass", False: "FAIL", None: "not measured"}[one.passed]
        scale, unit = (1.0, "x") if bar.measure == "to_jit" else (1e3, "us")
        value = "" if one.value is None else f"{one.value / scale:.3f} {unit}"
        limit = f"at most {bar.limit / scale:g} {unit}"
        lines.append(f"  {word:13}{bar.case:15}{bar.row:15}{bar.measure:12}{value:>12}  {limit}")
    return lines


def document(
    cases: Sequence[Mapping[str, Any]], summary: Mapping[str, Mapping[str, Figures]], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Return the measured part of the JSON, in nanoseconds: figures, reasons, bars and samples."""
    made: dict[str, Any] = {}
    for case in cases:
        known = summary[case["case"]]
        rows = {
            name: {**row, **({"figures": asdict(known[name])} if name in known else {})}
            for name, row in case["rows"].items()
        }
        made[case["case"]] = {"how": case["how"], "verified": case["verified"], "rows": rows}
    bars = [{**asdict(one.bar), "value": one.value, "passed": one.passed} for one in verdicts]
    return {"unit": "ns", "bars": bars, "cases": made}


def _interval(estimate: Estimate) -> str:
    return f"{estimate.median / 1e3:.3f} [{estimate.low / 1e3:.3f}, {estimate.high / 1e3:.3f}]"

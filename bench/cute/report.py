"""Turns samples of the CuTe benchmark into figures, bars and text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.paired import Estimate, median_interval, ratios


@dataclass(frozen=True)
class Bar:
    """The largest ratio that a row may have to the samples that it is paired with."""

    row: str
    limit: float


@dataclass(frozen=True)
class Figure:
    """A row: its median, the median of the samples that it is paired with, and the median ratio of the rounds.

    ``limit`` and ``passed`` are None without a bar. ``reason`` is set if the row was not measured.
    """

    row: str
    own: Estimate | None = None
    other: Estimate | None = None
    ratio: Estimate | None = None
    limit: float | None = None
    passed: bool | None = None
    reason: str = ""


def figure(row: str, samples: Sequence[float], others: Sequence[float], bars: Sequence[Bar] = ()) -> Figure:
    """Return the figure of a row from its samples and the others', paired by round."""
    ratio = median_interval(ratios(samples, others), "ratio")
    limit = next((bar.limit for bar in bars if bar.row == row), None)
    passed = None if limit is None else ratio.median <= limit
    return Figure(row, median_interval(samples), median_interval(others), ratio, limit, passed)


def missing(row: str, reason: str) -> Figure:
    """Return the figure of a row that was not measured."""
    return Figure(row, reason=" ".join(reason.split())[:300])


def lines(title: str, other: str, unit: str, figures: Sequence[Figure]) -> list[str]:
    """Return the lines of a table; ``other`` names the samples that the rows are paired with."""
    told = [f"{title + ', ' + unit:52}{'median':>12}{other:>14}{'ratio [95 %]':>26}  bar"]
    for one in figures:
        if one.own is None or one.other is None or one.ratio is None:
            told.append(f"{one.row:52}missing: {one.reason}")
            continue
        word = {True: f"pass (at most {one.limit})", False: f"FAIL (at most {one.limit})", None: ""}[one.passed]
        ratio = f"{one.ratio.median:.3f} [{one.ratio.low:.3f}, {one.ratio.high:.3f}]"
        told.append(f"{one.row:52}{one.own.median:12.2f}{one.other.median:14.2f}{ratio:>26}  {word}".rstrip())
    return told


def compiles(children: Mapping[str, Sequence[Mapping[str, Any]]], limit: float) -> tuple[Figure, str]:
    """Return the ratio of whole processes, and a text that names a wrong number of compiles ("" if there is none)."""
    seconds = {way: [one["wall_s"] - one["other_s"] for one in made] for way, made in children.items()}
    found = figure("Silo, cold store", seconds["silo"], seconds["dsl"], [Bar("Silo, cold store", limit)])
    wanted = {one["compiled"] for one in children["dsl"]}
    if {one["compiled"] for one in children["silo"]} != wanted:
        return found, "Silo and the DSL did not compile the same number"
    if any(one["compiled"] for one in children["again"]):
        return found, "the second process compiled again"
    return found, ""

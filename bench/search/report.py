"""Turns runs of searches on recorded spaces into medians, intervals, verdicts and tables. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SCHEMA = "search-runs/2"
BUDGETS = (25, 50, 100)
SLACK = 0.02  # largest allowed difference between Silo's mean and the best rival's
RESAMPLES = 10_000

BEGIN = "<!-- search figures: printed by python -m bench.search -->\n"
END = "<!-- end of search figures -->\n"


@dataclass(frozen=True)
class Verdict:
    """One space at one budget: the means, the difference (ours less theirs) with its interval, and the worst runs.

    ``rival_worst`` is the median of the rivals' worst runs.
    """

    space: str
    budget: int
    ours: float
    worst: float
    rival: str
    theirs: float
    rival_worst: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """Whether the mean is not significantly worse (or within the slack), and the worst run no worse than theirs."""
        return (self.ours - self.theirs <= SLACK or self.low <= 0) and self.worst <= self.rival_worst

    @property
    def words(self) -> str:
        """The verdict as the table shows it."""
        if not self.passed:
            return "worse"
        return "better" if self.high < 0 else "as good"


def difference_interval(ours: Sequence[float], theirs: Sequence[float], seed: str) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the difference of means; both samples are resampled.

    >>> difference_interval([1.0, 1.0], [1.5, 1.5], "")
    (-0.5, -0.5)
    """
    random = np.random.default_rng(zlib.crc32(seed.encode()))

    def means(samples: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        values = np.asarray(samples, dtype=np.float64)
        return np.mean(values[random.integers(0, len(values), size=(RESAMPLES, len(values)))], axis=1)

    low, high = np.quantile(means(ours) - means(theirs), [0.025, 0.975])
    return float(low), float(high)


def column(runs: Sequence[Sequence[float]], at: int) -> list[float]:
    """Return the figure at index ``at`` of every run."""
    return [float(run[at]) for run in runs]


def mean(runs: Sequence[Sequence[float]]) -> float:
    """Return the mean of the runs' best time over the optimum."""
    return float(np.mean(column(runs, 0)))


def judge(document: Mapping[str, Any], rivals: Mapping[str, Any]) -> list[Verdict]:
    """Compare each space and budget with the rival strategy that has the best mean there."""
    verdicts: list[Verdict] = []
    for space, runs in document["hidden"].items():
        for at, budget in enumerate(BUDGETS):
            if str(budget) not in runs:
                continue
            ours = column(runs[str(budget)], 0)
            others = {name: column(theirs, at) for name, theirs in rivals["runs"][space].items()}
            best = min(others, key=lambda name: float(np.mean(others[name])))
            low, high = difference_interval(ours, others[best], f"{space} {budget}")
            worst = float(np.median([max(found) for found in others.values()]))
            means = float(np.mean(ours)), float(np.mean(others[best]))
            verdicts.append(Verdict(space, budget, means[0], max(ours), best, means[1], worst, low, high))
    return verdicts


def markdown(document: Mapping[str, Any], rivals: Mapping[str, Any]) -> str:
    """Return all tables as Markdown."""
    strategies = list(next(iter(rivals["runs"].values())))
    ours = {len(runs) for space in document["hidden"].values() for runs in space.values()}
    theirs = {len(runs) for space in rivals["runs"].values() for runs in space.values()}
    counts = f"{_span(ours)} seeds, configs ahead: {document['ahead']}"
    lines = [f"`{document['searcher']}`, {counts}; Kernel Tuner {rivals['kernel_tuner']}, {_span(theirs)} seeds.", ""]
    lines.append(
        "Each figure is the time of the best config found, divided by the least time of the space: a mean over seeds."
        " The rival is the strategy of Kernel Tuner with the best mean on that space after as many evaluations. The"
        " difference of the two means has its 95 % bootstrap interval in brackets. The last figures are Silo's worst"
        " seed and the median of the worst seeds of all strategies."
    )
    lines += ["", "| space | evaluations | Silo | best rival | its mean | difference | worst seed | rivals' | is |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for one in judge(document, rivals):
        lines.append(
            f"| {one.space} | {one.budget} | {one.ours:.3f} | {one.rival} | {one.theirs:.3f} |"
            f" {one.ours - one.theirs:+.3f} ({one.low:+.3f} to {one.high:+.3f}) | {one.worst:.2f} |"
            f" {one.rival_worst:.2f} | {one.words} |"
        )
    lines += [
        "",
        "Means after " + " / ".join(map(str, BUDGETS)) + " evaluations, failed configs hidden from all:",
        "",
    ]
    lines += ["| space | Silo | " + " | ".join(strategies) + " |", "| --- " * (len(strategies) + 2) + "|"]
    for space, runs in document["hidden"].items():
        cells = [_means(runs), *(_rival_means(rivals["runs"][space][name]) for name in strategies)]
        lines.append(f"| {space} | " + " | ".join(cells) + " |")
    lines += ["", "Silo again where configs fail, with failed configs counted as evaluations:", ""]
    last = BUDGETS[-1]
    lines += [
        "| space | mean after " + " / ".join(map(str, BUDGETS)) + f" | worst after {last} |",
        "| --- | --- | --- |",
    ]
    for space, runs in document["counted"].items():
        worst = f"{max(column(runs[str(last)], 0)):.2f}" if str(last) in runs else "-"
        lines.append(f"| {space} | {_means(runs)} | {worst} |")
    lines += [
        "",
        "Seconds that the search alone took, as means over all spaces: " + _seconds(document, rivals, strategies) + ".",
        "",
    ]
    return "\n".join(lines)


def updated(page: str, tables: str) -> str:
    """Return the page with the new tables between its marks. ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return before + begin + tables + end + after


def _means(runs: Mapping[str, Sequence[Sequence[float]]]) -> str:
    return " / ".join(f"{mean(runs[str(budget)]):.3f}" if str(budget) in runs else "-" for budget in BUDGETS)


def _rival_means(runs: Sequence[Sequence[float]]) -> str:
    return " / ".join(f"{np.mean(column(runs, at)):.3f}" for at in range(len(BUDGETS)))


def _seconds(document: Mapping[str, Any], rivals: Mapping[str, Any], strategies: Sequence[str]) -> str:
    texts: list[str] = []
    for budget in BUDGETS:
        own = [run[1] for space in document["hidden"].values() for run in space.get(str(budget), ())]
        texts += [f"Silo {np.mean(own):.2f} for {budget}"] if own else []
    own_text = ", ".join(texts)
    texts = []
    for name in strategies:
        taken = [run[-1] for space in rivals["runs"].values() for run in space[name]]
        texts.append(f"{name} {np.mean(taken):.2f}")
    return (
        f"{own_text} evaluations. For {BUDGETS[-1]} evaluations, and with its replay of recorded times, Kernel Tuner"
        f" took: {', '.join(texts)}"
    )


def _span(counts: set[int]) -> str:
    return "-".join(map(str, sorted({min(counts), max(counts)})))

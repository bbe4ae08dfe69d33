"""From runs of searches on recorded spaces to medians, intervals, verdicts and tables. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SCHEMA = "search-runs/1"
BUDGETS = (50, 100, 200)
JUDGED = 100
SLACK = 0.02  # so far behind the best rival's median a median may be
AIM = 1.05
RESAMPLES = 10_000

# The defaults, or when the model is believed, were chosen by looking at these; the other spaces had no say.
SEEN = ("convolution_milo-A4000", "convolution_milo-W7800", "dedispersion_milo-W7800", "pnpoly-RTX_2080_Ti")
# Random sampling is the floor, not one of the five.
FLOOR = "random_sample"

BEGIN = "<!-- search figures: printed by python -m bench.search -->\n"
END = "<!-- end of search figures -->\n"


@dataclass(frozen=True)
class Verdict:
    """One space at the judged budget: medians, and the difference of medians (ours less theirs) with its interval."""

    space: str
    ours: float
    worst: float
    rival: str
    theirs: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """Within the slack, or not to be told from the rival."""
        return self.ours - self.theirs <= SLACK or self.low <= 0

    @property
    def words(self) -> str:
        """The verdict as the table has it."""
        if self.high < 0:
            return "better"
        return "as good" if self.passed else "worse"


def difference_interval(ours: Sequence[float], theirs: Sequence[float], seed: str) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the difference of medians; both samples are drawn anew.

    >>> difference_interval([1.0, 1.0], [1.5, 1.5], "")
    (-0.5, -0.5)
    """
    random = np.random.default_rng(zlib.crc32(seed.encode()))

    def medians(samples: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        values = np.asarray(samples, dtype=np.float64)
        return np.median(values[random.integers(0, len(values), size=(RESAMPLES, len(values)))], axis=1)

    low, high = np.quantile(medians(ours) - medians(theirs), [0.025, 0.975])
    return float(low), float(high)


def column(runs: Sequence[Sequence[float]], at: int) -> list[float]:
    """One figure of every run."""
    return [float(run[at]) for run in runs]


def median(runs: Sequence[Sequence[float]]) -> float:
    """The median of found over optimum of one budget."""
    return float(np.median(column(runs, 0)))


def judge(document: Mapping[str, Any], rivals: Mapping[str, Any]) -> list[Verdict]:
    """Each space against the rival with the best median on that very space."""
    at = BUDGETS.index(JUDGED)
    verdicts: list[Verdict] = []
    for space, runs in document["hidden"].items():
        ours = column(runs[str(JUDGED)], 0)
        others = {name: column(theirs, at) for name, theirs in rivals["runs"][space].items() if name != FLOOR}
        best = min(others, key=lambda name: float(np.median(others[name])))
        low, high = difference_interval(ours, others[best], space)
        medians = float(np.median(ours)), float(np.median(others[best]))
        verdicts.append(Verdict(space, medians[0], max(ours), best, medians[1], low, high))
    return verdicts


def markdown(document: Mapping[str, Any], rivals: Mapping[str, Any]) -> str:
    """All tables."""
    verdicts = judge(document, rivals)
    strategies = list(next(iter(rivals["runs"].values())))
    ours = {len(runs) for space in document["hidden"].values() for runs in space.values()}
    theirs = {len(runs) for space in rivals["runs"].values() for runs in space.values()}
    counts = f"{_span(ours)} seeds, {document['ahead']} configs ahead"
    lines = [f"`{document['searcher']}`, {counts}; Kernel Tuner {rivals['kernel_tuner']}, {_span(theirs)} seeds.", ""]
    lines.append(
        f"Found over optimum after {JUDGED} evaluations, against the rival that is best on that very space; difference"
        " of medians with its 95 % bootstrap interval. Spaces marked \\* were looked at while the defaults were chosen."
    )
    lines += ["", "| space | Silo median | worst seed | best rival | its median | difference | is |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for one in verdicts:
        mark = " \\*" if one.space in SEEN else ""
        lines.append(
            f"| {one.space}{mark} | {one.ours:.3f} | {one.worst:.2f} | {one.rival} | {one.theirs:.3f} |"
            f" {one.ours - one.theirs:+.3f} ({one.low:+.3f} to {one.high:+.3f}) | {one.words} |"
        )
    lines += [
        "",
        "Medians after " + " / ".join(map(str, BUDGETS)) + " evaluations, failed configs hidden from all:",
        "",
    ]
    lines += ["| space | Silo | " + " | ".join(strategies) + " |", "| --- " * (len(strategies) + 2) + "|"]
    for space, runs in document["hidden"].items():
        cells = [_medians(runs), *(_rival_medians(rivals["runs"][space][name]) for name in strategies)]
        lines.append(f"| {space} | " + " | ".join(cells) + " |")
    lines += ["", "Silo again where configs fail, with failed configs counted as evaluations:", ""]
    lines += [
        "| space | median after " + " / ".join(map(str, BUDGETS)) + f" | worst after {JUDGED} |",
        "| --- | --- | --- |",
    ]
    for space, runs in document["counted"].items():
        lines.append(f"| {space} | {_medians(runs)} | {max(column(runs[str(JUDGED)], 0)):.2f} |")
    lines += [
        "",
        "Seconds a search takes of its own, mean over all spaces: " + _seconds(document, rivals, strategies) + ".",
        "",
    ]
    return "\n".join(lines)


def updated(page: str, tables: str) -> str:
    """The page with new tables between its marks; ``ValueError`` where it lacks them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return before + begin + tables + end + after


def _medians(runs: Mapping[str, Sequence[Sequence[float]]]) -> str:
    return " / ".join(f"{median(runs[str(budget)]):.3f}" if str(budget) in runs else "-" for budget in BUDGETS)


def _rival_medians(runs: Sequence[Sequence[float]]) -> str:
    return " / ".join(f"{np.median(column(runs, at)):.3f}" for at in range(len(BUDGETS)))


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
    return f"{own_text} evaluations; for 200, Kernel Tuner's replay included, {', '.join(texts)}"


def _span(counts: set[int]) -> str:
    return "-".join(map(str, sorted({min(counts), max(counts)})))

"""From what the processes measured to a table, ratios, efficiencies and bars. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SLOWER_WITH_MORE = 1.10
TURNS_COST_SILO = 1.2
TURNS_COST_TORCH = 1.05
MEAN_ONE, MEAN_MOST, WORST = 0.9, 1.0, 2.0
# Of small rows: microseconds, or Silo's time over torch's, at the most threads.
SMALL_US = {"add 10,000": 3.0}
SMALL_RATIO = {
    "add 100,000": 1.3,
    "add 1,000,000": 1.5,
    "softmax 128x512": 1.5,
    "add 2^24": 1.15,
    "matmul 512x512x512": 1.15,
    "layer norm 4096x4096": 1.15,
}


@dataclass(frozen=True)
class Cell:
    """One row at one number of threads: medians in microseconds, each side alone and taking turns with the other."""

    row: str
    threads: int
    silo: float
    torch: float
    silo_turns: float
    torch_turns: float
    turns_ratio: float
    silo_twice: float  # in turns with itself over other arrays
    torch_twice: float
    silo_efficiency: float  # the time of one thread over that of n, n times; 1 is perfect
    torch_efficiency: float
    right: bool

    @property
    def ratio(self) -> float:
        """Silo's time over torch's, each alone in its process."""
        return self.silo / self.torch


Line = Mapping[str, Any]
HEAD = (
    "| row | threads | Silo, us | torch, us | ratio | in turns: Silo, us | torch, us | ratio"
    " | with itself: Silo, us | torch, us | efficiency | torch's |"
)


def cells(
    alone: Sequence[Line], torch: Sequence[Line], turns: Sequence[Line], twice: tuple[Sequence[Line], Sequence[Line]]
) -> list[Cell]:
    """What five processes measured, joined by row and threads; what one of them lacks is left out."""
    ours, theirs, both, ours_twice, theirs_twice = (
        {(one["row"], one["threads"]): one for one in lines} for lines in (alone, torch, turns, *twice)
    )
    made: list[Cell] = []
    for (row, threads), line in ours.items():
        if any((row, threads) not in others for others in (theirs, both, ours_twice, theirs_twice)):
            continue
        other, pair = theirs[row, threads]["torch"]["us"], both[row, threads]
        us = line["silo"]["us"]
        one_silo = ours.get((row, 1), line)["silo"]["us"]
        one_torch = theirs.get((row, 1), theirs[row, threads])["torch"]["us"]
        made.append(
            Cell(
                row=row,
                threads=threads,
                silo=us,
                torch=other,
                silo_turns=pair["silo"]["us"],
                torch_turns=pair["torch"]["us"],
                turns_ratio=pair["ratio"],
                silo_twice=ours_twice[row, threads]["silo"]["us"],
                torch_twice=theirs_twice[row, threads]["torch"]["us"],
                silo_efficiency=one_silo / us / threads,
                torch_efficiency=one_torch / other / threads,
                right=line["right"] and pair["right"],
            )
        )
    return made


def merged(repeats: Sequence[Sequence[Line]]) -> list[Line]:
    """What several processes measured of the same, as one: medians of their figures, wrong where one of them was.

    Where a process has its memory and its threads moves a launch of some microseconds by a tenth, for as long as the
    process lives.
    """
    made: list[Line] = []
    for same in zip(*repeats, strict=True):
        first = same[0]
        if len(measured := {(line["row"], line["threads"]) for line in same}) != 1:
            raise ValueError(f"processes measured {sorted(measured)}, each another row")
        one: dict[str, Any] = {**first, "right": all(line["right"] for line in same)}
        for name, value in first.items():
            if isinstance(value, dict):
                one[name] = {**value, "us": statistics.median(line[name]["us"] for line in same)}
        if "ratio" in first:
            one["ratio"] = statistics.median(line["ratio"] for line in same)
        made.append(one)
    return made


def geometric_mean(values: Iterable[float]) -> float:
    """Of at least one.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


@dataclass(frozen=True)
class Bar:
    """A bar: what, the figure, the limit that it should not exceed."""

    what: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the figure is within the limit."""
        return self.value <= self.limit


def judge(found: Sequence[Cell]) -> list[Bar]:
    """Every bar over the cells."""
    if not found:
        return []
    most = max(cell.threads for cell in found)
    last = {cell.row: cell for cell in found if cell.threads == most}
    by_row: dict[str, list[Cell]] = {}
    for cell in found:
        by_row.setdefault(cell.row, []).append(cell)
    bars = [Bar("rows that are wrong", float(sum(not cell.right for cell in found)), 0.0)]
    for row, own in by_row.items():
        ordered = sorted(own, key=lambda cell: cell.threads)
        pairs = [(b.silo / a.silo, a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :]]
        if pairs:
            value, a, b = max(pairs, key=lambda pair: pair[0])
            bars.append(Bar(f"{row}: {b.threads} threads over {a.threads}, alone", value, SLOWER_WITH_MORE))
    bars += [Bar(f"{row}, {most} threads, us", last[row].silo, us) for row, us in SMALL_US.items() if row in last]
    bars += [
        Bar(f"{row}, {most} threads, to torch", last[row].ratio, ratio)
        for row, ratio in SMALL_RATIO.items()
        if row in last
    ]
    for threads, limit in dict.fromkeys(((1, MEAN_ONE), (most, MEAN_MOST))):
        these = [cell for cell in found if cell.threads == threads]
        if these:
            mean = geometric_mean(cell.ratio for cell in these)
            bars.append(Bar(f"geometric mean of {len(these)} rows to torch, {threads} thread(s), alone", mean, limit))
            mean = geometric_mean(cell.turns_ratio for cell in these)
            bars.append(Bar(f"geometric mean of {len(these)} rows to torch, {threads} thread(s), turns", mean, limit))
    worst = max(found, key=lambda cell: cell.ratio)
    bars.append(Bar(f"worst ratio to torch: {worst.row}, {worst.threads} threads", worst.ratio, WORST))
    mean = geometric_mean(cell.silo_turns / cell.silo for cell in last.values())
    bars.append(Bar(f"what turns cost Silo, {most} threads, geometric mean", mean, TURNS_COST_SILO))
    mean = geometric_mean(cell.torch_turns / cell.torch for cell in last.values())
    bars.append(Bar(f"what turns cost torch, {most} threads, geometric mean", mean, TURNS_COST_TORCH))
    mean = geometric_mean(cell.silo_turns / cell.silo_twice for cell in last.values())
    bars.append(Bar(f"the same over turns with itself, Silo, {most} threads", mean, TURNS_COST_SILO))
    mean = geometric_mean(cell.torch_turns / cell.torch_twice for cell in last.values())
    bars.append(Bar(f"the same over turns with itself, torch, {most} threads", mean, TURNS_COST_TORCH))
    return bars


def table(found: Sequence[Cell]) -> str:
    """Markdown, a line for each row and number of threads."""
    lines = [
        HEAD,
        "| --- " * 12 + "|",
    ]
    lines += [
        f"| {cell.row} | {cell.threads} | {cell.silo:.4g} | {cell.torch:.4g} | {cell.ratio:.2f} |"
        f" {cell.silo_turns:.4g} | {cell.torch_turns:.4g} | {cell.turns_ratio:.2f} |"
        f" {cell.silo_twice:.4g} | {cell.torch_twice:.4g} | {cell.silo_efficiency:.2f} |"
        f" {cell.torch_efficiency:.2f} |" + ("" if cell.right else " WRONG")
        for cell in found
    ]
    return "\n".join(lines)


def bar_lines(bars: Sequence[Bar]) -> str:
    """A line a bar."""
    return "\n".join(
        f"  {'pass' if bar.passed else 'FAIL'}  {bar.what:70}{bar.value:>9.3g}  at most {bar.limit:g}" for bar in bars
    )


def sweep_table(lines: Sequence[Line], threads: Sequence[int]) -> str:
    """Markdown: a line for each row, way of calling and pool; Silo's median at each number of threads, then torch's."""
    made = ["| row | called | pool | spin | " + " | ".join(f"{count}T" for count in threads) + " | torch in turns |"]
    made.append("| --- " * (5 + len(threads)) + "|")
    grouped: dict[tuple[str, str, str, int], dict[int, Line]] = {}
    for line in lines:
        key = line["row"], line["called"], line["pool"], line["spin"]
        grouped.setdefault(key, {})[line["threads"]] = line
    for (row, called, pool, spin), by_threads in sorted(grouped.items(), key=lambda item: item[0][:2]):
        times = [f"{by_threads[n]['silo']['us']:.4g}" if n in by_threads else "-" for n in threads]
        last = by_threads[max(by_threads)]
        theirs = f"{last['torch']['us']:.4g}" if "torch" in last else "-"
        made.append(f"| {row} | {called} | {pool} | {spin} | " + " | ".join(times) + f" | {theirs} |")
    return "\n".join(made)


def document(found: Sequence[Cell], bars: Sequence[Bar], sweep: Sequence[Line]) -> dict[str, Any]:
    """What the JSON has besides the machine."""
    return {
        "unit": "us",
        "rows": [{**asdict(cell), "ratio": cell.ratio} for cell in found],
        "bars": [{**asdict(bar), "passed": bar.passed} for bar in bars],
        "sweep": list(sweep),
    }

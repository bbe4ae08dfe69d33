"""Turns the measurements of the scaling benchmark's processes into a table, ratios, efficiencies and bars. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

BEGIN = "<!-- cpu scaling: printed by python -m bench.cpu.scaling -->\n"
END = "<!-- end of cpu scaling -->\n"

SLOWER_WITH_MORE = 1.10
TURNS_COST_SILO = 1.2
TURNS_COST_TORCH = 1.05
# Limits of Silo's time over torch's: geometric means of all rows (one thread, most threads, in turns), and the worst
# row.
MEAN_ONE, MEAN_MOST, MEAN_TURNS, WORST = 0.85, 0.7, 0.65, 1.5
TURNS_COST_ROW = 1.15  # limit of Silo's time in turns over its time alone, for each row
# limit of Silo's time in turns over its slowest time without torch's calls (alone, or in turns with itself)
TURNS_COST_COLD = 1.15
LONG_US = 1000.0  # a row is long if a run alone takes more microseconds than this
TURNS_COST_LONG = 1.1
# Limits for single rows on the most threads: microseconds, and Silo's time over torch's.
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
    """One row at one number of threads: median microseconds of each side, alone and in turns with the other side."""

    row: str
    threads: int
    silo: float
    torch: float
    silo_turns: float
    torch_turns: float
    turns_ratio: float
    silo_twice: float | None  # Silo's time in turns with itself over other arrays
    team_twice: float | None  # like silo_twice, but on the OpenMP threads that torch has loaded
    torch_twice: float | None
    silo_efficiency: float  # time of one thread / (n * time of n threads); 1 is perfect
    torch_efficiency: float
    right: bool
    # numbers of launches in turns, by whose threads ran them
    picks: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def ratio(self) -> float:
        """Silo's time over torch's, each alone in its process."""
        return self.silo / self.torch

    @property
    def turns_cost(self) -> float:
        """Silo's time in turns with torch over its time alone."""
        return self.silo_turns / self.silo

    @property
    def cold_cost(self) -> float | None:
        """Silo's time in turns with torch over its slowest time without torch's calls; None if not measured.

        Silo in turns with itself over other arrays finds as little in the caches as in turns with torch, and a launch
        on the OpenMP threads waits for all of them. Any further cost comes from launching on the wrong threads.
        """
        if self.silo_twice is None or self.team_twice is None:
            return None
        return self.silo_turns / max(self.silo, self.silo_twice, self.team_twice)


Line = Mapping[str, Any]
HEAD = (
    "| row | threads | Silo, us | torch, us | ratio | in turns: Silo, us | torch, us | ratio | over alone"
    " | with itself: Silo, us | on the team, us | torch, us | over these | efficiency | torch's | in turns, on |"
)


def cells(
    alone: Sequence[Line],
    torch: Sequence[Line],
    turns: Sequence[Line],
    silo_twice: Sequence[Line] | None = None,
    team_twice: Sequence[Line] | None = None,
    torch_twice: Sequence[Line] | None = None,
) -> list[Cell]:
    """Join the lines of the kinds of processes by row and number of threads; return one cell for each.

    A row that is missing in one kind is left out. ``..._twice`` are lines of a library in turns with itself,
    ``team_twice`` of Silo on OpenMP threads; None if not measured.
    """
    ours, theirs, both = kinds = [_by_row_and_threads(lines) for lines in (alone, torch, turns)]
    silo_same, team_same, torch_same = (
        None if lines is None else _by_row_and_threads(lines) for lines in (silo_twice, team_twice, torch_twice)
    )
    kinds += [lines for lines in (silo_same, team_same, torch_same) if lines is not None]
    made: list[Cell] = []
    for (row, threads), line in ours.items():
        if any((row, threads) not in others for others in kinds):
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
                silo_twice=silo_same[row, threads]["silo"]["us"] if silo_same is not None else None,
                team_twice=team_same[row, threads]["silo"]["us"] if team_same is not None else None,
                torch_twice=torch_same[row, threads]["torch"]["us"] if torch_same is not None else None,
                silo_efficiency=one_silo / us / threads,
                torch_efficiency=one_torch / other / threads,
                right=line["right"] and pair["right"],
                picks=pair.get("picks", {}),
            )
        )
    return made


def _by_row_and_threads(lines: Sequence[Line]) -> dict[tuple[str, int], Line]:
    return {(one["row"], one["threads"]): one for one in lines}


def merged(repeats: Sequence[Sequence[Line]]) -> list[Line]:
    """Merge the lines of processes that measured the same rows: medians of their figures, wrong if any was wrong.

    Several processes are needed, because the place of a process's memory and threads changes a launch of some
    microseconds by a tenth, for as long as the process lives.
    """
    made: list[Line] = []
    for same in zip(*repeats, strict=True):
        first = same[0]
        if len(measured := {(line["row"], line["threads"]) for line in same}) != 1:
            raise ValueError(f"processes measured {sorted(measured)}, each another row")
        one: dict[str, Any] = {**first, "right": all(line["right"] for line in same)}
        for name, value in first.items():
            if name == "picks":
                one[name] = dict(sum((Counter(line[name]) for line in same), Counter[str]()))
            elif isinstance(value, dict):
                one[name] = {**value, "us": statistics.median(line[name]["us"] for line in same)}
        if "ratio" in first:
            one["ratio"] = statistics.median(line["ratio"] for line in same)
        made.append(one)
    return made


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of one or more values.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


@dataclass(frozen=True)
class Bar:
    """A bar: its name, the measured value, and the limit that the value should not exceed."""

    what: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the value is within the limit."""
        return self.value <= self.limit


def judge(found: Sequence[Cell]) -> list[Bar]:
    """Return all bars of the measured cells."""
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
    for threads, limit in {1: MEAN_ONE, most: MEAN_MOST}.items():
        these = [cell for cell in found if cell.threads == threads]
        if these:
            bars += _mean_and_worst(these, f"{threads} thread(s) alone", limit, lambda cell: cell.ratio)
    several = list(last.values())
    if most > 1:
        bars += _mean_and_worst(several, f"{most} threads in turns", MEAN_TURNS, lambda cell: cell.turns_ratio)
        for name, limit, those in (
            ("row", TURNS_COST_ROW, several),
            ("row of a millisecond", TURNS_COST_LONG, [cell for cell in several if cell.silo > LONG_US]),
        ):
            if those:
                dearest = max(those, key=lambda cell: cell.turns_cost)
                bars.append(Bar(f"turns over alone, dearest {name}: {dearest.row}", dearest.turns_cost, limit))
        cold = {cell.row: cost for cell in several if (cost := cell.cold_cost) is not None}
        if cold:
            row = max(cold, key=cold.__getitem__)
            bars.append(Bar(f"turns over cold caches and the team, dearest row: {row}", cold[row], TURNS_COST_COLD))
    mean = geometric_mean(cell.turns_cost for cell in several)
    bars.append(Bar(f"turns over alone, Silo, {most} threads, geometric mean", mean, TURNS_COST_SILO))
    mean = geometric_mean(cell.torch_turns / cell.torch for cell in several)
    bars.append(Bar(f"turns over alone, torch, {most} threads, geometric mean", mean, TURNS_COST_TORCH))
    for name, limit, ratios in (
        ("Silo", TURNS_COST_SILO, [cell.silo_turns / cell.silo_twice for cell in several if cell.silo_twice]),
        ("torch", TURNS_COST_TORCH, [cell.torch_turns / cell.torch_twice for cell in several if cell.torch_twice]),
    ):
        if ratios:
            what = f"turns over turns with itself, {name}, {most} threads, geometric mean"
            bars.append(Bar(what, geometric_mean(ratios), limit))
    return bars


def _mean_and_worst(those: Sequence[Cell], name: str, limit: float, ratio_of: Callable[[Cell], float]) -> list[Bar]:
    worst = max(those, key=ratio_of)
    mean = geometric_mean(ratio_of(cell) for cell in those)
    return [
        Bar(f"{name}: geometric mean of {len(those)} rows to torch", mean, limit),
        Bar(f"{name}: worst row to torch: {worst.row}", ratio_of(worst), WORST),
    ]


def table(found: Sequence[Cell]) -> str:
    """Return a Markdown table with a line for each row and number of threads."""
    lines = [
        HEAD,
        "| --- " * 16 + "|",
    ]
    lines += [
        f"| {cell.row} | {cell.threads} | {cell.silo:.4g} | {cell.torch:.4g} | {cell.ratio:.2f} |"
        f" {cell.silo_turns:.4g} | {cell.torch_turns:.4g} | {cell.turns_ratio:.2f} |"
        f" {cell.turns_cost:.2f} | {_shown(cell.silo_twice)} | {_shown(cell.team_twice)} | {_shown(cell.torch_twice)} |"
        f" {_ratio(cell.cold_cost)} | {cell.silo_efficiency:.2f} | {cell.torch_efficiency:.2f} |"
        f" {_listed(cell.picks)} |" + ("" if cell.right else " WRONG")
        for cell in found
    ]
    return "\n".join(lines)


def _listed(picks: Mapping[str, int]) -> str:
    """Return the counts as text, the most frequent first.

    >>> _listed({"own_late": 3, "team_awake": 40})
    'team_awake 40, own_late 3'
    """
    return ", ".join(f"{name} {count}" for name, count in Counter(picks).most_common()) or "one thread"


def _shown(us: float | None) -> str:
    return "-" if us is None else f"{us:.4g}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def page_table(found: Sequence[Cell], only: Sequence[str] = ()) -> str:
    """Return a page's Markdown table: all rows or ``only`` some, on one thread and on the most, and all means."""
    most = max(cell.threads for cell in found)
    one = {cell.row: cell for cell in found if cell.threads == 1}
    several = [cell for cell in found if cell.threads == most]
    head = (
        f"1 thread | {most} threads | {most} threads, in turns | us, {most} threads, in turns | over alone | over cold"
    )
    made = [f"| Silo's time over torch's | {head} |", "| --- " * 7 + "|"]
    for cell in several:
        if only and cell.row not in only:
            continue
        alone = f"{one[cell.row].ratio:.2f}" if cell.row in one else "-"
        made.append(
            f"| {cell.row} | {alone} | {cell.ratio:.2f} | {cell.turns_ratio:.2f} | {cell.silo_turns:.4g}"
            f" | {cell.turns_cost:.2f} | {_ratio(cell.cold_cost)} |"
        )
    means = [
        geometric_mean(cell.ratio for cell in one.values()) if one else None,
        geometric_mean(cell.ratio for cell in several),
        geometric_mean(cell.turns_ratio for cell in several),
    ]
    shown = " | ".join(_ratio(mean) for mean in means)
    cost = geometric_mean(cell.turns_cost for cell in several)
    colds = [cell.cold_cost for cell in several if cell.cold_cost is not None]
    cold = _ratio(geometric_mean(colds) if colds else None)
    return "\n".join([*made, f"| geometric mean of {len(several)} rows | {shown} | | {cost:.2f} | {cold} |"])


def updated(page: str, table: str) -> str:
    """Return the page with the new table between its marks. ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{begin}{table}\n\n{end}{after}"


def bar_lines(bars: Sequence[Bar]) -> str:
    """Return one line of text for each bar."""
    return "\n".join(
        f"  {'pass' if bar.passed else 'FAIL'}  {bar.what:70}{bar.value:>9.3g}  at most {bar.limit:g}" for bar in bars
    )


def sweep_table(lines: Sequence[Line], threads: Sequence[int]) -> str:
    """Return the sweep's Markdown table: a line for each row, way of calling, pool and length of spinning.

    It has Silo's median at each number of threads, and torch's at the most threads.
    """
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
    """Return the JSON document, without the description of the machine."""
    return {
        "unit": "us",
        "rows": [
            {**asdict(cell), "ratio": cell.ratio, "turns_cost": cell.turns_cost, "cold_cost": cell.cold_cost}
            for cell in found
        ],
        "bars": [{**asdict(bar), "passed": bar.passed} for bar in bars],
        "sweep": list(sweep),
    }

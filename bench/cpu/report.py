"""Turns samples of the CPU benchmark into figures, bars, tables and JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.paired import Estimate, median_interval, ratios

# Limits of Silo's time over eager's, in fp32 on one thread.
ROW_BARS = {"add": 1.15, "softmax": 1.2, "layer norm": 0.5, "matmul": 1.4}
EAGER_BAR = 1.0  # limit of the geometric mean of Silo's time over eager's, for all fp32 rows on one thread
COMPILED_BAR = 1.3
INTERPRETER_BAR = 100.0  # the least value of the interpreter's time over Silo's, for each row

BEGIN = "<!-- cpu figures: printed by python -m bench.cpu -->\n"
END = "<!-- end of cpu figures -->\n"


@dataclass(frozen=True)
class Measured:
    """The samples of one row: seconds of a run, by side, one sample for each round; or the reason why there are none.

    ``absent`` has the reason for each single side that was not measured. ``error`` is the largest error divided by the
    tolerance.
    """

    row: str
    dtype: str
    size: str
    threads: int
    work: float
    status: str  # "measured", "wrong" or "missing"
    reason: str
    error: float | None
    samples: Mapping[str, list[float]]
    cpu_samples: Mapping[str, list[float]]
    absent: Mapping[str, str]


@dataclass(frozen=True)
class Figures:
    """The figures of one row.

    ``ms`` has the median milliseconds of each side; ``to_eager`` and ``to_compiled`` are Silo's time over theirs,
    paired; ``interpreter`` is the interpreter's time over Silo's.
    """

    row: str
    dtype: str
    size: str
    threads: int
    status: str
    reason: str
    error: float | None
    ms: Mapping[str, float]
    to_eager: Estimate | None
    to_compiled: Estimate | None
    interpreter: float | None
    interpreter_reason: str


@dataclass(frozen=True)
class Verdict:
    """A bar with the measured value; ``value`` is None if the figure was not measured."""

    what: str
    value: float | None
    limit: float
    at_least: bool = False

    @property
    def passed(self) -> bool | None:
        """Whether the bar is met; None if the figure was not measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def figures(measured: Measured, costs: Mapping[str, float | str]) -> Figures:
    """Return the figures of one row. The interpreter's time is scaled up from a small size."""
    samples = measured.samples
    ours = samples.get("silo")
    cost = costs.get(measured.row, "not asked")
    times = {side: 1e3 * median_interval(values).median for side, values in samples.items()}

    def against(side: str) -> Estimate | None:
        return median_interval(ratios(ours, samples[side]), side) if ours and side in samples else None

    slower = None if ours is None or isinstance(cost, str) else 1e3 * cost * measured.work / times["silo"]
    return Figures(
        row=measured.row,
        dtype=measured.dtype,
        size=measured.size,
        threads=measured.threads,
        status=measured.status,
        reason=measured.reason,
        error=measured.error,
        ms=times,
        to_eager=against("eager"),
        to_compiled=against("compiled"),
        interpreter=slower,
        interpreter_reason=cost if isinstance(cost, str) else "",
    )


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean, or None for no values.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def judge(rows: Sequence[Figures]) -> list[Verdict]:
    """Return a verdict for each bar.

    A mean covers the rows that were measured; wrong and missing rows have their own bars.
    """
    table = [row for row in rows if row.threads == 1 and row.dtype == "fp32"]
    verdicts: list[Verdict] = []
    for name, limit in ROW_BARS.items():
        found = next((row.to_eager.median for row in table if row.row == name and row.to_eager), None)
        verdicts.append(Verdict(f"{name} fp32, 1 thread, to eager", found, limit))
    eager = [row.to_eager.median for row in table if row.to_eager]
    compiled = [row.to_compiled.median for row in table if row.to_compiled]
    verdicts.append(
        Verdict(f"geometric mean of {len(eager)} fp32 rows, 1 thread, to eager", geometric_mean(eager), EAGER_BAR)
    )
    verdicts.append(
        Verdict(
            f"geometric mean of {len(compiled)} fp32 rows, 1 thread, to torch.compile",
            geometric_mean(compiled),
            COMPILED_BAR,
        )
    )
    least = [row for row in rows if row.interpreter is not None]
    if least:
        worst = min(least, key=lambda row: row.interpreter or 0.0)
        label = (
            f"{worst.row} {worst.dtype}, {worst.threads} thread(s): the least over the interpreter of {len(least)} rows"
        )
        verdicts.append(Verdict(label, worst.interpreter, INTERPRETER_BAR, at_least=True))
    else:
        verdicts.append(Verdict("least over the interpreter", None, INTERPRETER_BAR, at_least=True))
    for status in ("wrong", "missing"):
        count = sum(row.status == status for row in rows)
        verdicts.append(Verdict(f"rows that are {status}", float(count), 0))
    return verdicts


def line(row: Figures) -> str:
    """Return one line of text about a row."""
    label = f"{row.row} {row.dtype} {row.size}"
    head = f"{label:36} {row.threads}T "
    if row.status != "measured":
        return f"{head} {row.status}: {' '.join(row.reason.split())[:160]}"
    times = "  ".join(f"{side} {value:8.3f}" for side, value in row.ms.items())
    slower = "" if row.interpreter is None else f"  interpreter {row.interpreter:.0f}x"
    return (
        f"{head} to eager {_interval(row.to_eager):18} to compiled {_interval(row.to_compiled):18} "
        f"{times} ms  error {row.error:.2f}{slower}"
    )


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Return one line of text for each bar."""
    lines = ["", "bars"]
    for one in verdicts:
        word = {True: "pass", False: "FAIL", None: "not measured"}[one.passed]
        value = "" if one.value is None else f"{one.value:.3g}"
        lines.append(f"  {word:13}{one.what:80}{value:>8}  at {'least' if one.at_least else 'most'} {one.limit:g}")
    return lines


def markdown(rows: Sequence[Figures]) -> str:
    """Return the table of the documentation: a line for each kernel, a column for each dtype and number of threads.

    A kernel that was measured in another dtype alone stands in the columns of the first dtype. Only the JSON has
    intervals.
    """
    by_row: dict[str, dict[tuple[str, int], Figures]] = {}
    main = rows[0].dtype if rows else "fp32"
    alone = {row.row for row in rows} - {row.row for row in rows if row.dtype == main}
    for row in rows:
        name, dtype = (f"{row.row}, {row.dtype}", main) if row.row in alone else (row.row, row.dtype)
        by_row.setdefault(name, {})[dtype, row.threads] = row
    threads = sorted({row.threads for row in rows}) or [1]
    dtypes = list(dict.fromkeys(dtype for found in by_row.values() for dtype, _ in found)) or [main]
    columns = [(dtype, threads[0]) for dtype in dtypes] + [(main, more) for more in threads[1:]]
    to_eager = [f"to eager: {dtype}, {_threads(count)}" for dtype, count in columns]
    head = ["row", "size", f"{main}, ms, {_threads(threads[0])}", "to torch.compile", *to_eager]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name, found in by_row.items():
        one = found.get((main, threads[0])) or next(iter(found.values()))
        time = f"{one.ms['silo']:.3g}" if one.status == "measured" else _reason(one)
        compiled = "-" if one.to_compiled is None else f"{one.to_compiled.median:.2f}"
        cells = [name, one.size, time, compiled, *(_median(found.get(column)) for column in columns)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _reason(row: Figures) -> str:
    return f"{row.status}: {' '.join(row.reason.split())[:100]}".replace("|", "/")


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _median(row: Figures | None) -> str:
    if row is None or (row.status == "measured" and row.to_eager is None):
        return "-"
    return row.status if row.to_eager is None else f"{row.to_eager.median:.2f}"


def updated(page: str, table: str) -> str:
    """Return the page with the new table between its marks. ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return before + begin + table + end + after


def document(rows: Sequence[Figures], measured: Sequence[Measured], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the measured part of the JSON: figures, samples in seconds, reasons and bars."""
    made = [
        {**asdict(row), "absent": dict(one.absent), "samples": dict(one.samples), "cpu_samples": dict(one.cpu_samples)}
        for row, one in zip(rows, measured, strict=True)
    ]
    bars = [{**asdict(one), "passed": one.passed} for one in verdicts]
    return {"unit": "s", "bars": bars, "rows": made}


def _interval(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.median:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"

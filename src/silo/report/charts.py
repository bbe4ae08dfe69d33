"""Charts as SVG text: the progress of a search, the times for each value of a parameter, and rooflines."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from silo.report.ranking import ParameterEffect, best_so_far
from silo.sanitized_text import printable
from silo.text_tables import format_time
from silo.tuner.statistics import median
from silo.tuner.trial import Status, Trial

__all__ = ["LinearScale", "LogScale", "RooflinePoint", "effect_chart", "progress_chart", "roofline_chart"]

# ---- Axes: scales that map values to coordinates, and the round values that label them ----


@dataclass(frozen=True, slots=True)
class LinearScale:
    """A linear axis. The values from ``low`` to ``high`` are drawn at the coordinates from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Returns the coordinate of a value."""
        span = self.high - self.low
        return self.start + (self.end - self.start) * ((value - self.low) / span if span else 0.5)

    def ticks(self, count: int = 6) -> list[float]:
        """Returns about ``count`` round values in the range.

        >>> LinearScale(1, 12, 0, 1).ticks()
        [2, 4, 6, 8, 10, 12]
        """
        step = _round_step((self.high - self.low) / max(count, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """A logarithmic axis, with the members of :class:`LinearScale`. ``low`` is positive."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Returns the coordinate of a value. A value below ``low``, for example 0, has the coordinate of ``low``."""
        span = math.log(self.high / self.low)
        share = math.log(max(value, self.low) / self.low) / span if span else 0.5
        return self.start + (self.end - self.start) * share

    def ticks(self, count: int = 6) -> list[float]:
        """Returns round values: 1, 2, 5 and powers of ten over wide ranges, linear steps within a factor of four.

        >>> LogScale(3, 700, 0, 1).ticks()
        [5, 10, 20, 50, 100, 200, 500]
        """
        if self.high / self.low < 4:
            return LinearScale(self.low, self.high, self.start, self.end).ticks(count)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1, 2, 5) if len(decades) <= 4 else (1,)
        marks = [factor * 10.0**power for power in decades for factor in factors]
        return [int(mark) if mark >= 1 else mark for mark in marks if self.low <= mark <= self.high]


def _round_step(raw: float) -> float:
    """Returns the least number of the form 1, 2 or 5 times a power of ten that is at least ``raw``; an int if whole."""
    if raw <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(raw) + 1e-9)
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return int(step) if step >= 1 else step


# ---- Charts as SVG text: the progress of a search, and the times for the values of a parameter ----

# A chart with more points than this draws them as one path; single points have a tooltip each.
_MOST_MARKS = 3000
_MARGIN = 1.12  # the axis extends beyond the least and the largest value by this factor


def _escaped(text: str) -> str:
    return escape(printable(text))


def _svg(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{_escaped(label)}" class="chart"'
        f' width="{width}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{css}>{_escaped(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _dot(x: float, y: float, radius: float, kind: str, title: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}"><title>{_escaped(title)}</title></circle>'


def _time_axis(scale: LogScale, left: float, right: float) -> list[str]:
    ticks = scale.ticks(5)
    parts = [_line(left, scale.place(tick), right, scale.place(tick), "grid") for tick in ticks]
    return parts + [_text(left - 7, scale.place(tick) + 4, format_time(round(tick)), "tick", "end") for tick in ticks]


def _range(times: Iterable[float]) -> tuple[float, float]:
    drawn = [max(time, 1.0) for time in times] or [1.0, 10.0]
    return min(drawn) / _MARGIN, max(drawn) * _MARGIN


def progress_chart(trials: Sequence[Trial], *, default_ns: int | None = None, least_ns: float | None = None) -> str:
    """Draws each trial of a search in the order of trials, the best time so far as a line, and failures in a row below.

    ``default_ns`` and ``least_ns`` are the times in nanoseconds of the default config and of the speed of light; each
    is drawn as a line across.
    """
    width, left, right, top, bottom = 1120, 76, 1000, 14, 262
    # The row of failed configs is below the times.
    foot = bottom + (28 if any(trial.status is not Status.OK for trial in trials) else 4)
    height = foot + 44
    times = [float(median(trial.samples_ns)) for trial in trials if trial.samples_ns]
    levels = [float(level) for level in (default_ns, least_ns) if level]
    y = LogScale(*_range([*times, *levels]), bottom, top)
    x = LinearScale(0.5, max(len(trials), 1) + 0.5, left, right)
    parts = _time_axis(y, left, right)
    parts += [
        _text(x.place(tick), foot + 16, str(round(tick)), "tick") for tick in x.ticks(10) if tick == round(tick) > 0
    ]
    parts.append(_text((left + right) / 2, height - 6, "configs in the order they were measured", "axis"))
    parts += _marks(trials, x, y, bottom + 16)
    best = best_so_far(trials)
    steps = [(x.place(position), y.place(time)) for position, time in enumerate(best, start=1) if time is not None]
    if steps:
        path = f"M{steps[0][0]:.1f} {steps[0][1]:.1f}" + "".join(f"H{px:.1f}V{py:.1f}" for px, py in steps[1:])
        parts.append(f'<path d="{path}H{right}" class="best"/>')
    notes: list[tuple[float, str, str]] = []
    if default_ns:
        notes.append((default_ns, "default", "default"))
    if least_ns:
        notes.append((least_ns, "light", "speed of light"))
    if best and best[-1] is not None:
        notes.append((best[-1], "best", f"best {format_time(best[-1])}"))
    parts += _notes(notes, y, left, right)
    return _svg(width, height, "time of each config and the best so far", parts)


def _marks(trials: Sequence[Trial], x: LinearScale, y: LogScale, floor: float) -> list[str]:
    if len(trials) > _MOST_MARKS:
        good = [
            f"M{x.place(n):.1f} {y.place(median(trial.samples_ns)):.1f}h0"
            for n, trial in enumerate(trials, start=1)
            if trial.samples_ns
        ]
        bad = [f"M{x.place(n):.1f} {floor:.1f}h0" for n, trial in enumerate(trials, start=1) if not trial.samples_ns]
        return [f'<path d="{"".join(good)}" class="points"/>', f'<path d="{"".join(bad)}" class="points failed"/>']
    parts: list[str] = []
    for number, trial in enumerate(trials, start=1):
        if trial.status is Status.OK:
            time = median(trial.samples_ns)
            title = f"{number}. {trial.config}: {format_time(time)}"
            parts.append(_dot(x.place(number), y.place(time), 3.2, "trial", title))
        else:
            first = trial.message.splitlines()[0] if trial.message else ""
            title = f"{number}. {trial.config}: {trial.status.value}: {first}"
            px = x.place(number)
            cross = f"M{px - 3:.1f} {floor - 3:.1f}l6 6m0 -6l-6 6"
            parts.append(f'<path d="{cross}" class="failed"><title>{_escaped(title)}</title></path>')
    if any(trial.status is not Status.OK for trial in trials):
        parts.append(_text(x.start - 7, floor + 4, "failed", "tick", "end"))
    return parts


def _notes(notes: Sequence[tuple[float, str, str]], y: LogScale, left: float, right: float) -> list[str]:
    """Draws lines across the chart. Their labels, at the right, are moved apart if they would overlap."""
    parts: list[str] = []
    above = -100.0
    for time, kind, label in sorted(notes, key=lambda note: -note[0]):
        at = y.place(time)
        if kind != "best":
            parts.append(_line(left, at, right, at, kind))
        written = max(at + 4, above + 14)
        above = written
        parts.append(_text(right + 6, written, label, f"note {kind}", "start"))
    return parts


def effect_chart(effect: ParameterEffect) -> str:
    """Draws, for each value of a parameter, its configs' times as dots, the median as a bar, and the best as a mark."""
    count = len(effect.levels)
    left, top, bottom = 70, 10, 150
    step = max(26, min(50, 420 // count))
    width, height = left + step * count + 10, 196
    y = LogScale(*_range(float(time) for level in effect.levels for time in level.times_ns), bottom, top)
    parts = _time_axis(y, left, width - 10)
    every = max(1, -(-44 // step)) if max(len(level.text) for level in effect.levels) > 4 else 1
    for position, level in enumerate(effect.levels):
        centre = left + step * (position + 0.5)
        parts += _column(level.text, level.times_ns, centre, step, y)
        if position % every == 0:
            parts.append(_text(centre, bottom + 18, _short(level.text), "tick"))
        if level.failed:
            parts.append(_text(centre, bottom + 34, f"{level.failed}\u2009\u2717", "failed note"))
    return _svg(width, height, f"times by the value of {effect.name}", parts)


def _column(text: str, times: Sequence[int], centre: float, step: int, y: LogScale) -> list[str]:
    if not times:
        return []
    parts: list[str] = []
    shown = times if len(times) <= 200 else times[:: -(-len(times) // 200)]
    for number, time in enumerate(shown):
        shift = (_scatter(f"{text}/{number}") - 0.5) * step * 0.5
        parts.append(f'<circle cx="{centre + shift:.1f}" cy="{y.place(time):.1f}" r="2.2" class="trial"/>')
    middle, best = y.place(median(times)), y.place(times[0])
    parts.append(
        f'<path d="M{centre - step * 0.32:.1f} {middle:.1f}h{step * 0.64:.1f}" class="median">'
        f"<title>{_escaped(f'{text}: median {format_time(median(times))} of {len(times)} configs')}</title></path>"
    )
    parts.append(_dot(centre, best, 4, "winner", f"{text}: best {format_time(times[0])}"))
    return parts


def _scatter(text: str) -> float:
    """Returns a number in [0, 1) that looks random but depends on the text only.

    A dot is moved sideways by this number, so that dots do not cover each other.
    """
    return hashlib.blake2b(text.encode(), digest_size=2).digest()[0] / 256


def _short(text: str) -> str:
    return text if len(text) <= 9 else text[:8] + "\u2026"


# ---- A roofline: rates of arithmetic by operations for each byte, below the limits of the device ----


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """A case in a roofline: its operations for each byte, the winner's operations per second, and its page's link."""

    label: str
    intensity: float
    rate: float
    href: str = ""


def roofline_chart(points: Sequence[RooflinePoint], copies: Sequence[int], dots: Sequence[tuple[str, int]]) -> str:
    """Draws operations per second by operations for each byte, both logarithmic, below the device's measured limits.

    Args:
        points: at least one.
        copies: rates of copying in bytes per second; the slowest and the fastest are drawn as slopes.
        dots: for each dtype of the factors, the operations per second of matrix products, drawn as a level.
    """
    width, height, left, right, top, bottom = 1120, 380, 84, 960, 16, 326
    xs, ys = [point.intensity for point in points], [point.rate for point in points]
    slopes = sorted({min(copies), max(copies)}) if copies else []
    levels = sorted(dots, key=lambda pair: pair[1])
    ridges = [rate / slope for _, rate in levels for slope in slopes]
    x = LogScale(min([*xs, *ridges]) / 2, max([*xs, *ridges]) * 2, left, right)
    tops = [float(rate) for _, rate in levels] or [x.high * slope for slope in slopes]
    y = LogScale(min([*ys, *(slope * x.low for slope in slopes)]) / 1.5, max([*ys, *tops]) * 1.6, bottom, top)
    parts = [_line(left, y.place(tick), right, y.place(tick), "grid") for tick in y.ticks(5)]
    parts += [_text(left - 7, y.place(tick) + 4, _operations(tick), "tick", "end") for tick in y.ticks(5)]
    parts += [_line(x.place(tick), top, x.place(tick), bottom, "grid") for tick in x.ticks(8)]
    parts += [_text(x.place(tick), bottom + 18, f"{tick:g}", "tick") for tick in x.ticks(8)]
    parts.append(_text((left + right) / 2, height - 8, "operations for each byte", "axis"))
    highest = levels[-1][1] if levels else y.high
    for slope in slopes:
        low, high = max(x.low, y.low / slope), min(x.high, highest / slope)
        if low < high:
            parts.append(_line(x.place(low), y.place(low * slope), x.place(high), y.place(high * slope), "light"))
            at = max(low, high / 40)
            parts.append(_text(x.place(at), y.place(at * slope) - 6, _bytes(slope), "light", "end"))
    for name, rate in levels:
        begin = max(x.low, rate / slopes[-1]) if slopes else x.low
        parts.append(_line(x.place(begin), y.place(rate), right, y.place(rate), "light"))
        parts.append(_text(right + 6, y.place(rate) + 4, f"{name} {_operations(rate)}", "note light", "start"))
    for point in points:
        title = f"{point.label}: {_operations(point.rate)} at {point.intensity:.3g} operations for each byte"
        dot = _dot(x.place(point.intensity), y.place(point.rate), 5, "winner", title)
        parts.append(f'<a href="{_escaped(point.href)}">{dot}</a>' if point.href else dot)
    return _svg(width, height, "operations per second by operations for each byte", parts)


def _operations(rate: float) -> str:
    """Formats a rate of operations.

    >>> _operations(2.5e9), _operations(1e12)
    ('2.5 GFLOP/s', '1 TFLOP/s')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}FLOP/s"
    return f"{rate:.3g} FLOP/s"


def _bytes(rate: float) -> str:
    return f"{rate / 1e12:.3g} TB/s" if rate >= 1e12 else f"{rate / 1e9:.3g} GB/s"

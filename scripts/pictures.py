"""Draws the pictures of the pages from bench/results: ``python scripts/pictures.py [--check]``.

They are SVG with colours for light and dark pages. ``--check`` writes nothing, and exits with 1 if a picture does not
match its results.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PICTURES = ROOT / "docs" / "pictures"

WIDTH, LABEL, NUMBER, ROW, BAR = 720, 230, 80, 26, 16

# The colours of pictures on light pages, and below on dark pages.
LIGHT = {"text": "#1f2328", "small": "#59636e", "silo": "#0a7d5a", "other": "#9aa4af", "floor": "#c9d1d9"}
DARK = {"text": "#e6edf3", "small": "#9198a1", "silo": "#3fb68b", "other": "#5b6570", "floor": "#3d444d"}
_RULES = """svg.picture text { font: 13px system-ui, sans-serif; fill: var(--picture-text) }
svg.picture .title { font-weight: 600; font-size: 14px }
svg.picture .small { font-size: 11px; fill: var(--picture-small) }
svg.picture .silo { fill: var(--picture-silo) }
svg.picture .other { fill: var(--picture-other) }
svg.picture .floor { fill: var(--picture-floor) }
svg.picture .line { fill: none; stroke-width: 2 }
svg.picture .silo-line { stroke: var(--picture-silo) }
svg.picture .other-line { stroke: var(--picture-other) }
svg.picture .axis { stroke: var(--picture-floor); stroke-width: 1 }
svg.picture .box { fill: none; stroke: var(--picture-other); stroke-width: 1.2 }
svg.picture .fast { fill: none; stroke: var(--picture-silo); stroke-width: 2 }
svg.picture .box-head { fill: var(--picture-other) }
svg.picture .fast-head { fill: var(--picture-silo) }
svg.picture .mark { stroke: var(--picture-text); stroke-dasharray: 3 3 }
"""


def _colours(colours: dict[str, str]) -> str:
    return " ".join(f"--picture-{name}: {colour};" for name, colour in colours.items())


# The style of a picture shown by itself, which follows the reader's system.
STYLE = (
    f"\nsvg.picture {{ {_colours(LIGHT)} }}\n{_RULES}"
    f"@media (prefers-color-scheme: dark) {{ svg.picture {{ {_colours(DARK)} }} }}\n"
)


def page_style() -> str:
    """Return the style of pictures inside a page of the site, which has a switch for light and dark."""
    dark = f"svg.picture {{ {_colours(DARK)} }}"
    return (
        f"svg.picture {{ {_colours(LIGHT)} }}\nbody[data-theme=dark] {dark}\n"
        f"@media (prefers-color-scheme: dark) {{ body:not([data-theme=light]) {dark} }}\n{_RULES}"
    )


@dataclass(frozen=True)
class Bar:
    """One bar: its label, its value in the picture's unit, and its class (silo, other, floor)."""

    label: str
    value: float
    kind: str = "other"


def frame(title: str, note: str, height: int, parts: Sequence[str]) -> str:
    """Return a picture of the usual width, with its title above and its source below. Pure."""
    begin = f'<svg class="picture" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
    return "\n".join(
        [
            f'{begin} role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            text("title", 0, 18, title),
            *parts,
            text("small", 0, height - 6, note),
            "</svg>",
            "",
        ]
    )


def text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    """Return one line of text; ``anchor`` is the end of the line that lies at ``x``. Pure."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def bars_picture(title: str, note: str, unit: str, bars: Sequence[Bar], mark: float | None = None) -> str:
    """Return a picture of horizontal bars from zero with their values, and a line at ``mark``. Pure."""
    most = max(bar.value for bar in bars)
    room = WIDTH - LABEL - NUMBER
    height = 34 + ROW * len(bars) + 26
    parts: list[str] = []
    if mark is not None:
        x = LABEL + room * mark / most
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="28" y2="{height - 26}"/>')
    for place, bar in enumerate(bars):
        top = 34 + ROW * place
        length = max(room * bar.value / most, 1)
        middle = top + BAR - 4
        parts += [
            text("label", LABEL - 10, middle, bar.label, "end"),
            f'<rect class="{bar.kind}" x="{LABEL}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>',
            text("label", LABEL + length + 6, middle, f"{bar.value:.3g} {unit}".rstrip()),
        ]
    return frame(title, note, height, parts)


@dataclass(frozen=True)
class Line:
    """A line of a plot: its points in the units of the axes, its class (silo, other), and its label in the legend."""

    points: tuple[tuple[float, float], ...]
    kind: str
    label: str = ""


def panel(
    left: float, top: float, size: tuple[float, float], title: str, lines: Sequence[Line], unit: str
) -> list[str]:
    """Return a small plot with logarithmic axes, which show the first and last x and the least and largest y. Pure."""
    width, height = size
    xs = sorted({x for line in lines for x, _ in line.points})
    ys = sorted({y for line in lines for _, y in line.points})
    across, up = math.log(xs[-1] / xs[0]), math.log(ys[-1] / ys[0]) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return left + width * math.log(x / xs[0]) / across, top + height * (1 - math.log(y / ys[0]) / up)

    parts = [
        text("label", left, top - 10, title),
        f'<path class="line axis" d="M{left:.1f} {top:.1f}V{top + height:.1f}H{left + width:.1f}"/>',
        text("small", left - 4, top + 8, f"{ys[-1]:.3g} {unit}".rstrip(), "end"),
        text("small", left - 4, top + height, f"{ys[0]:.3g} {unit}".rstrip(), "end"),
    ]
    parts += [text("small", place(x, ys[0])[0], top + height + 13, f"{x:g}", "middle") for x in xs]
    for line in lines:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
        parts.append(f'<polyline class="line {line.kind}-line" points="{points}"/>')
    return parts


def legend(y: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    """Return a legend: a row of classes with their names. Pure."""
    parts: list[str] = []
    for place, (kind, name) in enumerate(entries):
        x = 150.0 * place
        parts.append(f'<path class="line {kind}-line" d="M{x:.1f} {y - 4:.1f}h22"/>')
        parts.append(text("small", x + 28, y, name))
    return parts


def launch_picture() -> str:
    """Draw the host's microseconds for a launch, from ``launch-h200.json``."""
    rows = json.loads((RESULTS / "launch-h200.json").read_text(encoding="utf-8"))["cases"]["5+3"]["rows"]
    chosen = [
        ("least", "least possible from Python", "floor"),
        ("silo", "Silo, kernel[grid](...)", "silo"),
        ("triton-run", "Triton, compiled.run(...)", "other"),
        ("inductor", "PyTorch Inductor's launcher", "other"),
        ("triton-jit", "Triton, kernel[grid](...)", "other"),
    ]
    bars = [Bar(label, statistics.median(rows[name]["samples"]["wall"]) / 1000, kind) for name, label, kind in chosen]
    return bars_picture(
        "Host time of a kernel launch with 5 pointers and 3 integers",
        "NVIDIA H200, Python 3.12, torch 2.11, Triton 3.6. Medians; python -m bench.launch",
        "us",
        bars,
    )


def cold_picture() -> str:
    """Draw the seconds of a first call of a program that tunes, from ``existing-cold-h200.json``."""
    rows = json.loads((RESULTS / "existing-cold-h200.json").read_text(encoding="utf-8"))["rows"]
    (times,) = (row["first_s"] for row in rows if row["program"] == "retention")
    bars = [
        Bar("plain Triton", times["plain"]),
        Bar("silo exec", times["silo exec"], "silo"),
        Bar("silo exec, short measurements", times["short"], "silo"),
        Bar("silo exec, next process", times["second process"], "silo"),
    ]
    return bars_picture(
        "First call of flash-linear-attention's retention, forward and backward (159 configs)",
        "NVIDIA H200, 16 cores, empty caches, Triton 3.6; python -m bench.existing_cold",
        "s",
        bars,
    )


def cpu_picture() -> str:
    """Draw Silo's time over eager torch's on 16 threads, from ``cpu-16core.json``."""
    rows = json.loads((RESULTS / "cpu-16core.json").read_text(encoding="utf-8"))["rows"]
    found = [
        (row["to_eager"]["median"], f"{row['row']}, {row['size']}")
        for row in rows
        if row["threads"] == 16 and row["dtype"] == "fp32" and row["to_eager"]
    ]
    bars = [Bar(label, ratio, "silo" if ratio <= 1 else "other") for ratio, label in sorted(found)]
    return bars_picture(
        "Kernels in fp32 on a CPU: time of Silo, where eager torch takes 1",
        "Intel Xeon with AMX, 16 cores, torch 2.11, Triton 3.6. Medians of pairs; python -m bench.cpu",
        "",
        bars,
        mark=1.0,
    )


def scaling_picture() -> str:
    """Draw the time by the number of threads, from ``cpu-scaling-16core.json``."""
    rows = json.loads((RESULTS / "cpu-scaling-16core.json").read_text(encoding="utf-8"))["rows"]
    chosen = (
        "add 2^24",
        "layer norm 4096x4096",
        "gather 8192x256",
        "matmul 512x512x512",
        "softmax 4096x257",
        "transpose 2048",
    )
    parts = legend(42, [("silo", "Silo"), ("other", "eager torch")])
    for place, name in enumerate(chosen):
        lines = [
            Line(tuple((row["threads"], row[who] / 1000) for row in rows if row["row"] == name), kind)
            for who, kind in (("torch", "other"), ("silo", "silo"))
        ]
        parts += panel(58 + 240 * (place % 3), 78 + 150 * (place // 3), (165, 90), name, lines, "ms")
    return frame(
        "Time of a kernel by the number of threads",
        "Intel Xeon, 16 cores, torch 2.11, Triton 3.6. Both axes logarithmic; python -m bench.cpu.scaling",
        360,
        parts,
    )


def search_picture() -> str:
    """Draw the best time found over the optimum, from ``search.json`` and ``search-rivals.json``."""
    ours = json.loads((RESULTS / "search.json").read_text(encoding="utf-8"))["hidden"]
    rivals = json.loads((RESULTS / "search-rivals.json").read_text(encoding="utf-8"))["runs"]
    budgets = (25, 50, 100)

    def beyond(values: Sequence[float]) -> float:
        return 100 * (statistics.geometric_mean(values) - 1)

    silo = tuple((float(n), beyond([run[0] for space in ours.values() for run in space[str(n)]])) for n in budgets)
    lines: list[Line] = []
    for name in sorted({name for space in rivals.values() for name in space}):
        runs = [run for space in rivals.values() for run in space[name]]
        lines.append(
            Line(tuple((float(n), beyond([run[place] for run in runs])) for place, n in enumerate(budgets)), "other")
        )
    parts = legend(42, [("silo", "Silo"), ("other", "Kernel Tuner's strategies")])
    title = "time of the best config found, in % above the best of the space"
    parts += panel(58, 78, (600, 190), title, [*lines, Line(silo, "silo")], "%")
    return frame(
        f"Progress of a search over {len(ours)} recorded spaces",
        "By the number of measured configs; geometric means of all runs, both axes logarithmic; python -m bench.search",
        310,
        parts,
    )


def call_picture() -> str:
    """Draw the way of a call, from the steps of docs/concepts.md."""
    boxes = (
        (0, 60, "kernel[grid](x, out, n)", "a call", "box"),
        (190, 60, "read arguments", "pointers, sizes, dtypes", "fast"),
        (380, 60, "known guard code?", "one lookup, in C", "fast"),
        (570, 60, "grid, pack, launch", "no Python runs", "fast"),
        (190, 170, "choose a config", "lock, trials, rule, default", "box"),
        (380, 170, "variant stored?", "bundle, store, remote", "box"),
        (570, 170, "load", "and keep the guard code", "box"),
        (380, 270, "compile", "in worker processes", "box"),
    )
    parts = [
        part
        for x, y, words, note, kind in boxes
        for part in (
            f'<rect class="{kind}" x="{x + 1}" y="{y}" width="148" height="48" rx="6"/>',
            text("label", x + 75, y + 20, words, "middle"),
            text("small", x + 75, y + 38, note, "middle"),
        )
    ]
    arrows = (
        ("fast", "M149 84h40", "", 0, 0),
        ("fast", "M339 84h40", "", 0, 0),
        ("fast", "M529 84h40", "yes", 538, 76),
        ("box", "M455 108v31h-190v30", "no: once for each kind of call", 272, 134),
        ("box", "M339 194h40", "", 0, 0),
        ("box", "M529 194h40", "yes", 538, 186),
        ("box", "M455 218v51", "no", 462, 248),
        ("box", "M529 294h115v-75", "", 0, 0),
        ("box", "M645 169v-60", "", 0, 0),
    )
    for kind, path, words, x, y in arrows:
        parts.append(f'<path class="{kind}" marker-end="url(#{kind}-head)" d="{path}"/>')
        if words:
            parts.append(text("small", x, y, words))
    heads = "".join(
        f'<marker id="{kind}-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{kind}-head" d="M0 0L8 4L0 8z"/></marker>'
        for kind in ("fast", "box")
    )
    return frame(
        "The way of a call", "Green: every call after the first of its kind", 346, [f"<defs>{heads}</defs>", *parts]
    )


DRAWN = {
    "launch.svg": launch_picture,
    "cold.svg": cold_picture,
    "cpu.svg": cpu_picture,
    "scaling.svg": scaling_picture,
    "search.svg": search_picture,
    "call.svg": call_picture,
}


def main() -> int:
    """Write the pictures, or compare them; return 1 if one differs."""
    stale: list[str] = []
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DRAWN.items():
        path, text = PICTURES / name, draw()
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    for name in stale:
        print(f"docs/pictures/{name} is not the picture of its results: python scripts/pictures.py")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The pictures of the pages, drawn from bench/results: ``python scripts/pictures.py [--check]``.

SVG with colours for light and dark pages. ``--check`` writes nothing and exits with 1 if a picture is not that of its
results.
"""

from __future__ import annotations

import json
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

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600; font-size: 14px }
  .small { font-size: 11px; fill: #59636e } .silo { fill: #0a7d5a } .other { fill: #9aa4af } .floor { fill: #c9d1d9 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .silo { fill: #3fb68b } .other { fill: #5b6570 }
    .floor { fill: #3d444d }
  }"""


@dataclass(frozen=True)
class Bar:
    """One bar: its label, its length in the unit of the picture, its class (silo, other, floor)."""

    label: str
    value: float
    kind: str = "other"


def bars_picture(title: str, note: str, unit: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars from zero, with their values. Pure."""
    most = max(bar.value for bar in bars)
    room = WIDTH - LABEL - NUMBER
    height = 34 + ROW * len(bars) + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}\n</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
    ]
    for place, bar in enumerate(bars):
        top = 34 + ROW * place
        length = max(room * bar.value / most, 1)
        middle = top + BAR - 4
        parts += [
            f'<text x="{LABEL - 10}" y="{middle}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{bar.kind}" x="{LABEL}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{LABEL + length + 6:.1f}" y="{middle}">{bar.value:.3g} {escape(unit)}</text>',
        ]
    parts += [f'<text class="small" x="0" y="{height - 6}">{escape(note)}</text>', "</svg>", ""]
    return "\n".join(parts)


def launch_picture() -> str:
    """Microseconds of the host for a launch, from ``launch-h200.json``."""
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
    """Seconds of a first call of a program that tunes, from ``existing-cold-h200.json``."""
    rows = json.loads((RESULTS / "existing-cold-h200.json").read_text(encoding="utf-8"))["rows"]
    (times,) = (row["first_s"] for row in rows if row["program"] == "retention")
    bars = [
        Bar("plain Triton", times["plain"]),
        Bar("silo exec", times["silo exec"], "silo"),
        Bar("silo exec, next process", times["second process"], "silo"),
    ]
    return bars_picture(
        "First call of flash-linear-attention's retention, forward and backward (159 configs)",
        "NVIDIA H200, 16 cores, empty caches, Triton 3.6; python -m bench.existing_cold",
        "s",
        bars,
    )


DRAWN = {"launch.svg": launch_picture, "cold.svg": cold_picture}


def main() -> int:
    """Write the pictures, or compare them."""
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

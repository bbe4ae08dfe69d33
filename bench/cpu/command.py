"""Kernels on the CPU beside torch eager, torch.compile and the Triton interpreter.

    python -m bench.cpu [--quick] [--threads 1 2] [--rows add softmax] [--dtypes fp32] [--json FILE] [--page FILE]

The kernels of the examples, ``kernels.py`` and ``dot_kernels.py`` are tuned first. Each row's result is checked against
float64 before and after the row is timed. Silo, eager and compiled code take turns within one process, with equal
thread counts. A figure is the median over rounds of the ratio within a round (Silo's time over the other's; below 1
Silo is faster), with a 95 % bootstrap interval. The interpreter runs a small size in a separate process, and its time
is scaled up. All sides keep the memory that they freed, so that none of them pays for fresh pages.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

# Without these settings, glibc gives large freed blocks back to the system at once, and 64 MB of fresh pages cost more
# than many rows take.
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26)}


def main() -> None:
    """Measure all rows, print the table and the bars, and write the JSON file and the page."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, for a look")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="thread counts")
    parser.add_argument("--rows", nargs="+", help="only these")
    parser.add_argument("--dtypes", nargs="+", help="only these")
    parser.add_argument("--rounds", type=int, help="samples a side (default 31, quick 5)")
    parser.add_argument("--no-interpreter", action="store_true")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--page", type=Path, help="the page of the documentation whose table to bring up to date")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in KEPT_MEMORY.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **KEPT_MEMORY})

    from bench.cpu import report
    from bench.cpu.measure import interpreter_costs, measure
    from bench.cpu.table import chosen
    from bench.machine import describe, save
    from silo.settings import override

    rows = chosen(options.rows, options.dtypes)
    costs = {} if options.no_interpreter else interpreter_costs(list(dict.fromkeys(name for name, _ in rows)))
    scale, rounds = ("quick", 5) if options.quick else ("full", 31)
    machine = describe()
    measured: list[report.Measured] = []
    figures: list[report.Figures] = []
    # an empty store, so that each kernel is tuned here and now
    with tempfile.TemporaryDirectory() as home, override(home=home):
        for threads, (name, dtype) in itertools.product(options.threads, rows):
            measured.append(measure(name, dtype, scale, threads, rounds=options.rounds or rounds))
            figures.append(report.figures(measured[-1], costs))
            print(report.line(figures[-1]), flush=True)
            verdicts = report.judge(figures)
            if options.json:  # written after every row, so that a run that is cut off keeps the rows that it finished
                save(options.json, machine, report.document(figures, measured, verdicts))
    print("\n".join(report.verdict_lines(report.judge(figures))))
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(report.updated(page, report.markdown(figures)), encoding="utf-8")
    if any(row.status == "wrong" for row in figures):
        sys.exit("a row is wrong")

"""Kernels on the CPU at 1, 2, 4, ... threads beside torch: each library alone in a process, and both in turns in one.

    python -m bench.cpu.scaling [--threads 1 2 4 8 16] [--rows "add 10,000" ...] [--json FILE] [--no-sweep]
    python -m bench.cpu.scaling --bars [--json FILE] [--page FILE] [--readme FILE]

``--bars`` measures on one thread and on all threads: each library alone, both in turns, and Silo in turns with itself
over other arrays, once on its own threads and once on the OpenMP threads that torch has loaded. The last two show how
much of a turn's cost comes from cold caches and from waking all OpenMP threads. It takes four minutes on 16 cores.
Without ``--bars``, torch also takes turns with itself.

Every call is timed by itself. A figure is the median over three processes (``--repeats``) of each process's median. The
sweep repeats the short rows with three thread pools (Silo's own threads, the OpenMP threads that torch has loaded, and
the choice of ``auto``) and with several lengths of spinning, in three ways: alone, in turns with torch, and apart (the
caller computes for 100 microseconds between two launches).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cpu.command import KEPT_MEMORY, ROOT
from bench.cpu.scaling import report
from bench.cpu.scaling.child import Round
from bench.machine import describe, save

LIMIT_S = 300
GAP_US = 100.0
POOLS = ("own", "openmp", "auto")
SPINS = (0, 50, 200)


def measured(asked: Round, home: str, variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """Run one process and return the JSON lines that it printed. SystemExit if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SILO_")}
    environment |= {**KEPT_MEMORY, "SILO_HOME": home, "SILO_QUIET": "1", **variables}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "bench.cpu.scaling.child", asked.to_json()],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    said = " ".join(f"{name}={value}" for name, value in variables.items())
    print(f"# {' and '.join(asked.sides)} {said}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    if done.returncode != 0:
        raise SystemExit(f"a process ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


# The kinds of processes: for each, the sides that it calls in turns and its environment variables.
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "silo": (("silo",), {}),
    "torch": (("torch",), {}),
    "turns": (("silo", "torch"), {}),
    "silo twice": (("silo", "silo too"), {}),
    "team twice": (("silo", "silo too"), {"SILO_POOL": "openmp"}),
    "torch twice": (("torch", "torch too"), {}),
}
BARS_SECONDS = 0.05


def measured_in_turns(
    kinds: Sequence[str],
    threads: tuple[int, ...],
    rows: tuple[str, ...],
    seconds: float,
    repeats: int,
    home: str,
) -> dict[str, list[report.Line]]:
    """Run processes of several kinds in turns; return the merged lines of each kind."""
    found: dict[str, list[list[dict[str, Any]]]] = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind in kinds:
            sides, variables = KINDS[kind]
            found[kind].append(measured(Round(sides, threads, rows, seconds), home, variables))
    return {kind: report.merged(several) for kind, several in found.items()}


def swept(threads: Sequence[int], seconds: float, home: str, rows: Sequence[str]) -> list[dict[str, Any]]:
    """Measure the rows with every thread pool and length of spinning, called alone, in turns with torch, and apart."""
    ways = {"alone": (("silo",), 0.0), "turns": (("silo", "torch"), 0.0), "apart": (("silo",), GAP_US)}
    found: list[dict[str, Any]] = []
    for pool in POOLS:
        for spin in SPINS if pool == "own" else (50,):
            for called, (sides, gap_us) in ways.items():
                asked = Round(sides, tuple(threads), tuple(rows), seconds, gap_us)
                lines = measured(asked, home, {"SILO_POOL": pool, "SILO_SPIN": str(spin)})
                found += [{"called": called, "pool": pool, "spin": spin, **line} for line in lines]
    return found


def main() -> None:
    """Measure, print tables and bars, and write the JSON file."""
    from bench.cpu.scaling.row_names import ROWS, SHORT, SHOWN

    parser = argparse.ArgumentParser(
        prog="python -m bench.cpu.scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0))
    usual = [count for count in (1, 2, 4, 8, 16) if count <= cores]
    parser.add_argument("--threads", type=int, nargs="+", default=usual, help="numbers of threads")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help="only these rows")
    parser.add_argument("--seconds", type=float, help="for a row and number of threads in a process (default 0.1)")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each kind, whose medians count")
    parser.add_argument("--no-sweep", action="store_true", help="only the default settings")
    parser.add_argument("--only-sweep", action="store_true", help="only the sweep over pools")
    parser.add_argument("--sweep-all", action="store_true", help="the sweep over every row, not the short ones alone")
    parser.add_argument("--bars", action="store_true", help="one thread and the most, torch not in turns with itself")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--page", type=Path, help="the page of the documentation whose table to bring up to date")
    parser.add_argument("--readme", type=Path, help="a page whose table gets few rows")
    options = parser.parse_args()
    machine = describe()
    threads, rows = tuple(options.threads), tuple(options.rows)
    if options.bars:
        threads = tuple(dict.fromkeys((1, max(threads))))
    kinds = [kind for kind in KINDS if kind != "torch twice" or not options.bars]
    seconds = options.seconds or (BARS_SECONDS if options.bars else 0.1)
    found: list[report.Cell] = []
    sweep: list[dict[str, Any]] = []
    bars: list[report.Bar] = []
    with tempfile.TemporaryDirectory() as home:
        if not options.only_sweep:
            lines = measured_in_turns(kinds, threads, rows, seconds, options.repeats, home)
            found = report.cells(
                lines["silo"],
                lines["torch"],
                lines["turns"],
                silo_twice=lines["silo twice"],
                team_twice=lines["team twice"],
                torch_twice=lines.get("torch twice"),
            )
            bars = report.judge(found)
            print(report.table(found), report.bar_lines(bars), sep="\n\n", flush=True)
        if options.json:
            save(options.json, machine, report.document(found, bars, sweep))
        for place, shown in ((options.page, ()), (options.readme, SHOWN)):
            if place and found:
                page = place.read_text(encoding="utf-8")
                place.write_text(report.updated(page, report.page_table(found, shown)), encoding="utf-8")
        if not options.no_sweep and not options.bars:
            sweep = swept(threads, seconds, home, [row for row in rows if options.sweep_all or row in SHORT])
            print("", report.sweep_table(sweep, threads), sep="\n")
    if options.json:
        save(options.json, machine, report.document(found, bars, sweep))
    if not all(cell.right for cell in found):
        sys.exit("a row is wrong")

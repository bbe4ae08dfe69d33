"""Tuning a matrix product of sixteen configs in a cold process, beside Triton's autotuner.

    python -m bench.tune [--device cuda|cpu] [--size 4096] [--repeats 3] [--devices] [--configs N] [--json FILE]

Each sample is a process of its own with its own folders, Silo and Triton in turns. The clock starts when torch and
Triton are imported and the arrays exist, and stops when the first call has written a right result: it covers compiling,
checking and measuring, on every core there is. ``again`` is a second process with the folders of the first, in which
Silo is frozen, so that it cannot measure. The winners of both are then compared with every config and with torch's own
product, side by side in one process. ``--devices`` also measures a space of 288 configs (or ``--configs`` of them),
which are compiled before, on one GPU and on all GPUs, by this process and by agents on pipes; ``--only-devices``
measures nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import describe, save

ROOT = Path(__file__).resolve().parents[2]

COLD_BAR = 1 / 3  # limit of Silo's cold seconds over Triton's
WINNER_BAR = 1.01  # limit of the winner's time over the fastest config's
SCALING_BAR = 0.6  # least gain of N devices, as a part of N


@dataclass(frozen=True)
class Bar:
    """A figure and its limit: the most that it may be, or the least if ``least`` is set."""

    name: str
    figure: float
    limit: float
    least: bool = False

    @property
    def passed(self) -> bool:
        """Whether the figure keeps the limit."""
        return self.figure >= self.limit if self.least else self.figure <= self.limit

    def __str__(self) -> str:
        word = "at least" if self.least else "at most"
        return f"  {'pass' if self.passed else 'FAIL'}  {self.name}: {self.figure:.3f} ({word} {self.limit:.3f})"


def child(role: str, device: str, size: int, home: Path, **variables: str) -> dict[str, Any]:
    """Run one process of ``child.py`` whose stores lie in ``home``; return the JSON that it printed."""
    environment = {
        **os.environ,
        "SILO_HOME": str(home / "silo"),
        "TRITON_CACHE_DIR": str(home / "triton"),
        "TRITON_CACHE_AUTOTUNING": "1",
        "SILO_TUNE_BUDGET": "120",
        **variables,
    }
    command = [sys.executable, "-m", "bench.tune.child", role, device, str(size)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise SystemExit(f"{role}: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def cold_and_again(device: str, size: int, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Return the samples of each side, in a cold process and in a second process with the folders of the first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(repeats):
        for role in ("silo", "triton"):
            with tempfile.TemporaryDirectory() as folder:
                for state in ("cold", "again"):
                    # frozen, so that it may measure nothing
                    frozen = {"SILO_TUNE": "frozen"} if state == "again" else {}
                    found.setdefault(f"{role} {state}", []).append(child(role, device, size, Path(folder), **frozen))
    return found


def scaling(size: int, configs: int | None) -> dict[str, Any]:
    """Return the wall time of measuring a large space on one device and on all devices.

    Everything is compiled and all workers are started before the clock.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.tune.devices", str(size), *([] if configs is None else [str(configs)])]
        environment = {**os.environ, "SILO_HOME": folder}
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800
        )
    if done.returncode:
        raise SystemExit(f"devices: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def bars_of(results: Mapping[str, Any]) -> list[Bar]:
    """Return all bars of the results."""
    found = call_bars(results) if "calls" in results else []
    if "devices" in results:
        devices, count = results["devices"], results["devices"]["count"]
        for prefix, what in (("", "devices"), ("agents_", "agents")):
            gain = devices[f"{prefix}one_s"] / devices[f"{prefix}all_s"] / count
            found.append(Bar(f"gain of {count} {what}, of as many times", gain, SCALING_BAR, least=True))
    return found


def call_bars(results: Mapping[str, Any]) -> list[Bar]:
    """Return the bars of first calls in cold processes."""
    seconds = {name: statistics.median(one["seconds"] for one in rows) for name, rows in results["calls"].items()}
    found = [Bar("cold, of Triton's cold", seconds["silo cold"] / seconds["triton cold"], COLD_BAR)]
    times = {name: value for name, value in results["compared"]["medians_ns"].items() if name != "torch"}
    best = min(times.values())
    worst = max(times[json.dumps(one["winner"], sort_keys=True)] for one in results["calls"]["silo cold"])
    found.append(Bar("the winner, of the fastest config", worst / best, WINNER_BAR))
    return found


def show(results: Mapping[str, Any]) -> str:
    """Return the results as text."""
    lines = show_calls(results) if "calls" in results else []
    if "devices" in results:
        lines.append(f"devices: {results['devices']}")
    return "\n".join([*lines, *map(str, bars_of(results))])


def show_calls(results: Mapping[str, Any]) -> list[str]:
    """Return lines about the seconds of first calls, and about the configs that they chose."""
    lines: list[str] = []
    for name, rows in results["calls"].items():
        seconds = [one["seconds"] for one in rows]
        lines.append(f"{name:14} {statistics.median(seconds):8.3f} s  ({', '.join(f'{s:.3f}' for s in seconds)})")
    times = results["compared"]["medians_ns"]
    best = min(value for name, value in times.items() if name != "torch")
    for role in ("silo", "triton"):
        for one in results["calls"][f"{role} cold"]:
            took = times[json.dumps(one["winner"], sort_keys=True)]
            lines.append(
                f"{role:7} chose {one['winner']}: {took / best:.4f} of the best, {took / times['torch']:.3f} of torch"
            )
    return lines


def main() -> int:
    """Run the command; return 1 if a bar fails."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--devices", action="store_true", help="also measure on all GPUs at once")
    parser.add_argument("--only-devices", action="store_true", help="measure nothing else")
    parser.add_argument("--configs", type=int, help="how many configs --devices measures; all 288 by default")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    results: dict[str, Any] = {"size": given.size, "device": given.device}
    if not given.only_devices:
        results["calls"] = cold_and_again(given.device, given.size, given.repeats)
        with tempfile.TemporaryDirectory() as folder:
            results["compared"] = child("compare", given.device, given.size, Path(folder), SILO_TUNE="off")
    if given.devices or given.only_devices:
        results["devices"] = scaling(given.size, given.configs)
    print(show(results))
    if given.json:
        machine = results["compared"].pop("machine") if "compared" in results else describe()
        save(given.json, machine, results)
    return 0 if all(bar.passed for bar in bars_of(results)) else 1

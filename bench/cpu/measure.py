"""Times Silo, torch eager and torch.compile in turns, and runs the interpreter in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from bench.cpu.report import Measured
from bench.cpu.table import ROWS
from bench.cpu.work import Scale, Workload
from silo.errors import SiloError
from silo.launch.native import cpu_threads
from silo.settings import child_environment

ROOT = Path(__file__).resolve().parents[2]
LEAST_SAMPLE_S = 2e-3
# OpenMP's threads spin for a while after a parallel region and would take cores from the side that is measured next.
SETTLE_S = 5e-3
INTERPRETER_LIMIT_S = 600


def measure(name: str, dtype: str, scale: Scale, threads: int, *, rounds: int) -> Measured:
    """Measure one row.

    A failure is the ``status`` of the result: ``missing`` if a kernel fails, ``wrong`` for a wrong result.
    """
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    cpu_threads(threads)
    work = ROWS[name][0](scale, dtype)

    def result(status: str, reason: str = "", error: float | None = None, **found: Any) -> Measured:
        samples = {"samples": {}, "cpu_samples": {}, "absent": {}, **found}
        return Measured(name, dtype, work.size, threads, work.work, status, reason, error, **samples)

    try:
        work.silo()  # tunes the kernels
        work.silo()
    except SiloError as failure:
        return result("missing", str(failure))
    error = work.error()
    if not error <= 1:
        return result("wrong", f"{error:.3g} times the tolerance", error)
    sides: dict[str, Callable[[], object]] = {"silo": work.silo, "eager": work.eager}
    absent: dict[str, str] = {}
    _add_compiled(work, sides, absent)
    samples, cpu_samples = _in_turns(sides, rounds, threads)
    error = work.error()
    if not error <= 1:
        return result("wrong", f"{error:.3g} times the tolerance after the timed runs", error)
    return result("measured", "", error, samples=samples, cpu_samples=cpu_samples, absent=absent)


def _add_compiled(work: Workload, sides: dict[str, Callable[[], object]], absent: dict[str, str]) -> None:
    if work.compiled is None:
        absent["compiled"] = "nothing to compile: eager is one call"
        return
    torch._dynamo.reset()  # noqa: SLF001  # the number of threads is part of the code that Inductor makes
    function, arguments = work.compiled
    made = torch.compile(function, dynamic=False)
    try:
        made(*arguments)
        made(*arguments)
    except Exception as failure:  # noqa: BLE001  # a peer may fail in any way; that is its row
        absent["compiled"] = f"{type(failure).__name__}: {str(failure).splitlines()[0][:200]}"
        return
    sides["compiled"] = lambda: made(*arguments)


def _in_turns(
    sides: Mapping[str, Callable[[], object]], rounds: int, threads: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return wall seconds and CPU seconds of each side's runs: one sample of each side in every round.

    The order rotates from round to round. All sides of a round meet the same state of the machine.
    """
    counts = {name: _repeats(run) for name, run in sides.items()}
    names = list(sides)
    wall: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        start = turn % len(names)
        for name in [*names[start:], *names[:start]]:
            if threads > 1:
                time.sleep(SETTLE_S)
            run, count = sides[name], counts[name]
            cpu_begin, begin = time.process_time(), time.perf_counter()
            for _ in range(count):
                run()
            wall[name].append((time.perf_counter() - begin) / count)
            cpu[name].append((time.process_time() - cpu_begin) / count)
    return wall, cpu


def _repeats(run: Callable[[], object]) -> int:
    run()
    begin = time.perf_counter()
    run()
    return max(1, round(LEAST_SAMPLE_S / (time.perf_counter() - begin)))


def interpreter_costs(names: list[str]) -> dict[str, float | str]:
    """Return the seconds per unit of work in Triton's interpreter for each row, or the reason why there are none.

    The dtype is fp32, or the row's first dtype.
    """
    result = subprocess.run(
        [sys.executable, "-m", "bench.cpu.interpreter", *names],
        env=child_environment(TRITON_INTERPRET="1"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=INTERPRETER_LIMIT_S,
    )
    found: dict[str, float | str] = {}
    for line in result.stdout.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            found[entry["row"]] = entry.get("seconds_per_work", entry.get("reason"))
    for name in names:
        last = result.stderr.strip().splitlines()[-1:] or ["no output"]
        found.setdefault(name, f"the process ended with {result.returncode}: {last[0][:200]}")
    return found

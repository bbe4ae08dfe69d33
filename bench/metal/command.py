"""The emulator of Metal kernels: the time of a thread and a barrier, of a compile, and of a sum beside Triton's.

    python -m bench.metal [--rounds N] [--json FILE]

Barriers: CPU time of this process divided by threads and barriers, the least of all rounds. Compiles: CPU time of
clang; the compiled header is kept. The sum of two arrays of 2^24 elements: wall time beside the same kernel in Triton,
with launches in turns; it needs Triton.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402

from bench.machine import describe, save  # noqa: E402
from bench.metal import kernels  # noqa: E402
from bench.paired import median_interval, ratios  # noqa: E402
from silo.settings import override  # noqa: E402

BARRIER_LIMIT_NS = 100.0
COMPILE_LIMIT_S = 0.3
SUM_LIMIT = 1.5
TURNS = 200


def least(call: Callable[[], object], rounds: int) -> float:
    """Return the least CPU time that a call takes in this process, in seconds, after a first call."""
    call()
    found: list[float] = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return min(found)


def waits(rounds: int) -> dict[str, float]:
    """Return the nanoseconds of one thread for one turn of the loop, by kernel and number of threads in a group."""
    found: dict[str, float] = {}
    for name in ("barriers", "sums"):
        for group in (32, 256, 1024):
            kernel, out = kernels.waiting(name, group), np.zeros(4 * group, np.float32)
            seconds = least(lambda kernel=kernel, out=out: kernel(out, TURNS), rounds)
            found[f"{name} {group}"] = round(seconds / (4 * group * TURNS) * 1e9, 1)
    return found


def compile_seconds(rounds: int) -> list[float]:
    """Return the CPU seconds of child processes for each compile; only the compiled header is kept."""
    out, found = np.zeros(4 * 32, np.float32), []
    with tempfile.TemporaryDirectory() as home, override(home=home):
        kernels.waiting("sums", 32)(out, 1)  # compiles the header, and starts the worker
        from silo.emulation.clang import find_clang
        from silo.kinds.metal.compile_job import compile_job
        from silo.kinds.metal.metal_compiler import EmulatorCompiler

        job = _job()
        for _ in range(rounds):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            compile_job(job, find_clang(), EmulatorCompiler().identity(job.target))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return found


def _job() -> Any:
    """Return the compile job of the kernel that sums over simdgroups."""
    from silo.core.config import Config
    from silo.core.specialization import Specialization
    from silo.core.variant import Variant
    from silo.kinds.metal.metal_compiler import EmulatorCompiler
    from silo.machine.device_plugins import resolve_target

    source = kernels.waiting("sums", 256).kernel.source
    variant = Variant("sums", source.fingerprint, source.signature, Specialization(), Config(), resolve_target("cpu"))
    return EmulatorCompiler().lower(source, variant).job


def sums(rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of the emulator's and of Triton's launches, which take turns."""
    n = 1 << 24
    x, y = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    out = np.zeros(n, np.float32)
    mine, other = kernels.add(256), kernels.triton_add()
    samples: tuple[list[float], list[float]] = ([], [])
    with override(tune="auto"):
        for kernel in (mine, other):
            kernel(x, y, out, n)
            assert (out == x + y).all()
    for _ in range(rounds):
        for kernel, found in zip((mine, other), samples, strict=True):
            begin = time.perf_counter()
            kernel(x, y, out, n)
            found.append(time.perf_counter() - begin)
    return samples


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    turn_ns = waits(given.rounds)
    compiles = compile_seconds(given.rounds)
    try:
        mine, other = sums(given.rounds)
    except ImportError:
        mine, other = [], []
    for name, value in turn_ns.items():
        print(f"{name:16} {value:6.1f} ns a thread and turn (limit {BARRIER_LIMIT_NS:g})")
    compiled = median_interval(compiles)
    print(f"{'compile':16} {compiled.median:6.3f} s of CPU time (limit {COMPILE_LIMIT_S:g})")
    missed = max(turn_ns.values()) > BARRIER_LIMIT_NS or compiled.median > COMPILE_LIMIT_S
    if mine:
        ratio = median_interval(ratios(mine, other))
        print(f"{'add':16} {ratio.median:6.2f} of Triton's (limit {SUM_LIMIT:g})")
        missed = missed or ratio.median > SUM_LIMIT
    if given.json:
        save(given.json, describe(), {"turn_ns": turn_ns, "compile_s": compiles, "add_s": mine, "triton_s": other})
    return int(missed)

"""Pallas kernels by Silo beside jax itself.

    python -m bench.pallas host [--device cuda|cpu] [--repeats N] [--json FILE]
    python -m bench.pallas matmul [--size N] [--repeats N] [--json FILE]
    python -m bench.pallas memory [--chip CHIP ...] [--count N] [--seed N] [--json FILE]

host: microseconds of the caller's time for adding arrays of 2^16 floats, with torch tensors: by Silo, by the same
``pallas_call`` under ``jax.jit`` with jax's own arrays, by the same with tensors passed through jax's public DLPack
functions, and by ``plgpu.as_torch_kernel`` on a GPU. On the CPU kernels are interpreted, and that time counts.

matmul: on a GPU, a product of float16 matrices by Silo and by jax's ``jit`` of the same ``pallas_call``: the time of
one of many launches in a row.

memory: needs libtpu, but no device. Compares the estimate of the memory of launches, of many block shapes on each chip,
with the compiler for TPUs: every launch that the estimate accepts must compile, and of the launches that compile it may
refuse 5 %.

Set XLA_PYTHON_CLIENT_PREALLOCATE=false, because jax otherwise takes most of the GPU's memory.
"""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from bench.machine import describe, save  # noqa: E402
from bench.pallas import kernels, memory  # noqa: E402

HOST_LIMIT_US = 250.0
MATMUL_LIMIT = 1.03
MEMORY_LIMIT = 0.05
MEMORY_CHIPS = ("v5e", "v5p", "v6e", "7x")


def host_us(call: Callable[[], object], settle: Callable[[], object], repeats: int) -> float:
    """Return the microseconds of the caller's time for a call: the median of rounds of 100 calls.

    Between rounds it waits for the enqueued work.
    """
    for _ in range(20):
        call()
    settle()
    found: list[float] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(100):
            call()
        found.append((time.perf_counter() - begin) * 1e4)
        settle()
    return statistics.median(found)


def device_us(call: Callable[[], object], settle: Callable[[], object], repeats: int) -> float:
    """Return the microseconds for one of 50 launches in a row, including the wait for their end."""
    call()
    settle()
    found: list[float] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(50):
            call()
        settle()
        found.append((time.perf_counter() - begin) * 2e4)
    return statistics.median(found)


def run_host(options: argparse.Namespace) -> int:
    """Run the subcommand ``host``; return 1 if its limit is missed."""
    ways = kernels.additions(options.device)
    rows = {name: host_us(call, ways.settle, options.repeats) for name, call in ways.calls.items()}
    for name, value in rows.items():
        print(f"{name:<40} {value:8.1f} us")
    for name, why in ways.absent.items():
        print(f"{name:<40} {why}")
    if options.json:
        save(options.json, describe(), {"host_us": rows, "absent": ways.absent})
    return int(options.device == "cuda" and rows["silo, torch tensors"] > HOST_LIMIT_US)


def run_matmul(options: argparse.Namespace) -> int:
    """Run the subcommand ``matmul``; return 1 if its limit is missed."""
    ways = kernels.products(options.size)
    rows: dict[str, Any] = {name: [] for name in ways.calls}
    for _ in range(3):  # in turns, because clocks drift
        for name, call in ways.calls.items():
            rows[name].append(device_us(call, ways.settle, options.repeats))
    times = {name: min(values) for name, values in rows.items()}
    for name, value in times.items():
        print(f"{name:<40} {value:8.1f} us  {2 * options.size**3 / value / 1e6:6.0f} TFLOP/s")
    ratio = times["silo"] / times["jax.jit"]
    print(f"Silo's over jax's: {ratio:.3f}, at most {MATMUL_LIMIT}")
    if options.json:
        save(options.json, describe(), {"device_us": times, "ratio": ratio})
    return int(ratio > MATMUL_LIMIT)


def run_memory(options: argparse.Namespace) -> int:
    """Run the subcommand ``memory``; return 1 if the estimate is wrong too often."""
    failed = False
    rows: dict[str, Any] = {}
    for chip in options.chip or MEMORY_CHIPS:
        found: list[memory.Verdict] = []
        for one in memory.verdicts([chip], options.count, options.seed):
            found.append(one)
            if one.wrong or one.compiler == "other":
                print(f"{chip}: {one.launch}, about {one.estimated / 2**20:.2f} MiB: {one.wrong} {one.said}")
        rows[chip] = counts = memory.counted(found)
        print(f"{chip}: " + ", ".join(f"{value:.3g} {name}" for name, value in counts.items()))
        failed |= counts[memory.UNSAFE] > 0 or counts[memory.SHARE] > MEMORY_LIMIT
    if options.json:
        save(options.json, describe(), {"memory": rows})
    return int(failed)


def main(words: Sequence[str] | None = None) -> int:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(prog="bench.pallas", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("host", run_host), ("matmul", run_matmul), ("memory", run_memory)):
        one = commands.add_parser(name)
        one.set_defaults(run=run)
        if run is not run_memory:
            one.add_argument("--repeats", type=int, default=20)
        one.add_argument("--json", type=Path)
    commands.choices["host"].add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    commands.choices["matmul"].add_argument("--size", type=int, default=4096)
    commands.choices["memory"].add_argument("--chip", action="append", choices=MEMORY_CHIPS)
    commands.choices["memory"].add_argument("--count", type=int, default=210)
    commands.choices["memory"].add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    return int(options.run(options))

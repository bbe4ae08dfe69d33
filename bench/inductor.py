"""Models under ``torch.compile`` on the CPU: Triton through Silo, beside Inductor's C++ and eager torch.

``python -m bench.inductor`` first compares every model's results with eager torch's. Then Silo, C++ and eager torch
take turns in short bursts on one thread. A ratio is the median of the ratios of neighbouring bursts, with an interval.
The goal is met if the geometric mean of the ratios to Inductor's C++ is at most 0.95 and no model's ratio exceeds 1.5.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("SILO_THREADS", "1")

import torch

from bench.inductor_models import TRAINED, Model, image_operators, models
from bench.machine import describe, save
from bench.paired import median_interval
from silo.integrations import inductor

BAR, WORST = 0.95, 1.5
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # numbers of glibc's malloc.h
_BURST_S = 0.01


def measure(
    name: str, make: Callable[[], Model], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Measure one model by ``clock``; return each way's samples and least time, Silo's ratios, and first calls."""
    torch.manual_seed(0)
    plain, given = make()
    torch._dynamo.reset()  # noqa: SLF001  # the public name warns
    with torch.set_grad_enabled(name in TRAINED):
        options = {"fallback_random": True, "compile_threads": 1}
        ways = {
            way: torch.compile(plain, options={**options, "cpu_backend": backend})
            for way, backend in (("silo", "triton"), ("cpp", "cpp"))
        }
        torch.manual_seed(1)
        expected = plain(*given)
        loose = 2e-2 if expected.dtype is torch.bfloat16 else 1e-4
        first: dict[str, float] = {}
        for way, call in ways.items():
            torch.manual_seed(1)
            begin = time.perf_counter()
            made = call(*given)
            first[way] = time.perf_counter() - begin
            torch.testing.assert_close(made, expected, rtol=loose, atol=loose)
        calls = {**ways, "eager": plain}
        repeats = max(1, int(_BURST_S / max(_burst(ways["cpp"], given, 1, clock), 1e-6)))
        samples: dict[str, list[float]] = {way: [] for way in calls}
        for turn in range(rounds):
            # A burst after eager torch takes up to a tenth longer, because of the memory that is free then. So Silo and
            # C++ follow eager torch equally often.
            for way in (*sorted(ways, reverse=turn % 2 == 0), "eager"):
                samples[way].append(_burst(calls[way], given, repeats, clock))
    found: dict[str, Any] = {way: {"least_us": min(taken) * 1e6, "samples_s": taken} for way, taken in samples.items()}
    for other in ("cpp", "eager"):
        ratios = [ours / theirs for ours, theirs in zip(samples["silo"], samples[other], strict=True)]
        interval = median_interval(ratios, name)
        found[f"over_{other}"] = [interval.median, interval.low, interval.high]
    found["first_s"] = first
    return found


def _burst(call: Callable[..., Any], given: tuple[Any, ...], repeats: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(repeats):
        call(*given)
    return (clock() - begin) / repeats


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory in the process; return whether that worked (False for other C libraries).

    Otherwise glibc may return the memory of each result of some megabytes to the system, and the next call gets fresh
    pages for it. Fresh pages cost more than many kernels, and earlier allocations would decide which calls pay for
    them.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 32 << 20)) and bool(mallopt(_M_TRIM_THRESHOLD, 1 << 30))


def line(name: str, row: dict[str, Any]) -> str:
    """Return a line of the table."""
    times = "".join(f"{row[way]['least_us']:10.1f}" for way in ("silo", "cpp", "eager"))
    low, high = row["over_cpp"][1:]
    return f"{name:18}{times}{row['over_cpp'][0]:8.2f} [{low:.2f}, {high:.2f}]{row['over_eager'][0]:8.2f}"


def verdict(found: dict[str, dict[str, Any]]) -> str:
    """Return a line of text: the geometric mean, the models above the greatest ratio, and whether the goal is met."""
    ratios = {name: row["over_cpp"][0] for name, row in found.items()}
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    above = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items() if ratio > WORST) or "none"
    word = "met" if mean <= BAR and above == "none" else "missed"
    return f"geometric mean {mean:.2f} (bar {BAR}), above {WORST}: {above}; {word}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and the verdict, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names have this text in them")
    parser.add_argument("--images", action="store_true", help="operators on small pictures, in place of the models")
    parser.add_argument("--rounds", type=int, default=32, help="bursts of each (32)")
    parser.add_argument(
        "--cpu-time", action="store_true", help="time that this thread was on a CPU: where other programs run, too"
    )
    parser.add_argument(
        "--force", action="store_true", help="with a version of torch that Silo is not tested with, too"
    )
    parser.add_argument("--json", type=Path, help="keep the figures here")
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if not keep_freed_memory():
        print("freed memory may go back to the system: results of some megabytes may take longer by chance")
    machine, found = describe(), {}
    clock = time.thread_time if given.cpu_time else time.perf_counter
    with inductor.enable(force=given.force) as enabled:
        if not enabled:
            parser.error(enabled.decision.reason)
        print(f"{'microseconds':18}{'Silo':>10}{'C++':>10}{'eager':>10}{'over C++':>9}{'':14}{'over eager':>11}")
        for name, make in (image_operators() if given.images else models()).items():
            if given.only in name:
                found[name] = measure(name, make, given.rounds, clock)
                print(line(name, found[name]), flush=True)
    print(verdict(found))
    if given.json:
        save(given.json, machine, {"rows": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

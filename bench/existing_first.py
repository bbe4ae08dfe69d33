"""First uses of nine kernels of Liger-Kernel in fresh processes: Triton with a warm cache, and a frozen bundle.

    python -m bench.existing_first [--runs 7] [--json FILE] [--profile FILE]

It runs on the CPU, and needs torch, Triton and liger-kernel. A process imports torch, Triton and Liger's operators,
uses torch once, and then calls nine operators for the first and for a second time. The printed time is that of all
first calls minus that of all second calls: the time to find, load and bind the code of nine kernels. Figures are
medians of processes that take turns. The time of the imports is printed beside it, because both ways do some of their
work there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def operators() -> dict[str, Callable[[], object]]:
    """Return nine operators by name, each of which launches one kernel."""
    import torch
    from liger_kernel.ops.cross_entropy import cross_entropy_forward
    from liger_kernel.ops.dyt import liger_dyt_fwd
    from liger_kernel.ops.geglu import geglu_forward
    from liger_kernel.ops.kl_div import kldiv_forward_triton
    from liger_kernel.ops.layer_norm import layer_norm_forward
    from liger_kernel.ops.relu_squared import relu_squared_forward
    from liger_kernel.ops.rms_norm import rms_norm_forward
    from liger_kernel.ops.softmax import _softmax_forward
    from liger_kernel.ops.swiglu import swiglu_forward

    torch.manual_seed(0)
    rows, columns, no = 8, 512, False
    x, y, weight, bias = (
        torch.randn(rows, columns),
        torch.randn(rows, columns),
        torch.ones(columns),
        torch.zeros(columns),
    )
    labels = torch.arange(rows)
    log, target = x.log_softmax(-1), y.softmax(-1)
    return {
        "rms norm": lambda: rms_norm_forward(x, weight, 1e-6, 0.0, "llama", None),
        "layer norm": lambda: layer_norm_forward(x, weight, bias, 1e-6),
        "swiglu": lambda: swiglu_forward(x, y),
        "geglu": lambda: geglu_forward(x, y),
        "softmax": lambda: _softmax_forward(x),
        "kl div": lambda: kldiv_forward_triton(log, target, no, "batchmean", 1e-10),
        "cross entropy": lambda: cross_entropy_forward(
            x.clone(), labels, None, -100, 0.0, 0.0, "mean", None, no, no, no
        ),
        "dyt": lambda: liger_dyt_fwd(x, weight, weight, bias),
        "relu squared": lambda: relu_squared_forward(x),
    }


def child(profile: Path | None) -> None:
    begin = time.perf_counter_ns()
    import torch

    middle = time.perf_counter_ns()
    import triton  # noqa: F401

    named = operators()
    imported = time.perf_counter_ns()
    torch.empty(8).add_(1).sum().item()

    def once() -> list[float]:
        taken: list[float] = []
        for call in named.values():
            start = time.perf_counter_ns()
            call()
            taken.append((time.perf_counter_ns() - start) / 1e6)
        return taken

    if profile is not None:
        import cProfile

        profiler = cProfile.Profile()
        profiler.enable()
        once()
        profiler.disable()
        profiler.dump_stats(profile)
        return
    processor = time.process_time_ns()
    first = once()
    processor = time.process_time_ns() - processor
    again = time.process_time_ns()
    second = once()
    processor -= time.process_time_ns() - again
    print(
        json.dumps(
            {
                "first_ms": sum(first) - sum(second),
                "processor_ms": processor / 1e6,
                "each_ms": dict(zip(named, first, strict=True)),
                "import_ms": (imported - middle) / 1e6,
                "torch_import_ms": (middle - begin) / 1e6,
            }
        )
    )


def run(folder: Path, *options: str, profile: Path | None = None) -> dict[str, Any]:
    command = [sys.executable, "-m", "silo", "exec", *options] if options else [sys.executable]
    own = {"TRITON_CACHE_DIR": str(folder / "cache"), "SILO_HOME": str(folder / "home"), "SILO_TRITON": "cpu"}
    own |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    own["OMP_NUM_THREADS"] = own["SILO_CPU_THREADS"] = "1"
    words = ["-m", "bench.existing_first", "--child", *(["--profile-to", str(profile)] if profile else [])]
    done = subprocess.run([*command, *words], env={**os.environ, **own}, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return {} if profile else json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", type=Path, help="write a profile of the frozen bundle's process there")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--profile-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.profile_to)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = str(folder / "K.silo")
        run(folder, "--record", bundle)
        ways = {"Triton, its cache warm": (), "frozen bundle": ("--bundle", bundle, "--frozen")}
        if options.profile is not None:
            run(folder, *ways["frozen bundle"], profile=options.profile)
            return
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for number in range(options.runs + 1):
            for way, words in ways.items():
                made = run(folder, *words)
                if number:  # the first process is not counted: its files are not in the page cache yet
                    found[way].append(made)
    rows = [
        {"way": way, **{one: statistics.median(run[one] for run in runs) for one in runs[0] if one != "each_ms"}}
        for way, runs in found.items()
    ]
    print("| | first calls, ms | processor ms of these | importing triton and Liger, ms |\n| --- | --- | --- | --- |")
    for one in rows:
        print(f"| {one['way']} | {one['first_ms']:.0f} | {one['processor_ms']:.0f} | {one['import_ms']:.0f} |")
    for way, runs in found.items():
        print(
            way, {one: round(statistics.median(run["each_ms"][one] for run in runs), 1) for one in runs[0]["each_ms"]}
        )
    if options.json is not None:
        from bench.machine import describe

        options.json.write_text(
            json.dumps({"runs": options.runs, "rows": rows, "machine": describe()}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()

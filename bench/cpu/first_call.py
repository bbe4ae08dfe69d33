"""Seconds until the first result on a CPU: first calls of a matrix product with 36 configs, in cold processes.

    python -m bench.cpu.first_call [--sizes 300 1500 700] [--dtype bf16] [--repeats 3] [--modes off background auto]

Each sample is a process of its own with an empty store. The clock starts when torch, Triton and Silo are imported and
the arrays exist, and stops when the call has written a right result. The modes are those of ``SILO_TUNE``:

- ``off`` compiles one config and measures nothing; the other modes are compared with it. Its figure ``compile`` is the
  time to compile another config in the same process, whose compile worker already runs.
- In ``background`` the process then launches the first config again and again until the search has ended, for at most
  ``--limit`` seconds. ``winner`` is the time from the first call to the search's end. ``beside`` is the median ratio
  of launches during the search to launches in the windows of time right before and after, in which every process of the
  search is stopped and no config is lowered.

``cpu`` is the CPU time of the first call in all processes, and ``configs`` the number of configs that were measured in
the end. Both compare searches even on a loaded machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.machine import describe, save

ROOT = Path(__file__).resolve().parents[2]
MODES = ("off", "background", "auto")
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
LIMIT_S = 900
WINDOW_S = 0.1
# limits of ratios: to the first call in mode ``off``; to launches while the search is stopped
FEW_BARS = {"background": 1.2, "beside": 1.05}
AUTO_BARS_S = ((8, 2.0), (1, 5.0))  # (least number of CPUs, limit in seconds) for mode ``auto``


def linear() -> Any:  # returns a Silo kernel
    """Return the kernel of a matrix product with a bias, with a declared space of 36 configs."""
    import triton
    import triton.language as tl

    import silo

    @silo.kernel(
        space={"BM": [16, 32, 64, 128], "BN": [32, 64, 128], "BK": [32, 64, 128]},
        key=["M", "N", "K"],
        grid=lambda a: (silo.cdiv(a.M, a.BM) * silo.cdiv(a.N, a.BN),),
    )
    @triton.jit
    def product(a, b, bias, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        program, across = tl.program_id(0), tl.cdiv(N, BN)
        rows = (program // across) * BM + tl.arange(0, BM)
        columns = (program % across) * BN + tl.arange(0, BN)
        depth = tl.arange(0, BK)
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(K, BK)):
            at = step * BK + depth
            x = tl.load(a + rows[:, None] * K + at[None, :], mask=(rows[:, None] < M) & (at[None, :] < K), other=0.0)
            y = tl.load(
                b + at[:, None] + columns[None, :] * K, mask=(at[:, None] < K) & (columns[None, :] < N), other=0.0
            )
            total = tl.dot(x, y, total)
        total += tl.load(bias + columns, mask=columns < N)[None, :].to(tl.float32)
        place = c + rows[:, None] * N + columns[None, :]
        tl.store(place, total.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))

    return product


def seconds(step: Callable[[], object]) -> float:
    """The seconds that ``step`` takes."""
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def descendants() -> list[int]:
    """Return the numbers of all processes below this one: its children, their children, and so on."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for parent in found:
        found += [process for process, its in parents.items() if its == parent]
    return found[1:]


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all processes below it, including those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = time.process_time() + ended.ru_utime + ended.ru_stime
    for process in descendants():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            # the process's own time, and that of its children that have ended
            found += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def measured(kernel: Any, arguments: tuple[object, ...]) -> int:
    """Return the number of configs that were measured, counted in the text of ``kernel.explain``."""
    return 36 - sum(line.endswith("not measured") for line in kernel.explain(*arguments).splitlines())


def signalled(number: signal.Signals) -> None:
    """Send a signal to every process of the search."""
    for process in descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def window(launch: Callable[[], object]) -> float:
    """Return the median seconds of the launches in one window of time."""
    begin, taken = time.perf_counter(), list[float]()
    while time.perf_counter() - begin < WINDOW_S:
        taken.append(seconds(launch))
    return statistics.median(taken)


def beside(launch: Callable[[], object], ended: Callable[[], bool], lowering: Any, limit_s: float) -> list[float]:
    """Return the median launch seconds of windows of time: alternately with the search stopped and with it running.

    The first window is a stopped one. It ends when the search has ended, or after ``limit_s`` seconds.
    """
    until, taken = time.perf_counter() + limit_s, list[float]()
    while not ended() and time.perf_counter() < until:
        with lowering:
            signalled(signal.SIGSTOP)
            try:
                taken.append(window(launch))
            finally:
                signalled(signal.SIGCONT)
        if ended():
            break
        taken.append(window(launch))
    return taken[: len(taken) // 2 * 2]


def paired(windows: list[float]) -> list[float]:
    """Return the ratio of each window during the search to the mean of the stopped windows before and after it. Pure.

    >>> paired([1.0, 1.1, 1.2, 1.2])
    [1.0, 1.0]
    """
    stopped, running = windows[::2], windows[1::2]
    after = [*stopped[1:], stopped[-1]] if stopped else []
    return [2 * one / (left + right) for one, left, right in zip(running, stopped, after, strict=True)]


def child(mode: str, sizes: tuple[int, int, int], dtype: str, limit_s: float) -> dict[str, float]:
    """Measure one mode in this process; return its figures by name."""
    import torch

    import silo  # noqa: F401  # before the clock starts

    torch.manual_seed(0)
    height, width, depth = sizes
    kind = getattr(torch, DTYPES[dtype])
    a, b = torch.randn(height, depth).to(kind), torch.randn(width, depth).to(kind)
    bias, out = torch.randn(width).to(kind), torch.empty(height, width, dtype=kind)
    kernel, arguments = linear(), (a, b, bias, out, *sizes)
    before = cpu_seconds()
    found = {"first": seconds(lambda: kernel(*arguments)), "cpu": cpu_seconds() - before}
    expected = torch.nn.functional.linear(a.float(), b.float(), bias.float())
    if not torch.allclose(out.float(), expected, rtol=2e-2, atol=2e-2 * depth**0.5):
        raise SystemExit("the first result is wrong")
    if mode == "off":
        found["compile"] = seconds(lambda: kernel(*arguments, BM=64, BN=64, BK=64))
    if mode == "background":
        from silo.calls.background_search import searches

        bound, begin = kernel.bind(*arguments), time.perf_counter()
        lowering = kernel.kernel.resolver._lock  # noqa: SLF001  # held while a config is lowered
        windows = beside(lambda: bound(*arguments), lambda: searches.wait(0), lowering, limit_s)
        found["winner" if searches.wait(0) else "no winner within"] = found["first"] + time.perf_counter() - begin
        found |= {"beside": statistics.median(ratios), "pairs": len(ratios)} if (ratios := paired(windows)) else {}
    return found if mode == "off" else found | {"configs": measured(kernel, arguments)}


def sample(mode: str, options: argparse.Namespace) -> dict[str, float]:
    """Run one process with an empty store; return its figures by name."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"SILO_HOME": f"{folder}/silo", "TRITON_CACHE_DIR": f"{folder}/triton", "SILO_TUNE": mode}
        words = ["--child", mode, "--sizes", *map(str, options.sizes), "--dtype", options.dtype]
        words += ["--limit", str(options.limit)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.cpu.first_call", *words],
            env=os.environ | variables,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
    if done.returncode:
        raise SystemExit(f"{mode}: exit {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def judged(found: dict[str, dict[str, float]], cpus: int) -> list[tuple[str, float, float]]:
    """Return (name, value, limit) of each figure that has a limit. Pure.

    >>> medians = {"off": {"first": 0.5}, "background": {"first": 0.55, "beside": 1.02}, "auto": {"first": 1.9}}
    >>> [(name, round(figure, 2), limit) for name, figure, limit in judged(medians, 16)]
    [('first of background / off', 1.1, 1.2), ('launches beside', 1.02, 1.05), ('seconds of auto', 1.9, 2.0)]
    """
    bars: list[tuple[str, float, float]] = []
    if "background" in found and "off" in found:
        ratio = found["background"]["first"] / found["off"]["first"]
        bars.append(("first of background / off", ratio, FEW_BARS["background"]))
    if "beside" in found.get("background", {}):
        bars.append(("launches beside", found["background"]["beside"], FEW_BARS["beside"]))
    if "auto" in found:
        limit = next(limit for least, limit in AUTO_BARS_S if cpus >= least)
        bars.append(("seconds of auto", found["auto"]["first"], limit))
    return bars


def main() -> None:
    """Measure, print a table, and write the JSON file."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cpu.first_call", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs=3, default=[500, 1500, 700], metavar="N", help="M, N and K")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each mode, whose medians count")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--limit", type=float, default=120.0, help="seconds to wait for a search beside launches")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--child", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        logging.basicConfig(level=logging.INFO)  # logs to standard error
        print(json.dumps(child(options.child, tuple(options.sizes), options.dtype, options.limit)))
        return
    samples: dict[str, list[dict[str, float]]] = {mode: [] for mode in options.modes}
    for _ in range(options.repeats):
        for mode in options.modes:
            samples[mode].append(sample(mode, options))
            print(f"# {mode}: {samples[mode][-1]}", file=sys.stderr, flush=True)
    found = {
        mode: {
            name: statistics.median(one[name] for one in taken if name in one)
            for name in dict.fromkeys(name for one in taken for name in one)
        }
        for mode, taken in samples.items()
    }
    print("| mode | seconds to the first result | others |\n| --- | --- | --- |")
    for mode, figures in found.items():
        others = ", ".join(f"{name} {value:.3f}" for name, value in figures.items() if name != "first")
        print(f"| {mode} | {figures['first']:.3f} | {others} |")
    bars = judged(found, len(os.sched_getaffinity(0)))
    for name, figure, limit in bars:
        print(f"  {'pass' if figure <= limit else 'FAIL'}  {name}: {figure:.3f} (at most {limit:.3f})")
    if options.json:
        save(options.json, describe(), {"samples": samples, "bars": bars})


if __name__ == "__main__":
    main()

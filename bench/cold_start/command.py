"""The time from a fresh process to the first launch: Silo with a bundle, beside Triton with a warm disk cache.

    python -m bench.cold_start [--json FILE] [--stub] [--repeats N] [--quick] [--no-triton]

Every sample is a process of its own, and the scenarios take turns. Silo's bundles have one kernel with one variant; ten
kernels; ten kernels of 100 variants each; one kernel with 1,000 variants. The clock of "first launch" starts once the
context exists (it is made without Silo) and stops when the first launch is done: it covers making the arguments,
opening the bundle, choosing, verifying, loading and launching. With --stub the driver returns at once, so that only
Silo's own time is in the figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "src"))

from bench.cold_start.bundles import NAMES  # noqa: E402
from bench.launch import stub as launch_stub  # noqa: E402
from bench.machine import describe, save  # noqa: E402
from silo.settings import child_environment  # noqa: E402

STEPS = ("import", "context", "arguments", "open", "launch", "first launch", "second launch", "last kernel", "process")
KERNELS = 10
TRITON = "triton, warm cache"
TRITON_COLD = "triton, cold cache"


@dataclass(frozen=True)
class Bar:
    """A limit: the most milliseconds that the median of a step may take in a scenario."""

    scenario: str
    step: str
    limit_ms: float


BARS = (
    Bar("one", "first launch", 20),
    Bar("ten", "first launch", 20),
    Bar("thousand", "first launch", 30),
    Bar("spread", "first launch", 30),
)


class ChildError(RuntimeError):
    """A child process failed."""


def sample(command: Sequence[str], environment: dict[str, str], *, limit_s: float = 120) -> dict[str, Any]:
    """Run one child process.

    Return the JSON object that it printed, with the time of the whole process added, in nanoseconds.
    """
    begin = time.perf_counter_ns()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise ChildError(f"{' '.join(command)}: {error}") from error
    taken = time.perf_counter_ns() - begin
    if done.returncode:
        raise ChildError(f"{' '.join(command[1:])}: exit {done.returncode}: {done.stderr.strip()[-600:]}")
    made = json.loads(done.stdout.splitlines()[-1])
    made["steps"]["process"] = taken
    return made


def figures(samples: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the median and the minimum of each step, in milliseconds."""
    found: dict[str, dict[str, float]] = {}
    for step in STEPS:
        times = [one["steps"][step] / 1e6 for one in samples if step in one["steps"]]
        if times:
            found[step] = {"median": round(statistics.median(times), 4), "min": round(min(times), 4)}
    return found


def judge(scenarios: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each bar with the measured value.

    The last bar requires that Silo's processes import none of torch, Triton and numpy.
    """
    verdicts: list[dict[str, Any]] = []
    for bar in BARS:
        value = scenarios.get(bar.scenario, {}).get("figures", {}).get(bar.step, {}).get("median")
        verdicts.append(
            {
                "bar": f"{bar.scenario}: {bar.step} at most {bar.limit_ms:g} ms",
                "value": value,
                "passed": None if value is None else value <= bar.limit_ms,
            }
        )
    ours = [scenarios[name] for name in NAMES if scenarios.get(name, {}).get("samples")]
    loaded = sorted({name for one in ours for done in one["samples"] for name in done["loaded"]})
    verdicts.append(
        {
            "bar": "neither torch, Triton nor numpy imported",
            "value": ", ".join(loaded) or "none",
            "passed": not loaded if ours else None,
        }
    )
    return verdicts


def prepare(folder: Path, environment: dict[str, str]) -> None:
    """Build the bundles in a separate process."""
    command = [sys.executable, "-m", "bench.cold_start.bundles", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=400)
    if done.returncode:
        raise ChildError(f"bench.cold_start.bundles: {done.stderr.strip()[-2000:]}")


def table(scenarios: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table: median (minimum) milliseconds of each step, with one column for each scenario."""
    names = list(scenarios)
    lines = [f"{'ms, median (min)':18}" + "".join(f"{name:>22}" for name in names)]
    for step in STEPS:
        cells: list[str] = []
        for name in names:
            one = scenarios[name].get("figures", {}).get(step)
            cells.append("-" if one is None else f"{one['median']:.2f} ({one['min']:.2f})")
        lines.append(f"{step:18}" + "".join(f"{cell:>22}" for cell in cells))
    lines += [f"{name}: {one['reason']}" for name, one in scenarios.items() if "reason" in one]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cold_start", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to keep the results; bench/results/cold-start-<machine>.json")
    parser.add_argument("--stub", action="store_true", help="measure over a driver that returns at once")
    parser.add_argument("--repeats", type=int, help="processes a scenario: 9; with --quick 3")
    parser.add_argument("--no-triton", action="store_true", help="Silo only")
    parser.add_argument("--quick", action="store_true", help="few processes, for a look")
    options = parser.parse_args()
    repeats = options.repeats or (3 if options.quick else 9)
    scenarios: dict[str, dict[str, Any]] = {name: {"samples": []} for name in NAMES}
    with tempfile.TemporaryDirectory(prefix="silo-cold-") as text:
        folder = Path(text)
        environment = child_environment(SILO_HOME=str(folder / "home"), SILO_TUNE="off")
        paths = [str(ROOT / "src"), str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = ":".join(path for path in paths if path)
        environment["TRITON_CACHE_DIR"] = str(folder / "triton")
        library = "libcuda.so.1"
        if options.stub:
            built = launch_stub.build(folder)
            library = str(built)
            environment.update(launch_stub.environment(built))
        prepare(folder, environment)
        fresh = {**environment, "SILO_HOME": str(folder / "empty")}  # like a user's machine, on which nothing was built
        child = [sys.executable, str(HERE / "child.py")]
        commands: dict[str, list[str]] = {}
        for name in NAMES:
            many = str(KERNELS if name in {"ten", "spread"} else 1)
            commands[name] = [*child, "silo", str(folder / f"{name}.silo"), many, library]
            # This run is not counted: it brings the files into the page cache, and checks the kernel's result (not with
            # the stub, which computes nothing).
            sample([*commands[name], "no" if options.stub else "check"], fresh)
            commands[name].append("no")
        if not options.stub and not options.no_triton:
            try:
                cold = sample([*child, "triton"], environment)
                scenarios[TRITON_COLD] = {"samples": [cold]}
                commands[TRITON] = [*child, "triton"]
                scenarios[TRITON] = {"samples": []}
            except ChildError as error:
                scenarios[TRITON] = {"samples": [], "reason": str(error)}
        for _ in range(repeats):
            for name, command in commands.items():
                try:
                    scenarios[name]["samples"].append(sample(command, environment if name == TRITON else fresh))
                except ChildError as error:
                    scenarios[name]["reason"] = str(error)
    for one in scenarios.values():
        one["figures"] = figures(one["samples"])
    verdicts = judge(scenarios)
    machine = describe()
    print("\n".join(table(scenarios)))
    for one in verdicts:
        word = {True: "pass", False: "FAIL", None: "not measured"}[one["passed"]]
        print(f"  {word:13}{one['bar']}: {one['value']}")
    if options.json:
        how = launch_stub.HOW_WITHOUT_TORCH if options.stub else "the GPU at hand"
        body = {"bench": "cold_start", "unit": "ms", "stub": options.stub, "repeats": repeats, "how": how}
        save(options.json, machine, {**body, "bars": verdicts, "scenarios": scenarios})
    return 0 if all(one["passed"] is not False for one in verdicts) else 1

"""CuTe kernels by Silo beside the DSL itself.

    python -m bench.cute compile [--repeats N] [--json FILE]
    python -m bench.cute launch BUNDLE [--rounds N] [--json FILE]

compile: 32 configs of a matrix product for sm_90a, without a GPU. Fresh processes take turns. In the first, Silo packs
all configs from an empty store (the front end, the start of workers and the bundle count). The second makes the same
calls of cute.compile. In the third, Silo packs the configs again from the filled store and may compile none. Imports
count on both sides.

launch: on a GPU, with a bundle of examples/cute_kernels.py and examples/cute_gemms.py. Measures launches of the
elementwise kernel over a C loop, and the device's time of matrix products over the DSL's. The DSL's rows are missing if
the DSL is not installed.
"""

from __future__ import annotations

import argparse
import compileall
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from bench.cute import report  # noqa: E402
from bench.machine import describe, save  # noqa: E402
from silo.settings import child_environment  # noqa: E402

COMPILE_LIMIT = 0.75
JOBS = 2


def child(words: Sequence[str], home: Path) -> dict[str, Any]:
    """Run a fresh process; return the JSON that it printed, with its wall time and its CPU time (with children)."""
    environment = child_environment(SILO_HOME=str(home), SILO_JOBS=str(JOBS), SILO_TUNE="off")
    environment["PYTHONPATH"] = ":".join(filter(None, [str(ROOT / "src"), str(ROOT), environment.get("PYTHONPATH")]))
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "bench.cute.child", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(done.stdout.splitlines()[-1]), "wall_s": round(wall_s, 3), "cpu_s": round(cpu_s, 3)}


def compile_all(repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Run each kind of process once a round, each round with its own store; return the results by kind."""
    children: dict[str, list[dict[str, Any]]] = {"silo": [], "again": [], "dsl": []}
    for name in ("src", "bench", "examples"):  # an installed package has its bytecode; a checkout may lack it
        compileall.compile_dir(ROOT / name, rx=re.compile("/templates/"), quiet=1)
    with tempfile.TemporaryDirectory(prefix="silo-cute-") as text:
        folder = Path(text)
        for number in range(repeats):
            home = folder / f"home{number}"
            turns = {
                "silo": ["silo", str(folder / f"{number}.silo")],
                "again": ["silo", str(folder / f"{number}-again.silo")],
                "dsl": ["dsl"],
            }
            for way in turns if number % 2 == 0 else ("dsl", "silo", "again"):
                children[way].append(child(turns[way], home))
    return children


def run_compile(options: argparse.Namespace) -> int:
    """Run the subcommand ``compile``; return 1 if the bar fails."""
    children = compile_all(options.repeats)
    machine = describe()
    found, wrong = report.compiles(children, COMPILE_LIMIT)
    count = children["dsl"][0]["compiled"]
    print("\n".join(report.lines(f"{count} configs, {machine['cores']} cores", "cute.compile", "s", [found])))
    spent = {way: sorted(one["cpu_s"] for one in made)[len(made) // 2] for way, made in children.items()}
    print(f"CPU time: {spent['silo']:.2f} s, cute.compile {spent['dsl']:.2f} s")
    again = [one["wall_s"] for one in children["again"]]
    print(f"a second process: {max(one['compiled'] for one in children['again'])} compiled, {min(again):.2f} s")
    if wrong:
        print(f"FAIL: {wrong}")
    if options.json:
        body = {"bench": "cute compile", "repeats": options.repeats, "workers": JOBS, "processes": children}
        save(options.json, machine, {**body, "figure": asdict(found), "wrong": wrong})
    return int(bool(wrong) or not found.passed)


def run_launch(options: argparse.Namespace) -> int:
    """Run the subcommand ``launch``; return 1 if a bar fails."""
    from bench.cute import device

    hosts = device.host_times(options.bundle, options.rounds, options.burst)
    products = device.device_times(options.bundle, options.device_rounds, options.device_burst)
    machine = describe()
    print(f"{machine.get('gpu', {}).get('name', 'no GPU')}, {machine['cpu']}")
    print("\n".join(report.lines("add, 3 arrays of 65536, host", "the floor", "ns", hosts)))
    print("\n".join(report.lines("matrix product, device", "the DSL", "us", products)))
    if options.json:
        rounds = {"rounds": options.rounds, "burst": options.burst, "device_rounds": options.device_rounds}
        tables = {"host_ns": [asdict(one) for one in hosts], "device_us": [asdict(one) for one in products]}
        save(options.json, machine, {"bench": "cute launch", **rounds, **tables})
    return int(any(one.passed is False for one in (*hosts, *products)))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cute", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    compiling = commands.add_parser("compile", help="compile 32 configs; needs the DSL and no GPU")
    compiling.add_argument("--repeats", type=int, default=3, help="fresh processes of each way: 3")
    compiling.set_defaults(run=run_compile)
    launching = commands.add_parser("launch", help="launches and device times; needs a GPU and torch")
    launching.add_argument("bundle", type=Path, help="of examples/cute_kernels.py and examples/cute_gemms.py")
    launching.add_argument("--rounds", type=int, default=100, help="of host times")
    launching.add_argument("--burst", type=int, default=400, help="launches a burst; below the depth of a GPU's queue")
    launching.add_argument("--device-rounds", type=int, default=40, help="of device times")
    launching.add_argument("--device-burst", type=int, default=50, help="launches of each")
    launching.set_defaults(run=run_launch)
    for one in (compiling, launching):
        one.add_argument("--json", type=Path, help="where to keep the results")
    options = parser.parse_args()
    return options.run(options)

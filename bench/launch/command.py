"""The host's time for a launch, beside the driver's own time and beside other launchers.

    python -m bench.launch [--json FILE] [--stub] [--cases 5+3 ...] [--rows silo triton-jit ...] [--quick]

It measures bursts of asynchronous launches of a kernel that does nothing. Every round measures each row once, right
after a burst of the floor: a C loop over cuLaunchKernelEx with the same kernel and arguments. A row's figure is the
median of these paired differences with a bootstrap interval, in wall time and in CPU time of the thread. With --stub
(any machine) the driver returns at once, and the figure is the minimum over bursts. If a launcher fails or crashes, its
line has the reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from bench.launch import stub as launch_stub  # noqa: E402
from bench.launch.cases import CASES, select  # noqa: E402
from bench.launch.peers import triton_own  # noqa: E402
from bench.launch.report import BARS, STUB_BARS, document, judge, summarize, table, verdict_lines  # noqa: E402
from bench.launch.run import all_rows  # noqa: E402
from bench.machine import describe, save  # noqa: E402
from silo.settings import child_environment  # noqa: E402


def run_cases(
    folder: Path, keys: Sequence[str], arguments: Sequence[str], environment: dict[str, str], *, limit_s: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure cases in child processes; if a row crashes a process, go on without the row.

    Returns the finished cases, and a line about each problem.
    """
    output, now = folder / "cases.jsonl", folder / "now"
    deadline = time.monotonic() + limit_s
    skip: list[str] = []
    problems: list[str] = []
    left = list(keys)
    while left:
        now.write_text("|", encoding="utf-8")
        command = [sys.executable, "-X", "faulthandler", "-m", "bench.launch.run", "--folder", str(folder)]
        command += [*arguments, "--cases", *left, "--skip", *skip]
        try:
            code = subprocess.run(
                command, env=environment, check=False, timeout=max(1.0, deadline - time.monotonic())
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        at = now.read_text(encoding="utf-8")
        case, _, what = at.partition("|")
        done = finished(output)
        left = [key for key in left if key not in {one["case"] for one in done}]
        if code == 0:
            break
        problems.append(f"{case or 'start'}: {what or 'start'}: " + ("out of time" if code is None else f"exit {code}"))
        print(f"launch: {problems[-1]}", file=sys.stderr)
        if code is None or not case:
            break
        if at in skip or what not in known_rows():
            left = [key for key in left if key != case]
        else:
            skip.append(at)
    return finished(output), problems


def known_rows() -> list[str]:
    """Return the names of all rows."""
    return [row.name for row in (*all_rows(stub=False, fork=False), triton_own.FORK_ROW)]


def finished(output: Path) -> list[dict[str, Any]]:
    """Return the cases that were measured to the end."""
    if not output.exists():
        return []
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def add_fork(cases: list[dict[str, Any]], measured: Sequence[dict[str, Any]], reason: str) -> None:
    """Add the row of Triton's fork to the cases; it was measured in another process, beside a floor of its own."""
    by_case = {one["case"]: one["rows"].get(triton_own.FORK_ROW.name) for one in measured}
    for case in cases:
        absent = {"label": triton_own.FORK_ROW.label, "status": "absent", "reason": reason}
        case["rows"][triton_own.FORK_ROW.name] = by_case.get(case["case"]) or absent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.launch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to keep the results; bench/results/launch-<machine>.json")
    parser.add_argument("--stub", action="store_true", help="measure over a driver that returns at once")
    parser.add_argument("--rounds", type=int, help="80; with --stub 200; with --quick 10")
    parser.add_argument("--burst", type=int, default=400, help="launches a burst; below the depth of the queue")
    parser.add_argument("--cases", nargs="+", default=[], metavar="CASE", help=", ".join(case.key for case in CASES))
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help=", ".join(known_rows()))
    parser.add_argument("--stream", choices=("default", "side"), default="default", help="where launches go")
    parser.add_argument("--verify", action="store_true", help="capture each row into a graph and read what it launches")
    parser.add_argument("--triton-fork", type=Path, help="the folder that Meta's Triton fork is installed in")
    parser.add_argument("--quick", action="store_true", help="few rounds, for a look")
    parser.add_argument("--limit", type=float, default=480, help="seconds, for everything")
    options = parser.parse_args()
    try:
        keys = select(options.cases, [case.key for case in CASES], "case")
        rows = select(options.rows, known_rows(), "row") if options.rows else []
    except ValueError as error:
        parser.error(str(error))
    rounds = options.rounds or (10 if options.quick else 200 if options.stub else 80)
    arguments = ["--rounds", str(rounds), "--burst", str(options.burst), "--stream", options.stream]
    arguments += ["--verify"] * options.verify
    with tempfile.TemporaryDirectory(prefix="silo-launch-") as text:
        folder = Path(text)
        environment = child_environment(SILO_HOME=str(folder / "home"), SILO_TUNE="off")
        # The caller's PYTHONPATH is kept, because one of its folders may hold Silo's requirements.
        paths = [str(ROOT / "src"), str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = ":".join(path for path in paths if path)
        if options.stub:
            environment.update(launch_stub.environment(launch_stub.build(folder)))
            arguments.append("--stub")
        chosen = ["--rows", *rows] if rows else []
        cases, problems = run_cases(folder, keys, [*arguments, *chosen], environment, limit_s=options.limit)
        if not options.stub:
            measured: list[dict[str, Any]] = []
            reason = f"no folder of {triton_own.FORK} was given with --triton-fork"
            if options.triton_fork is not None:
                fork_folder = folder / "fork"
                fork_folder.mkdir()
                fork_environment = {**environment, **triton_own.FORK_SWITCHES}
                fork_environment["PYTHONPATH"] = f"{options.triton_fork}:{environment['PYTHONPATH']}"
                measured, more = run_cases(
                    fork_folder, keys, [*arguments, "--fork"], fork_environment, limit_s=options.limit / 3
                )
                problems += more
                reason = "; ".join(more) or "not measured"
            add_fork(cases, measured, reason)
    summary = summarize(cases)
    verdicts = judge(summary, [bar for bar in (STUB_BARS if options.stub else BARS) if bar.case in keys])
    machine = describe()
    print(f"{machine.get('gpu', {}).get('name', 'no GPU')}, {machine['cpu']}, python {machine['python']}", end="")
    print(f", {rounds} rounds of {options.burst} launches, {options.stream} stream" + (", stub" * options.stub))
    print("\n".join([*table(cases, summary), *verdict_lines(verdicts)]))
    problems += [
        f"{case['case']}: {name}: {text}" for case in cases for name, text in case["verified"].items() if text != "ok"
    ]
    for problem in problems:
        print(f"problem: {problem}")
    if options.json:
        body = document(cases, summary, verdicts)
        method = {"rounds": rounds, "burst": options.burst, "stream": options.stream, "stub": options.stub}
        save(options.json, machine, {"bench": "launch", **method, "problems": problems, **body})
    return 0 if cases and all(one.passed is not False for one in verdicts) else 1

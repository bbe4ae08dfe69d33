"""The host's time for a launch in two builds of Silo, side by side over the stub driver.

    python -m bench.launch.builds OTHER [--cases 5+3 ...] [--rows silo ...] [--json FILE]

OTHER is the folder of another checkout whose extension is built in place; this checkout is compared with it. Each build
runs in a process of its own, and the processes take turns: a round is a few bursts of one, then of the other, and
counts the fastest burst of each. The figure is the median of the rounds' differences with its 95 % bootstrap interval.
The place of a process's memory changes a launch by some nanoseconds, so several pairs of processes are measured in
sequence.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from bench.launch import stub
from bench.launch.cases import CASES, select
from bench.launch.peers import ours
from bench.launch.run import WARMUP, Loop, loop_of
from bench.machine import describe, save
from bench.paired import differences, median_interval, ratios

ROOT = Path(__file__).resolve().parents[2]
BAR_NS = 20.0
SKIPPED_BURSTS = 5


class Server:
    """A process of one build that prepares a launch on request, and runs bursts of it."""

    def __init__(self, checkout: Path, folder: Path, driver: Path) -> None:
        from silo.settings import child_environment

        folder.mkdir(exist_ok=True)
        environment = child_environment(SILO_HOME=str(folder / "home"), SILO_TUNE="off")
        paths = [str(checkout / "src"), str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = ":".join(path for path in paths if path)
        environment.update(stub.environment(driver))
        command = [sys.executable, "-m", "bench.launch.builds", "--serve", str(folder)]
        # It runs in an empty folder, because Python would prefer modules of the working directory to those of
        # PYTHONPATH.
        self._process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **question: object) -> Any:
        """Send one question and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a process of the bench ended with code {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """Close the process's input, and wait for its end."""
        self._process.communicate(timeout=60)


def serve(folder: Path, questions: IO[str], answers: IO[str]) -> None:
    """Answer questions until there are no more: prepare a case and row, or run bursts."""
    from bench.launch import silo_kernels

    device = stub.Device(folder)
    cases = {case.key: case for case in CASES}
    rows = {row.name: row for row in ours.ROWS}
    loop: Loop | None = None
    for line in questions:
        question = json.loads(line)
        if "case" in question:
            context = device.context(cases[question["case"]], folder)
            context.kernels = silo_kernels
            loop = loop_of(rows[question["row"]].prepare(context))
            loop(WARMUP)
            gc.collect()
            gc.freeze()
            gc.disable()
            answer: object = len(context.arguments)
        else:
            assert loop is not None
            answer = min(loop(question["launches"])[0] for _ in range(question["bursts"])) / question["launches"]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def measure(
    servers: Sequence[Server], case: str, row: str, *, rounds: int, bursts: int, launches: int
) -> Iterator[tuple[float, float]]:
    """Yield the nanoseconds of a launch in each build, for each round; the builds alternate in beginning a round."""
    for server in servers:
        server.ask(case=case, row=row)
        server.ask(bursts=SKIPPED_BURSTS, launches=launches)
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        found = {index: servers[index].ask(bursts=bursts, launches=launches) for index in order}
        yield found[0], found[1]


def main() -> int:
    rows_there = [row.name for row in ours.ROWS if row.name != "silo-bundle"]
    parser = argparse.ArgumentParser(
        prog="python -m bench.launch.builds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, nargs="?", help="the checkout to compare with")
    parser.add_argument("--cases", nargs="+", default=[], metavar="CASE", help=", ".join(case.key for case in CASES))
    parser.add_argument("--rows", nargs="+", default=["silo"], metavar="ROW", help=", ".join(rows_there))
    parser.add_argument("--pairs", type=int, default=4, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=50, help="of each pair")
    parser.add_argument("--bursts", type=int, default=8, help="of each build in a round")
    parser.add_argument("--burst", type=int, default=400, help="launches a burst")
    parser.add_argument("--json", type=Path, help="where to keep the samples")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve, sys.stdin, sys.stdout)
        sys.stdout.flush()
        os._exit(0)  # skips Triton's teardown, which is not measured and prints a lot
    if options.other is None:
        parser.error("the folder of another checkout is needed")
    try:
        keys = select(options.cases, [case.key for case in CASES], "case")
        rows = select(options.rows, rows_there, "row")
    except ValueError as error:
        parser.error(str(error))
    samples: dict[tuple[str, str], list[tuple[float, float]]] = {(key, row): [] for key in keys for row in rows}
    with tempfile.TemporaryDirectory(prefix="silo-builds-") as text:
        folder = Path(text)
        driver = stub.build(folder)
        for _ in range(options.pairs):
            with ExitStack() as stack:
                servers = [
                    Server(options.other.resolve(), folder / "other", driver),
                    Server(ROOT, folder / "here", driver),
                ]
                for server in servers:
                    stack.callback(server.close)
                for (key, row), found in samples.items():
                    count = {"rounds": options.rounds, "bursts": options.bursts, "launches": options.burst}
                    found.extend(measure(servers, key, row, **count))
    print(f"{'case':14} {'row':16} {'other':>9} {'here':>9} {'difference':>11}  95 % interval      ratio")
    slower = False
    for (key, row), found in samples.items():
        other, here = [one for one, _ in found], [one for _, one in found]
        difference = median_interval(differences(here, other), f"{key} {row}")
        ratio = median_interval(ratios(here, other), f"{key} {row}")
        slower |= max(-difference.low, difference.high) > BAR_NS
        interval = f"{difference.low:+8.1f} to {difference.high:+.1f} ns"
        print(
            f"{key:14} {row:16} {min(other):7.1f}ns {min(here):7.1f}ns {difference.median:+9.1f}ns {interval:>22}"
            f"  {ratio.median:.3f}"
        )
    if options.json:
        kept = [{"case": key, "row": row, "samples": found} for (key, row), found in samples.items()]
        method = {"pairs": options.pairs, "rounds": options.rounds, "bursts": options.bursts, "burst": options.burst}
        save(options.json, describe(), {"bench": "launch builds", **method, "cases": kept})
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())

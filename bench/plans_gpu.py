"""Plans on a GPU: 10, 50 and 200 kernels of five pointers and three ints, whose arguments all change in each replay.

``python -m bench.plans_gpu`` compares, in turns of one process, the ways of ``native/core/graph_plan.c`` called from C,
and for 50 kernels ``silo.plan`` from Python beside single launches. The host's time lasts from the begin of filling in
the arguments to the end of the launch, the whole time to the end of the last kernel, in microseconds; both begin when
the stream is empty. ``--stub`` runs over a driver that does nothing, for a look at the host's part.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.machine import describe
from bench.paired import median_interval, ratios

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "samples"), str(ROOT / "tests")]

import graph_plans  # noqa: E402  # pyright: ignore[reportMissingImports]  # the tests' samples
import plan_mix  # noqa: E402  # pyright: ignore[reportMissingImports]

ELEMENTS, TURNS, ROUNDS = 4096, 10, 12

ROWS: dict[str, tuple[dict[str, int], bool]] = {
    "device, all replaced": ({}, True),
    "device, nothing changed": ({}, False),
    "device, every node updated": ({"everything": 1}, True),
    "host, all replaced": ({"wanted": graph_plans.HOST}, True),
    "host, nothing changed": ({"wanted": graph_plans.HOST}, False),
    "one by one": ({"wanted": graph_plans.SINGLY}, True),
}
FLOOR = "one by one"

# Limits for 50 kernels on an H100 or H200: host microseconds from C, from Python and without changes; the whole time
# over that of single launches.
HOST_C_US, HOST_PYTHON_US, UNCHANGED_US, WHOLE_PART = 4.0, 8.0, 3.0, 0.4


class Turns:
    """Timed replays of one plan from C."""

    def __init__(
        self, device: graph_plans.Device, count: int, options: dict[str, int], arrays: Any, stream: int
    ) -> None:
        self.device, self.arrays, self.stream = device, arrays, stream
        self.plan = device.plan(plan_mix.kernels(device, count), **options)

    def run(self, *, change: bool) -> tuple[list[float], list[float]]:
        """Replay the plan ``TURNS`` times; return host and whole times in microseconds, without the first two."""
        host, whole = ((ctypes.c_double * TURNS)() for _ in range(2))
        arguments = (self.plan.handle, self.device.handle, self.stream, self.arrays, ELEMENTS, plan_mix.THREADS)
        self.device.check(self.device.library.plan_turns(*arguments, int(change), TURNS, host, whole))
        # The first turns of a row still replace the arguments that the row before it left.
        return list(host)[2:], list(whole)[2:]


def from_c(device: graph_plans.Device, count: int, rounds: int) -> dict[str, Any]:
    """Measure plans of ``count`` kernels called from C, the rows in turns; return times, way and reason of each row."""
    stream = device.stream()
    arrays = (ctypes.c_uint64 * 10)(*(device.memory(4 * (ELEMENTS + plan_mix.THREADS)) for _ in range(10)))
    turns = {name: Turns(device, count, options, arrays, stream) for name, (options, _) in ROWS.items()}
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in ROWS}
    for _ in range(rounds):
        for name, one in turns.items():
            samples[name] += zip(*one.run(change=ROWS[name][1]), strict=True)
    result = {}
    for name, found in samples.items():
        host, whole = [each[0] for each in found], [each[1] for each in found]
        part = ratios(whole, [each[1] for each in samples[FLOOR]])
        way, reason = turns[name].plan.explain()
        result[name] = {"way": way, "reason": reason, "host_us": host, "whole_us": whole, "part": part}
        turns[name].plan.close()
    return result


def _timed(call: Callable[[], object], wait: Callable[[], None]) -> tuple[float, float]:
    wait()
    begin = time.perf_counter_ns()
    call()
    host = time.perf_counter_ns()
    wait()
    return (host - begin) / 1000, (time.perf_counter_ns() - begin) / 1000


def from_python(device: graph_plans.Device, rounds: int, count: int = 50) -> dict[str, Any]:
    """Measure ``silo.plan`` of ``count`` launches with all arguments replaced, and single launches."""
    import silo

    kernels = plan_mix.declared()

    def step(a: Any, b: Any, c: Any, d: Any, out: Any, n: int, v: int) -> None:
        for index in range(count):
            kernels[index % len(kernels)](a, b, c, d, out, n, v, index)

    sets = [[silo.Buffer(ELEMENTS, "int32", device="cuda") for _ in range(5)] for _ in range(2)]
    plan = silo.plan(step, *sets[0], ELEMENTS, 1)

    def wait() -> None:
        device.check(device.library.plan_wait(device.handle, None))

    def arguments(turn: int) -> tuple[Any, ...]:
        a, b, c, d, out = sets[turn % 2]
        return (a, b, c, d, out, ELEMENTS - turn % 100, turn)

    calls = {"silo.plan": (plan, 1), "silo.plan, nothing changed": (plan, 0), "one by one": (step, 1)}
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for round_ in range(rounds):
        for name, (call, change) in calls.items():
            given = [arguments(round_ * TURNS + change * turn) for turn in range(TURNS)]
            found = [_timed(lambda call=call, one=one: call(*one), wait) for one in given]
            rows[name] += found[2:]  # without the first two turns, as in Turns.run
    floor = [whole for _, whole in rows["one by one"]]
    return {
        "report": str(plan.report()),
        **{
            name: {
                "host_us": [host for host, _ in found],
                "whole_us": [whole for _, whole in found],
                "part": ratios([whole for _, whole in found], floor),
            }
            for name, found in rows.items()
        },
    }


def _show(title: str, rows: dict[str, Any]) -> None:
    print(f"\n{title}\n\n| | host us | whole us | whole, of one by one |\n| --- | ---: | ---: | ---: |")
    for name, row in rows.items():
        if isinstance(row, dict):
            host, whole, part = (median_interval(row[key], name) for key in ("host_us", "whole_us", "part"))
            print(f"| {name} | {host.median:.2f} | {whole.median:.1f} | {part.median:.2f} |")


def _verdicts(c: dict[str, Any], python: dict[str, Any] | None) -> list[tuple[str, float, float]]:
    def median(rows: dict[str, Any], name: str, key: str) -> float:
        return median_interval(rows[name][key], name).median

    found = [
        ("host from C, all replaced", median(c, "device, all replaced", "host_us"), HOST_C_US),
        ("host from C, nothing changed", median(c, "device, nothing changed", "host_us"), UNCHANGED_US),
        ("whole time from C, of one by one", median(c, "device, all replaced", "part"), WHOLE_PART),
    ]
    if python is not None:
        found.append(("host from Python, all replaced", median(python, "silo.plan", "host_us"), HOST_PYTHON_US))
        found.append(("whole time from Python, of one by one", median(python, "silo.plan", "part"), WHOLE_PART))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables and the bars; return 1 if a bar is missed (never with ``--stub``)."""
    parser = argparse.ArgumentParser(prog="bench.plans_gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stub", action="store_true", help="over the stub driver, whose launches do nothing")
    parser.add_argument("--counts", default="10,50,200", help="numbers of kernels (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of all rows (default: %(default)s)")
    parser.add_argument("--no-python", action="store_true", help="from C alone")
    parser.add_argument("--json", type=Path, help="keep every sample")
    given = parser.parse_args(arguments)
    path = None
    if given.stub:
        import gpu_stub  # pyright: ignore[reportMissingImports]

        path = os.environ["SILO_CUDA_LIBRARY"] = str(gpu_stub.library())
        ctypes.CDLL(path).stub_record(0)
    device = graph_plans.Device(graph_plans.fast(), path=path)
    kept: dict[str, Any] = {"machine": describe(), "elements": ELEMENTS, "c": {}, "python": None}
    for count in map(int, given.counts.split(",")):
        kept["c"][count] = rows = from_c(device, count, given.rounds)
        _show(f"{count} kernels, from C", rows)
        for name, row in rows.items():
            print(f"  {name}: {row['reason']}")
    if not given.no_python:
        kept["python"] = from_python(device, given.rounds)
        _show("50 kernels, from Python", kept["python"])
        print(kept["python"]["report"])
    if given.json is not None:
        given.json.write_text(json.dumps(kept))
    missed = 0
    if 50 in kept["c"] and not given.stub:
        print()
        for name, value, bar in _verdicts(kept["c"][50], kept["python"]):
            missed += value > bar
            print(f"{name}: {value:.2f}, at most {bar:g}: {'missed' if value > bar else 'met'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())

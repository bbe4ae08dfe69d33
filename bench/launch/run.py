"""Measures launches in a process that may crash; ``command.py`` then starts it again without the row that crashed it.

Each finished case is appended to the output as one JSON line, so a later crash loses none of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.launch import floor
from bench.launch import stub as launch_stub
from bench.launch.capture import Launched, captured
from bench.launch.cases import CASES, ELEMENTS, GRID, THREADS, Call, Case
from bench.launch.peers import AbsentError, Context, Row, inductor, least, nvidia, ours, triton_own

WARMUP = 50
SKIPPED_ROUNDS = 2
FIRST = 3  # launches before each burst that do not count, for rows with Call.around
FLOOR = "floor"

Loop = Callable[[int], tuple[int, int]]

LOOP = """
def loop({parameters}):
    repeat = range(launches)
    cpu = thread_time_ns()
    wall = perf_counter_ns()
    for _ in repeat:
        {statement}
    wall = perf_counter_ns() - wall
    return wall, thread_time_ns() - cpu
"""


@dataclass
class Measured:
    """A row that is being measured: nanoseconds a launch, one sample for each round."""

    row: Row
    loop: Loop
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    floor_wall: list[float] = field(default_factory=list)
    floor_cpu: list[float] = field(default_factory=list)


def all_rows(*, stub: bool, fork: bool) -> tuple[Row, ...]:
    """Return every row that can be measured in a process of this kind."""
    if fork:
        return (triton_own.FORK_ROW,)
    rows = (*ours.ROWS, *least.ROWS, *triton_own.ROWS, *inductor.ROWS, *nvidia.ROWS)
    return tuple(row for row in rows if row.stub or not stub)


def loop_of(call: Call) -> Loop:
    """Return a function that makes N calls and returns their wall and CPU nanoseconds.

    The objects that the call names are local variables of the function.
    """
    parameters = ", ".join(["launches", *(f"{name}={name}" for name in call.names)])
    space: dict[str, Any] = dict(call.names)
    space.update(perf_counter_ns=time.perf_counter_ns, thread_time_ns=time.thread_time_ns)
    exec(LOOP.format(parameters=parameters, statement=call.statement), space)
    loop: Loop = space["loop"]
    around = call.around
    if around is None:
        return loop

    def within(launches: int) -> tuple[int, int]:
        with around():
            loop(FIRST)
            return loop(launches)

    return within


def measure(
    prepared: Sequence[Measured],
    under: Loop,
    *,
    rounds: int,
    burst: int,
    synchronize: Callable[[], None],
    failed: Callable[[Row, Exception], None],
    seed: int = 0,
) -> None:
    """Measure each row once in every round, right after a burst of the floor; each round has a random order."""
    order = list(prepared)
    shuffle = random.Random(seed)
    for number in range(rounds + SKIPPED_ROUNDS):
        shuffle.shuffle(order)
        for one in tuple(order):
            floor_wall, floor_cpu = under(burst)
            synchronize()
            try:
                wall, cpu = one.loop(burst)
                synchronize()
            except Exception as error:  # noqa: BLE001  # what a peer raises is a result
                failed(one.row, error)
                order.remove(one)
                continue
            if number >= SKIPPED_ROUNDS:
                one.wall.append(wall / burst)
                one.cpu.append(cpu / burst)
                one.floor_wall.append(floor_wall / burst)
                one.floor_cpu.append(floor_cpu / burst)


class Run:
    """The work of one process: measures the cases and rows of its options, and appends the results to a file."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.output: Path = options.folder / "cases.jsonl"
        self.device = launch_stub.Device(self.folder) if options.stub else Gpu(options.stream)
        self.crashed = {tuple(text.split("|", 1)) for text in options.skip}
        self.kernels: Any = None
        self.bundle: Path | None = None

    def run(self) -> None:
        """Measure every chosen case."""
        rows = [row for row in all_rows(stub=self.options.stub, fork=self.options.fork) if self.wanted(row)]
        if not self.options.fork:
            self.prepare_silo()
        for case in CASES:
            if case.key in self.options.cases:
                self.measure_case(case, rows)

    def wanted(self, row: Row) -> bool:
        """Return whether a row was chosen; Triton's JIT always is, because other rows are compared with it."""
        return not self.options.rows or row.name in self.options.rows or row.name == "triton-jit"

    def prepare_silo(self) -> None:
        """Build the bundle, once for all cases and restarts."""
        self.now("", "building the bundle")
        path = self.folder / "launch.silo"
        from bench.launch import silo_kernels as launch_silo_kernels
        from silo.commands.build_bundle import build_bundle

        self.kernels = launch_silo_kernels
        if not path.exists():
            build_bundle([Path(launch_silo_kernels.__file__)], path, targets=["cuda"], tune="off")
        self.bundle = path

    def now(self, case: str, what: str) -> None:
        """Write down what is measured next, so that the parent process can read it if this process crashes."""
        (self.folder / "now").write_text(f"{case}|{what}", encoding="utf-8")

    def measure_case(self, case: Case, rows: Sequence[Row]) -> None:
        """Measure the rows of one case and append the result."""
        begin = time.perf_counter()
        self.now(case.key, FLOOR)
        context = self.device.context(case, self.folder)
        context.kernels, context.bundle = self.kernels, self.bundle
        results: dict[str, dict[str, Any]] = {}
        under = self.floor_of(context)
        under(WARMUP)
        prepared: list[Measured] = []
        verified: dict[str, str] = {}

        def failed(row: Row, error: Exception) -> None:
            absent = isinstance(error, AbsentError)
            reason = str(error) if absent else f"{type(error).__name__}: {error}"
            results[row.name] = {"status": "absent" if absent else "failed", "reason": reason[:500]}
            if not absent:
                traceback.print_exception(error, file=sys.stderr)

        for row in rows:
            if (case.key, row.name) in self.crashed:
                results[row.name] = {"status": "failed", "reason": "it killed the process"}
                continue
            self.now(case.key, row.name)
            try:
                loop = loop_of(row.prepare(context))
                self.check(loop, case)
            except Exception as error:  # noqa: BLE001  # what a peer raises is a result
                failed(row, error)
                continue
            prepared.append(Measured(row, loop))
            if self.options.verify:
                verified[row.name] = self.device.verify(row, context)
        self.now(case.key, "the rounds")
        gc.collect()
        gc.freeze()
        gc.disable()
        measure(
            prepared,
            under,
            rounds=self.options.rounds,
            burst=self.options.burst,
            synchronize=self.device.synchronize,
            failed=failed,
        )
        gc.enable()
        for one in prepared:
            if one.wall and one.row.name not in results:
                samples = {name: [round(value, 1) for value in getattr(one, name)] for name in SAMPLES}
                results[one.row.name] = {"status": "measured", "samples": samples}
        document = {
            "case": case.key,
            "rows": {row.name: {"label": row.label, **results[row.name]} for row in rows if row.name in results},
            "verified": verified,
            "how": self.device.how,
            "seconds": round(time.perf_counter() - begin, 2),
        }
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")

    def check(self, loop: Loop, case: Case) -> None:
        """Warm the row up, and raise an error unless each call made one launch (if the device counts launches)."""
        before = self.device.launches(case)
        self.device.record(on=True)
        loop(WARMUP)
        self.device.synchronize()
        self.device.record(on=False)
        after = self.device.launches(case)
        if before is not None and after is not None and (seen := after - before) != WARMUP:
            raise RuntimeError(f"{WARMUP} calls made {seen} launches")

    def floor_of(self, context: Context) -> Loop:
        """Return the floor: a C loop that launches the binary of the bundle, or Triton's if there is no bundle."""
        library = floor.driver(self.device.library, self.folder, context.device)
        values = context.addresses
        if context.bundle is not None:
            from silo.bundle.reader import open_bundle

            bundle = open_bundle(context.bundle)
            artifact = bundle.kernel(context.case.kernel).variants[0].artifact
            launch, image = artifact.launch, bundle.blob(artifact.blob.sha256)
            names = [slot.name for slot in launch.layout]
            entry, threads, shared = launch.entry, launch.threads, launch.shared_bytes
        else:
            kernel = context.compiled
            metadata = kernel.metadata
            names = [*context.case.pointer_names, *context.case.integer_names, "", ""]
            entry, threads, shared = kernel.name, 32 * metadata.num_warps, metadata.shared
            image = kernel.asm["cubin"]
        # The value of a pointer fills its slot; for an integer the kernel reads the low half. Hidden parameters are 0.
        filled = [values.get(name, 0) for name in names]
        return floor.make(
            library,
            image,
            entry,
            grid=GRID,
            threads=threads,
            shared_bytes=shared,
            stream=context.stream,
            values=filled,
        ).burst


SAMPLES = ("wall", "cpu", "floor_wall", "floor_cpu")


class Gpu:
    """This machine's GPU, used through torch."""

    library = "libcuda.so.1"
    how = "asynchronous bursts; the figure is the median of the rounds' paired differences from the floor"

    def __init__(self, stream: str) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        self.stream = torch.cuda.Stream() if stream == "side" else torch.cuda.default_stream()
        torch.cuda.set_stream(self.stream)

    def context(self, case: Case, folder: Path) -> Context:
        """Return the case with its tensors on this device."""
        major, minor = self.torch.cuda.get_device_capability()
        tensors = {name: self.torch.zeros(ELEMENTS, device="cuda") for name in case.pointer_names}
        return Context(
            case,
            folder,
            stream=self.stream.cuda_stream,
            device=self.torch.cuda.current_device(),
            capability=10 * major + minor,
            tensors=tensors,
        )

    def launches(self, _case: Case) -> None:
        """Return None: a real driver does not count launches."""

    def record(self, *, on: bool) -> None:
        """Do nothing: a real driver records no launches."""

    def verify(self, row: Row, context: Context) -> str:
        """Capture three calls of the row into a graph; return ``ok`` if each launches the kernel once, else a text."""
        stream = self.torch.cuda.Stream()
        try:
            with self.torch.cuda.stream(stream):
                loop = loop_of(row.prepare(replace(context, stream=stream.cuda_stream)))
                loop(2)  # first calls may do work that a graph cannot capture
                self.torch.cuda.synchronize()
                seen = captured(stream.cuda_stream, lambda: loop(3))
            row.prepare(context)  # some libraries keep the last stream, so the row's own is set again
        except Exception as error:  # noqa: BLE001  # what a peer raises is a result
            return f"not known: {type(error).__name__}: {error}"[:300]
        right = seen == [Launched(GRID, (THREADS, 1, 1))] * 3
        return "ok" if right else f"three calls launched {seen}"

    def synchronize(self) -> None:
        """Wait until everything launched is done."""
        self.torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--burst", type=int, required=True)
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--stream", choices=("default", "side"), default="default")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--stub", action="store_true")
    parser.add_argument("--fork", action="store_true")
    Run(parser.parse_args()).run()
    # Skips the teardown of other libraries, which is not measured and sometimes fails.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

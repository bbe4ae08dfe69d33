"""Honest kernels before the judge: ``python -m tests.fuzz.honest FIRST COUNT --jobs N`` prints each that is refused.

The kernels are random ones of this folder, and written ones with numpy's references (``honest_kernels``). A random
kernel's reference is Silo's reference code, run over the same arrays in this process. Kernels of which two pointers
reach one storage are left out: a case of a task has arrays of their own memory. So are those with a masked load that
has no ``other=``: a result that depends on it is undefined, which is a fault that the judge has to find.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import silo
from silo.core.host_arrays import numpy_dtype
from silo.core.values import dtype
from silo.errors import SiloError
from silo.judging.cascade import Judge, Submission
from silo.judging.job_processes import JobProcesses
from silo.judging.task import Task
from silo.judging.verdict import Verdict

from .batch import compile_parts, part_of
from .honest_kernels import WRITTEN
from .inputs import Memory, contents
from .kinds import KINDS
from .launches import Scratch, launch
from .lowered import arguments_of, lower
from .profiles import generate
from .program import Kernel

PROFILES = ("elementwise", "reduce", "general", "loop", "memory", "control", "shape", "scan", "call")


def main(words: list[str]) -> int:
    """Judges the kernels, and returns 1 if more than two of a thousand are refused."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.honest")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(words)
    begin = time.monotonic()
    rows: list[dict[str, Any]] = []
    with JobProcesses() as processes, ThreadPoolExecutor(asked.jobs) as threads:
        found = threads.map(lambda one: _judged(one[0], one[1], one[2], processes), _kernels(asked.first, asked.count))
        for name, verdict in found:
            rows.append({"name": name, **verdict.to_json()})
            if not verdict.accepted:
                print(f"{name}: {verdict}", flush=True)
            if len(rows) % 100 == 0:
                print(f"{len(rows)} judged, {sum(not row['accepted'] for row in rows)} refused", flush=True)
    refused = sum(not row["accepted"] for row in rows)
    seconds = time.monotonic() - begin
    cpu = sum(row["figures"].get("cpu_s", 0.0) for row in rows)
    each = cpu / max(len(rows), 1)
    print(f"{len(rows)} honest kernels, {refused} refused, {seconds:.0f} s, {each:.2f} s of a CPU each")
    if asked.json:
        asked.json.write_text(json.dumps(rows))
    return int(refused * 500 > len(rows))


def _judged(name: str, task: Task, text: str, processes: JobProcesses) -> tuple[str, Verdict]:
    with Judge(task, device=None, processes=processes) as judge:
        return name, next(iter(judge.judge([Submission(name, text)], jobs=1)))


def _kernels(first: int, count: int) -> Iterator[tuple[str, Task, str]]:
    """Names, tasks and texts: the written kernels first, then random ones."""
    given = 0
    for name, (task, text) in list(WRITTEN.items())[:count] if first == 0 else ():
        given += 1
        yield name, task, text
    seed = first
    while given < count:
        kernel = generate(seed, PROFILES[seed % len(PROFILES)])
        seed += 1
        made = _task(kernel)
        if made is not None:
            given += 1
            yield f"{kernel.profile} {kernel.seed}", made[0], made[1]


def _task(kernel: Kernel) -> tuple[Task, str] | None:
    """The task that a random kernel answers, and its text; None if the kernel is not one for a task."""
    pointers = [one for one in kernel.parameters if one.pointer]
    loads = [line for line in kernel.text().splitlines() if "tl.load(" in line]
    if any(line.count("mask=") > line.count("other=") for line in loads):
        return None
    if len({one.storage for one in pointers}) != len(pointers) or any(kernel.start(one) for one in pointers):
        return None
    filled = contents(kernel)
    after = _reference(kernel, filled)
    if after is None or not pointers:
        return None
    changed = {name for name, array in after.items() if array.tobytes() != filled[name].tobytes()}
    if not any(one.storage in changed for one in pointers):
        return None

    def function(draw):
        arguments: dict[str, Any] = {}
        for one in kernel.parameters:
            if not one.pointer:
                arguments[one.name] = int(one.value)
                continue
            element, content = KINDS[one.kind].library.removeprefix("torch."), filled[one.storage]
            values = lambda rng, shape, element=element, content=content: _typed(content, element)  # noqa: E731
            make = draw.inout if one.storage in changed else draw.array
            arguments[one.name] = make(content.size, dtype=element, values=values)
        typed = {
            one.name: _typed(after[one.storage], KINDS[one.kind].library) for one in pointers if one.storage in changed
        }
        return draw.case(lambda: typed, **arguments)

    text = f"import silo, triton\nimport triton.language as tl\n\n{kernel.text()}\n"
    text += f"judged = silo.kernel(kernel, grid={kernel.grid!r})\n"
    made = silo.task(cases=4, values=("normal",), steps=1 << 30, programs=1 << 20)(function)
    return made, text


def _typed(content: np.ndarray, element: str) -> np.ndarray:
    return content.view(numpy_dtype(dtype(element)))


def _reference(kernel: Kernel, filled: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    memory = Memory(kernel, filled)
    try:
        arguments = arguments_of(kernel, memory.arrays)
        addresses = {name: one.ctypes.data for name, one in arguments.items() if isinstance(one, np.ndarray)}
        part = part_of(lower(kernel, addresses), "reference", 0, contract=False)
        (loaded,) = compile_parts([part], contract=False, optimize=False)
        if isinstance(loaded, str):
            return None
        launch(kernel, loaded, arguments, [Scratch(loaded.launch.scratch_bytes)])
        return memory.copies()
    except SiloError:
        return None
    finally:
        memory.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""The time of a launch on the CPU: nanoseconds for a kernel that does nothing, as the minimum over bursts.

Run with ``python -m bench.launch.cpu``; ``--json FILE`` also writes the numbers. The minimum over bursts of about a
millisecond is repeatable on a shared machine; means are not.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from silo.core.signature import Parameter, ParameterKind, Signature
from silo.launch import native
from silo.launch.native import threads
from silo.launch.runtime import Binding, make_launcher

SOURCE = """
#include <stdint.h>
int32_t nop(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end, void *scratch, void *context) {
    (void)params, (void)grid, (void)begin, (void)end, (void)scratch, (void)context;
    return 0;
}
"""


def load_nop() -> native.LoadedKernel:
    """Compile and return a kernel that does nothing."""
    compiler = shutil.which("cc") or "gcc"
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "nop.c"), Path(folder, "nop.so")
        source.write_text(SOURCE, encoding="utf-8")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(output)], check=True)
        return native.LoadedKernel(native.CpuModule(output.read_bytes()), "nop")


def minimum_ns(call: Callable[[], object], bursts: int, number: int) -> float:
    """Return the nanoseconds of a call, without the time of the loop itself."""
    best = empty = float("inf")
    for _ in range(bursts):
        begin = time.perf_counter_ns()
        for _ in range(number):
            pass
        empty = min(empty, (time.perf_counter_ns() - begin) / number)
        begin = time.perf_counter_ns()
        for _ in range(number):
            call()
        best = min(best, (time.perf_counter_ns() - begin) / number)
    return best - empty


def arrays(library: str, count: int) -> list[object]:
    if library == "torch":
        import torch  # imported only if torch's arrays are measured

        return [torch.empty(1024) for _ in range(count)]
    if library == "numpy":
        import numpy as np

        return [np.empty(1024, dtype=np.float32) for _ in range(count)]
    return [4096 * (index + 1) for index in range(count)]


def launch(launcher: native.Launcher, grid: tuple[int], arguments: tuple[object, ...]) -> None:
    launcher[grid](*arguments)


def measure(bursts: int) -> dict[str, dict[str, float]]:
    """Return the nanoseconds of a launch, by row and by the kernel's arguments."""
    loaded = load_nop()
    table: dict[str, dict[str, float]] = {}
    shapes = {"1 array": (1, 0), "5 arrays + 3 ints": (5, 3), "12 arrays + 8 ints": (12, 8)}
    for label, (pointers, integers) in shapes.items():
        pointer_names = [f"p{index}" for index in range(pointers)]
        names = [*pointer_names, *(f"n{index}" for index in range(integers))]
        for library in ("numpy", "torch", "address"):
            kind = ParameterKind.POINTER if library == "address" else ParameterKind.ANY
            signature = Signature(tuple(Parameter(n, kind if n in pointer_names else ParameterKind.ANY) for n in names))
            try:
                arguments = (*arrays(library, pointers), *range(2, 2 + integers))
            except ImportError:
                continue
            for release in (True, False):
                launcher = make_launcher(
                    "nop", signature, on_miss=lambda _: Binding(loaded, (), {}), release_gil=release
                )
                held = "" if release else ", GIL held"
                for what, grid in (("one program", (1,)), ("empty grid", (0,))):
                    row = table.setdefault(f"{library}, {what}{held}", {})
                    row[label] = minimum_ns(partial(launch, launcher, grid, arguments), bursts, 500)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bursts", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with threads(1):
        table = measure(options.bursts)
    columns = list(next(iter(table.values())))
    print(f"{'ns per launch, 1 thread':34}" + "".join(f"{column:>20}" for column in columns))
    for name, row in table.items():
        print(f"{name:34}" + "".join(f"{row[column]:20.0f}" for column in columns))
    if options.json:
        machine = {"machine": platform.machine(), "python": platform.python_version(), "system": platform.platform()}
        options.json.write_text(json.dumps({"machine": machine, "ns": table}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

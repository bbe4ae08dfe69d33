"""The cost of a call from Python through TVM-FFI and through torch, beyond the launch itself.

    python -m bench.cpp.frameworks [--json FILE] [--rounds N] [--burst N]

Builds the export of the examples' kernel ``add`` (three arrays and a number) with operators of torch. Every round
measures a burst of each way to call the kernel over 16 elements, and a burst of launches in a C loop. The figures are
medians of the rounds' paired differences. A function of TVM-FFI that does nothing, called with the same arrays, shows
the time of TVM-FFI itself. Needs apache-tvm-ffi, torch and numpy.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from bench.cpp import programs  # noqa: E402
from bench.cpp.report import Bar, judge  # noqa: E402
from bench.machine import describe, save  # noqa: E402
from bench.paired import Estimate, differences, median_interval  # noqa: E402

ELEMENTS = 16  # one program of the kernel, which the calling thread runs
LAUNCH = "a loop of C"
NAME = "framework_bench"
BARS = tuple(Bar(f"TVM-FFI, {arrays}", "over the launch", 400, "ns") for arrays in ("numpy", "torch"))


def build(folder: Path) -> tuple[Path, Path, Path]:
    """Build and return the paths of the exported library, its operators of torch, and frameworks.c as a library."""
    from silo.commands.build_bundle import build_bundle
    from silo.commands.export_bundle import ExportOptions, export_cpp
    from silo.export.wheel import built_libraries

    bundle, made = folder / "add.silo", folder / "export"
    build_bundle([ROOT / "examples" / "kernels.py"], bundle, targets=["cpu"], kernels=["add"], tune="off")
    export_cpp(bundle, made, ExportOptions(namespace=NAME, tests=False, torch=True))
    library, operators = built_libraries(made, NAME, folder / "build", torch=True)
    own = folder / "frameworks.so"
    words = [programs.compiler(), "-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wconversion"]
    includes = [f"-I{made / 'silo'}", f"-I{made / 'frameworks'}"]
    subprocess.run([*words, *includes, str(Path(__file__).with_suffix(".c")), "-o", str(own)], check=True)
    return library, operators, own


def ways(library: Path, operators: Path, own: Path) -> dict[str, Callable[[int], float]]:
    """Return a function for each way to call the kernel: it makes N calls and returns the nanoseconds of one."""
    import numpy as np
    import torch

    tvm_ffi = import_module("tvm_ffi")
    arrays = [np.ones(ELEMENTS, np.float32) for _ in range(3)]
    tensors = [torch.from_numpy(one) for one in arrays]
    kept = [tvm_ffi.from_dlpack(one) for one in arrays]
    loaded = ctypes.CDLL(str(library))
    offered = loaded[f"{NAME}_framework"]
    offered.restype = ctypes.c_void_p
    loop = ctypes.CDLL(str(own)).launches
    loop.argtypes = [*([ctypes.c_void_p] * 4), ctypes.c_int64]
    loop.restype = ctypes.c_int64
    table, addresses = offered(), [one.ctypes.data for one in arrays]
    add = tvm_ffi.load_module(str(library))["add"]
    nothing = tvm_ffi.load_module(str(own))["nothing"]
    torch.ops.load_library(operators)
    operator = getattr(torch.ops, NAME).add.default

    def in_c(count: int) -> float:
        taken = loop(table, *addresses, count)
        assert taken >= 0
        return taken / count

    def calls(function: Any, x: Any, y: Any, out: Any) -> Callable[[int], float]:
        def measure(count: int) -> float:
            turns = range(count)
            start = time.perf_counter_ns()
            for _ in turns:
                function(x, y, out, ELEMENTS)
            return (time.perf_counter_ns() - start) / count

        return measure

    found: dict[str, Callable[[int], float]] = {LAUNCH: in_c}
    for name, given in (("numpy", arrays), ("torch", tensors), ("its own tensors", kept)):
        found[f"TVM-FFI, {name}"] = calls(add, *given)
        found[f"TVM-FFI, {name}, a function that does nothing"] = calls(nothing, *given)
    found["operator of torch"] = calls(operator, *tensors)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cpp.frameworks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--burst", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="silo-frameworks-") as folder:
        rows = ways(*build(Path(folder)))
        samples: dict[str, list[float]] = {name: [] for name in rows}
        for number in range(options.rounds + 1):
            for name, measure in rows.items():
                taken = measure(options.burst)
                if number > 0:  # the first burst of each way chooses the variant and loads it
                    samples[name].append(taken)
    calls = {name: median_interval(one) for name, one in samples.items()}
    over: dict[str, Estimate] = {
        name: median_interval(differences(one, samples[LAUNCH])) for name, one in samples.items() if name != LAUNCH
    }
    verdicts = judge({(name, "over the launch"): one.median for name, one in over.items()}, BARS)
    print(f"{'ns a call, median of rounds':50}{'call':>10}{'over the launch':>26}")
    for name, one in calls.items():
        beyond = over.get(name)
        told = "" if beyond is None else f"{beyond.median:.0f} [{beyond.low:.0f}, {beyond.high:.0f}]"
        print(f"{name:50}{one.median:>10.0f}{told:>26}")
    for one in verdicts:
        word = {True: "pass", False: "FAIL", None: "not measured"}[one.passed]
        print(f"  {word:13}{one.bar.subject}: {one.value or 0:.0f} (at most {one.bar.limit:g} {one.bar.unit})")
    if options.json is not None:
        figures = {name: {"call": asdict(one)} for name, one in calls.items()}
        for name, one in over.items():
            figures[name]["over the launch"] = asdict(one)
        bars = [{**asdict(one.bar), "value": one.value, "passed": one.passed} for one in verdicts]
        save(options.json, describe(), {"rounds": options.rounds, "figures": figures, "bars": bars})
    return 0


if __name__ == "__main__":
    sys.exit(main())

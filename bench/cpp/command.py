"""The cost of a launch from C, and the time until a fresh process has its first result.

    python -m bench.cpp [--json FILE] [--stub | --gpu] [--rounds N] [--repeats N] [--quick]

Builds libsilo and two C programs with the system's C compiler. The first program measures, in turns, a burst of calls
of silo_launch and an equal burst of the floor: a C loop without Silo (it calls the kernel's entry on the CPU,
cuLaunchKernelEx on a GPU). The figures are medians of the rounds' paired differences and ratios. The second program is
started anew for every sample, and measures from silo_open to the first result. --gpu measures this machine's NVIDIA GPU
too. --stub replaces the GPU's driver by one that returns at once, so that only libsilo's own time is in the figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from bench.cpp import programs, report  # noqa: E402
from bench.cpp.bundles import ADD  # noqa: E402
from bench.launch import stub as launch_stub  # noqa: E402
from bench.launch.cases import CASES, GRID  # noqa: E402
from bench.machine import describe, save  # noqa: E402
from silo.settings import child_environment  # noqa: E402

ELEMENTS = 1 << 16
TYPED = "add by an export; floor: silo_launch"
CASE = next(case for case in CASES if case.key == "5+3")


def floor_arguments(bundle: Path, folder: Path, library: str) -> list[str]:
    """Return the program's arguments for a launch without Silo: library, code file, entry and launch numbers."""
    from silo.bundle.reader import open_bundle

    with open_bundle(bundle) as opened:
        artifact = opened.kernel(CASE.kernel).variants[0].artifact
        image = folder / f"{bundle.stem}.code"
        image.write_bytes(opened.blob(artifact.blob.sha256))
    info = artifact.launch
    numbers = (info.threads, info.shared_bytes, len(info.layout), GRID[0])
    return [library or "-", str(image), info.entry, *map(str, numbers)]


def launch_samples(
    folder: Path, environment: dict[str, str], rounds: int, burst: int, library: str | None
) -> dict[str, dict[str, list[float]]]:
    """Return the C programs' samples, by row and kind of call ("launch", "floor", "empty"): nanoseconds a call."""
    program = str(folder / "launches")
    integers = ",".join(map(str, CASE.integer_values().values()))
    counts = [str(rounds), str(burst)]
    call = [CASE.kernel, str(CASE.pointers), integers, *counts]
    nop = folder / "nop.silo"
    rows = {
        "add on the CPU": [program, "cpu", str(folder / "demo.silo"), ADD, "3", "1024", *counts],
        f"{CASE.key} on the CPU": [program, "cpu", str(nop), *call, *floor_arguments(nop, folder, "")],
    }
    if library is not None:
        nop = folder / "nop-gpu.silo"
        rows[f"{CASE.key} on the GPU"] = [program, "cuda", str(nop), *call, *floor_arguments(nop, folder, library)]
    samples = {name: programs.measured(command, environment) for name, command in rows.items()}
    # The cost that the typed header adds: calls through the header, with silo_launch as their floor.
    typed = programs.measured([str(folder / "calls"), *counts], environment)
    named = {"launch": "typed launch", "floor": "plain launch", "empty": "typed empty"}
    samples[TYPED] = {name: typed[printed] for name, printed in named.items()}
    return samples


def first_samples(
    folder: Path, environment: dict[str, str], repeats: int, library: str | None, *, stub: bool
) -> dict[str, list[dict[str, Any]]]:
    """Run fresh processes in turns. Return, for each row, the steps that each process measured, in nanoseconds."""
    on_cpu, on_gpu = [str(folder / "first"), "cpu"], [str(folder / "first"), "cuda"]
    kernel = [ADD, str(ELEMENTS)]
    rows = {
        "demo bundle on the CPU": [*on_cpu, str(folder / "demo.silo"), *kernel],
        "1,000 variants on the CPU": [*on_cpu, str(folder / "thousand.silo"), *kernel],
        "export on the CPU": [str(folder / "calls"), "1", "1"],
    }
    if library is not None:
        rows["demo bundle on the GPU"] = [*on_gpu, str(folder / "demo-gpu.silo"), *kernel, library]
        rows["1,000 variants on the GPU"] = [*on_gpu, str(folder / "thousand-gpu.silo"), *kernel, library]
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
    for number in range(repeats + 1):
        for name, command in rows.items():
            made = programs.measured(command, environment)
            if not made.pop("right") and not (stub and "cuda" in command):  # the stub driver computes nothing
                raise programs.ProgramError(f"{name}: the result is wrong")
            made = {step: value for step, value in made.items() if not isinstance(value, list)}
            if number > 0:  # the first process only brings the files into the page cache
                samples[name].append(made)
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cpp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to keep the results; bench/results/cpp-<machine>.json")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--gpu", action="store_true", help="measure the NVIDIA GPU at hand too")
    where.add_argument("--stub", action="store_true", help="measure over a driver that returns at once too")
    parser.add_argument("--rounds", type=int, help="200; with --quick 20")
    parser.add_argument("--burst", type=int, default=400, help="launches a burst; below the depth of a GPU's queue")
    parser.add_argument("--repeats", type=int, help="fresh processes a row: 21; with --quick 3")
    parser.add_argument("--quick", action="store_true", help="few rounds and processes, for a look")
    parser.add_argument("--bundles", type=Path, help="a folder for the bundles, which are made where they are absent")
    options = parser.parse_args()
    rounds = options.rounds or (20 if options.quick else 200)
    repeats = options.repeats or (3 if options.quick else 21)
    with tempfile.TemporaryDirectory(prefix="silo-cpp-") as text:
        folder = Path(text)
        environment = child_environment(SILO_HOME=str(folder / "home"), SILO_TUNE="off")
        environment["PYTHONPATH"] = ":".join(
            filter(None, [str(ROOT / "src"), str(ROOT), environment.get("PYTHONPATH")])
        )
        library = "libcuda.so.1" if options.gpu else None
        if options.stub:
            built = launch_stub.build(folder)
            library = str(built)
            environment.update(launch_stub.environment(built))
        made = programs.library(folder)
        for name in ("launches", "first"):
            programs.program(folder, name)
        bundles = options.bundles or folder
        bundles.mkdir(parents=True, exist_ok=True)
        wanted = "thousand.silo" if library is None else "thousand-gpu.silo"
        if not (bundles / wanted).exists():
            command = [sys.executable, "-m", "bench.cpp.bundles", str(bundles), *(["cuda"] if library else [])]
            programs.run(command, limit_s=600, environment=environment)
        for path in bundles.glob("*.silo"):
            if bundles != folder:
                (folder / path.name).symlink_to(path.resolve())
        programs.export_program(folder, folder / "demo.silo", ADD, environment)
        fresh = {**environment, "SILO_HOME": str(folder / "empty")}
        launched = launch_samples(folder, fresh, rounds, options.burst, library)
        first = first_samples(folder, fresh, repeats, library, stub=options.stub)
        size = {name: value for name, value in asdict(made).items() if name != "path"}
    kernels = {name: report.launches(samples) for name, samples in launched.items()}
    processes = {name: report.firsts(samples) for name, samples in first.items()}
    bars = (*report.LIBRARY_BARS, *report.CPU_BARS, *(report.GPU_BARS if options.gpu else ()))
    verdicts = report.judge(report.values(size, kernels, processes), bars)
    machine = describe()
    print(
        f"{machine.get('gpu', {}).get('name', 'no GPU')}, {machine['cpu']}, load {machine['load_average'][0]}, ", end=""
    )
    print(f"{rounds} rounds of {options.burst} launches, {repeats} processes a row" + ", stub driver" * options.stub)
    print("\n".join(report.lines(size, kernels, processes, verdicts)))
    if options.json:
        method = {"rounds": rounds, "burst": options.burst, "repeats": repeats, "stub": options.stub, "unit": "ns"}
        body = {"library": size, "launches": launched, "processes": first, "milliseconds": processes}
        save(options.json, machine, {"bench": "cpp", **method, **body, **report.document(kernels, verdicts)})
    return 0 if all(one.passed is not False for one in verdicts) else 1

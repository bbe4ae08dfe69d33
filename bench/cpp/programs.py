"""Builds libsilo and the benchmark's C programs with the system's compiler, runs them, and reads their output."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "native"
CORE = NATIVE / "core"
FLOOR = ROOT / "bench" / "launch" / "floor.c"
WARNINGS = ["-Wall", "-Wextra", "-Wconversion"]
LIBRARY = ["-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-plt", "-D_GNU_SOURCE"]
EXPORT = "engine"  # the namespace of the export, and its folder
SHARED = ["-shared", "-DSILO_EXPORTS", "-Wl,-z,nodelete", "-Wl,-z,relro", "-Wl,-soname,libsilo.so.0"]


class ProgramError(RuntimeError):
    """Raised if a program cannot be built, or fails."""


@dataclass(frozen=True)
class Library:
    """The stripped shared library, as it is shipped, with the CPU and wall seconds that one core took to build it."""

    path: Path
    bytes: int
    cpu_s: float
    wall_s: float
    by: str


def compiler(name: str = "cc") -> str:
    """Return the path of the system's C compiler, or with ``c++`` of its C++ compiler."""
    names = {"cc": ("gcc", "cc", "clang"), "c++": ("g++", "c++", "clang++")}[name]
    found = next((path for one in names if (path := shutil.which(one))), None)
    if found is None:
        raise ProgramError(f"no compiler ({', '.join(names)})")
    return found


def library(folder: Path) -> Library:
    """Build and strip the shared library: by its CMake project, or by the compiler alone if CMake is missing.

    CMake builds on one core.
    """
    output, cmake = folder / "libsilo.so.0", shutil.which("cmake")
    before, begin = _children_s(), time.perf_counter()
    if cmake is not None:
        build = folder / "build"
        run([cmake, "-S", str(NATIVE), "-B", str(build), "-DSILO_STATIC=OFF", "-DSILO_ZSTD=OFF"])
        before, begin = _children_s(), time.perf_counter()
        run([cmake, "--build", str(build), "--parallel", "1"], limit_s=300)
        shutil.copy(build / "libsilo.so", output)
    else:
        sources = sorted(str(path) for path in CORE.glob("*.c"))
        run([compiler(), *LIBRARY, *SHARED, *sources, "-o", str(output), "-ldl", "-lm", "-pthread"], limit_s=300)
    cpu_s, wall_s = _children_s() - before, time.perf_counter() - begin
    run(["strip", "--strip-unneeded", str(output)])
    return Library(output, output.stat().st_size, cpu_s, wall_s, "cmake" if cmake else "compiler alone")


def program(folder: Path, name: str) -> Path:
    """Compile ``name``.c against the shared library in the folder; return the program's path."""
    output = folder / name
    sources = [str(HERE / f"{name}.c"), str(FLOOR), str(folder / "libsilo.so.0")]
    flags = ["-std=gnu11", "-O2", f"-I{CORE}", f"-Wl,-rpath,{folder}"]
    run([compiler(), *flags, *WARNINGS, *sources, "-o", str(output), "-ldl"])
    return output


def export_program(folder: Path, bundle: Path, kernel: str, environment: dict[str, str]) -> Path:
    """Export one kernel's CPU code, and compile ``calls.cpp`` with it by the commands of the export's README."""
    made, output = folder / EXPORT, folder / "calls"
    words = [sys.executable, "-m", "silo", "export", str(bundle), "--cpp", str(made), "--namespace", EXPORT]
    run([*words, "--kernels", kernel, "--targets", "cpu", "--no-tests"], environment=environment)
    objects = folder / "objects"
    objects.mkdir()
    sources = [*sorted(str(path) for path in (made / "silo").glob("*.c")), str(made / f"{EXPORT}.c")]
    run([compiler(), *LIBRARY, f"-I{made}", "-Wa,-I," + str(made), "-c", *sources], folder=objects)
    compiled = sorted(str(path) for path in objects.glob("*.o"))
    flags = ["-std=c++17", "-O2", f"-I{made}", *WARNINGS]
    run([compiler("c++"), *flags, str(HERE / "calls.cpp"), *compiled, "-o", str(output), "-ldl", "-lm", "-pthread"])
    return output


def run(
    command: Sequence[str],
    *,
    limit_s: float = 120,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Run a command and return its standard output. ProgramError has the end of its standard error if it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=limit_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProgramError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise ProgramError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def measured(command: Sequence[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a program and return the JSON object on its last line."""
    return json.loads(run(command, environment=environment).splitlines()[-1])


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

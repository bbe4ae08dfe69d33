"""The floor of every launch: a C loop over ``cuLaunchKernelEx``, built here with the system's C compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("floor.c")


class FloorError(RuntimeError):
    """Raised if the floor cannot be built, or if the driver is missing or refuses a call."""


@dataclass(frozen=True)
class Floor:
    """A loaded kernel with its arguments, ready to be launched from C."""

    library: ctypes.CDLL
    function: int
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    stream: int
    values: tuple[int, ...]

    def burst(self, launches: int) -> tuple[int, int]:
        """Make ``launches`` launches; return the nanoseconds of wall time and of the thread's CPU time."""
        slots = (ctypes.c_uint64 * max(1, len(self.values)))(*self.values)
        out = (ctypes.c_uint64 * 2)()
        code = self.library.floor_burst(
            ctypes.c_void_p(self.function),
            (ctypes.c_uint32 * 3)(*self.grid),
            self.threads,
            self.shared_bytes,
            ctypes.c_void_p(self.stream),
            slots,
            len(self.values),
            launches,
            out,
        )
        _check(code, "cuLaunchKernelEx")
        return out[0], out[1]


@cache
def driver(path: str, folder: Path, device: int = 0) -> ctypes.CDLL:
    """Build floor.c in ``folder``, and open the driver at ``path`` in it; return the library."""
    output = folder / "floor.so"
    compiler = next((name for name in ("gcc", "cc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise FloorError("no C compiler (gcc, cc or clang) to build the floor with")
    command = [compiler, "-O2", "-std=gnu11", "-shared", "-fPIC", str(SOURCE), "-o", str(output), "-ldl"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise FloorError(f"{' '.join(command)}: {result.stderr.strip()}")
    library = ctypes.CDLL(str(output))
    _check(library.floor_open(path.encode(), device), f"opening {path}")
    return library


def load(library: ctypes.CDLL, image: bytes, entry: str) -> int:
    """Load a kernel and return its handle; its module stays loaded."""
    function = ctypes.c_void_p()
    _check(library.floor_load(image, entry.encode(), ctypes.byref(function)), f"loading {entry}")
    return function.value or 0


def make(
    library: ctypes.CDLL,
    image: bytes,
    entry: str,
    *,
    grid: tuple[int, int, int],
    threads: int,
    shared_bytes: int,
    stream: int,
    values: Sequence[int],
) -> Floor:
    """Load a kernel and return its floor. ``values`` has one integer for each parameter, hidden parameters included."""
    return Floor(library, load(library, image, entry), grid, threads, shared_bytes, stream, tuple(values))


def _check(code: int, what: str) -> None:
    if code:
        raise FloorError(f"{what}: " + ("the library lacks a function" if code == -1 else f"CUDA error {code}"))

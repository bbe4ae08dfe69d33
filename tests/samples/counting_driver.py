"""A libcuda that counts its launches (``tests/native/counting_cuda.c``): builds it, and reads its counts."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "native" / "counting_cuda.c"


def build(folder: Path) -> Path | None:
    """Build the library and return its path, for the setting ``SILO_CUDA_LIBRARY``; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    (folder / "named").mkdir()
    named, made = folder / "named" / "libcuda.so.1", folder / "libcounting_cuda.so"
    shared = [compiler, "-shared", "-fPIC", "-O1"]
    subprocess.run([*shared, "-Wl,-soname,libcuda.so.1", "-o", str(named), "-x", "c", "/dev/null"], check=True)
    linked = ["-Wl,--no-as-needed", str(named), "-ldl"]
    subprocess.run([*shared, "-std=c11", "-o", str(made), str(SOURCE), *linked], check=True)
    return made


class Counts:
    """The counts of the library in a process that has loaded it."""

    def __init__(self, library: str) -> None:
        loaded = ctypes.CDLL(library)
        self._launches = ctypes.c_int64.in_dll(loaded, "counted_launches")
        self._captured = ctypes.c_int64.in_dll(loaded, "counted_captured")

    @property
    def launches(self) -> int:
        """The number of all launches."""
        return self._launches.value

    @property
    def captured(self) -> int:
        """The number of launches into a stream that is being captured into a graph."""
        return self._captured.value

"""A libcuda that counts its launches (``tests/native/counting_cuda.c``): building it, and reading its counts."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "native" / "counting_cuda.c"


def build(folder: Path) -> Path | None:
    """The library, which the setting ``SILO_CUDA_LIBRARY`` names; None without a C compiler."""
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
    """What a process that loaded the library has counted."""

    def __init__(self, library: str) -> None:
        loaded = ctypes.CDLL(library)
        self._launches = ctypes.c_int64.in_dll(loaded, "counted_launches")
        self._captured = ctypes.c_int64.in_dll(loaded, "counted_captured")

    @property
    def launches(self) -> int:
        """Every launch."""
        return self._launches.value

    @property
    def captured(self) -> int:
        """Launches into a stream that is captured into a graph."""
        return self._captured.value

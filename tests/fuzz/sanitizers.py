"""The native module built with AddressSanitizer and UndefinedBehaviorSanitizer, and how Python runs with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

__all__ = ["NoSanitizersError", "build", "tree", "variables"]

ROOT = Path(__file__).resolve().parents[2]
_FLAGS = ("-std=c11", "-O1", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread")
_SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


class NoSanitizersError(Exception):
    """No gcc here, or one without its sanitizers."""


def _compiler() -> str:
    found = shutil.which("gcc")
    if found is None:
        raise NoSanitizersError("needs gcc and its sanitizers")
    return found


def build(output: Path, folder: Path, pattern: str) -> None:
    """Build the C files of a folder as one module of Python's, or as a library."""
    sources = sorted(str(path) for path in folder.glob(pattern))
    defines = (
        "-DPy_LIMITED_API=0x030b0000",
        "-D_GNU_SOURCE=1",
        f"-I{sysconfig.get_paths()['include']}",
        f"-I{ROOT / 'native' / 'core'}",
    )
    subprocess.run([_compiler(), *_FLAGS, *_SANITIZE, *defines, *sources, "-o", str(output), "-ldl"], check=True)


def variables() -> dict[str, str]:
    """What must be in the environment of a Python that loads what :func:`build` makes."""
    asked = subprocess.run([_compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    runtime = asked.stdout.strip()
    if not Path(runtime).is_absolute():
        raise NoSanitizersError("gcc has no libasan here")
    return {
        "LD_PRELOAD": runtime,
        # Python keeps memory to its end; a child of fork() needs its own handlers.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=64",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }


def tree(folder: Path) -> dict[str, str]:
    """A copy of the package whose native module is sanitized, and the environment in which every Python takes it."""
    shutil.copytree(ROOT / "src" / "silo", folder / "silo", ignore=shutil.ignore_patterns("_native*.so", "__pycache__"))
    build(folder / "silo" / "_native.abi3.so", ROOT / "native", "*/*.c")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return {**variables(), "PYTHONPATH": path}

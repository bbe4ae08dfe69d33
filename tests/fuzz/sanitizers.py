"""The native module built with AddressSanitizer and UndefinedBehaviorSanitizer, and how Python runs with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from native_builds import ADDRESS, CORE, archive, compile_with, compiled, shared_build, whole

__all__ = ["NoSanitizersError", "native_module", "stub_driver", "tree", "variables"]

ROOT = Path(__file__).resolve().parents[2]


class NoSanitizersError(Exception):
    """No gcc here, or one without its sanitizers."""


def _compiler() -> str:
    found = shutil.which("gcc")
    if found is None:
        raise NoSanitizersError("needs gcc and its sanitizers")
    return found


def native_module() -> Path:
    """``silo._native`` with the sanitizers: a file ``_native.abi3.so``."""
    _compiler()
    core = archive(ADDRESS)
    parts = [path for part in ("python", "frameworks") for path in sorted((ROOT / "native" / part).glob("*.[ch]"))]
    flags = (*ADDRESS, "-DPy_LIMITED_API=0x030b0000", f"-I{sysconfig.get_paths()['include']}", f"-I{CORE}")

    def make(folder: Path) -> None:
        objects = compiled(folder / "objects", [path for path in parts if path.suffix == ".c"], flags)
        output = folder / "_native.abi3.so"
        compile_with("-shared", *flags, *objects, *whole(core), "-o", output, "-ldl", "-lm", "-pthread")
        shutil.rmtree(folder / "objects")

    return shared_build("native-address", flags, [core, *parts], make) / "_native.abi3.so"


def stub_driver() -> Path:
    """The stub of the GPU drivers (``tests/native/stub_*.c``) with the sanitizers."""
    _compiler()
    sources = sorted((ROOT / "tests" / "native").glob("stub_*.[ch]"))

    def make(folder: Path) -> None:
        c_files = [path for path in sources if path.suffix == ".c"]
        compile_with("-shared", *ADDRESS, *c_files, "-o", folder / "libcuda.so.1", "-ldl", "-pthread")

    return shared_build("stub-address", ADDRESS, sources, make) / "libcuda.so.1"


def variables() -> dict[str, str]:
    """What must be in the environment of a Python that loads what :func:`native_module` builds."""
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
    shutil.copy(native_module(), folder / "silo" / "_native.abi3.so")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return {**variables(), "PYTHONPATH": path}

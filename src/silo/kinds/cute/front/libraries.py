"""The libraries that host code of the DSL calls, where this machine has them. Imports neither package."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

from silo.core.decisions import Rejected
from silo.kinds.cute.front.cute_installation import FFI_PACKAGE, INSTALL, PACKAGE

__all__ = ["RUNTIME", "folders_of", "runtime_library", "tvm_ffi_library"]

RUNTIME = "libcute_dsl_runtime.so"
_FLAVOUR = re.compile(r"cu([0-9]+)")


def runtime_library(driver_major: int | None = None) -> Path | Rejected:
    """The DSL's runtime library: the newest that a driver of this CUDA major supports, of all where that is not known.

    Every flavour has a library of the same names; it launches code of any toolkit that the driver takes.
    """
    folders = folders_of("nvidia_cutlass_dsl")
    found = {
        int(match.group(1)): path
        for folder in folders
        for path in folder.glob(f"cu*/lib/{RUNTIME}")
        if (match := _FLAVOUR.fullmatch(path.parent.parent.name))
    }
    if not found:
        return Rejected(f"{RUNTIME} is not installed: it comes with {PACKAGE}; {INSTALL}")
    fitting = [major for major in found if driver_major is None or major <= driver_major]
    if not fitting:
        return Rejected(
            f"{RUNTIME} is here for CUDA {' and '.join(map(str, sorted(found)))}, and the driver supports CUDA "
            f"{driver_major}: install a newer driver, or the flavour for it (pip install '{PACKAGE}')"
        )
    return found[max(fitting)]


def tvm_ffi_library() -> Path | Rejected:
    """The library of tvm-ffi."""
    for folder in folders_of("tvm_ffi"):
        for name in ("lib/libtvm_ffi.so", "libtvm_ffi.so"):
            if (path := folder / name).is_file():
                return path
    return Rejected(f"tvm-ffi is not installed: it is the package {FFI_PACKAGE}; {INSTALL}")


def folders_of(package: str) -> list[Path]:
    """Of an installed package, which is not imported."""
    try:
        spec = find_spec(package)
    except ValueError:  # a module without a spec stands in sys.modules
        spec = None
    if spec is None:
        loaded = getattr(sys.modules.get(package), "__path__", ())
        return [Path(one) for one in loaded]
    return [Path(one) for one in spec.submodule_search_locations or ()]

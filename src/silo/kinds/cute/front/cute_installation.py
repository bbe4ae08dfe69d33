"""The installed CuTe DSL: its version, the libraries of its host code, its lock, and missing parts for ``doctor``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from silo.core.decisions import Rejected
from silo.errors import ToolchainError
from silo.forks import Mutex
from silo.gc_pause import seldom_collected
from silo.sources.installations import Finding, parsed_version, version_of

__all__ = [
    "FFI_PACKAGE",
    "FRONT_END",
    "INSTALL",
    "OLDEST",
    "PACKAGE",
    "RUNTIME",
    "decorated_as",
    "dsl_module",
    "dsl_version",
    "findings",
    "folders_of",
    "runtime_library",
    "tvm_ffi_library",
    "versions",
]

# ---- The installed version. The DSL is imported only when needed, because importing takes 1 to 2 s ----

PACKAGE = "nvidia-cutlass-dsl"
FFI_PACKAGE = "apache-tvm-ffi"
OLDEST = (4, 6)
"""The first release whose packages have the layout that Silo expects."""

INSTALL = "pip install 'kernel-silo[cute]'"
"""The command that installs a missing part of the DSL."""


def dsl_version() -> str | None:
    """Returns the version of the DSL; None if it is not installed."""
    return version_of(PACKAGE)


def versions() -> Mapping[str, str]:
    """Returns the versions of the DSL's package and of tvm-ffi's, by package; a missing package is left out."""
    return {name: version for name in (PACKAGE, FFI_PACKAGE) if (version := version_of(name)) is not None}


def dsl_module(name: str = "cutlass.cute") -> Any:  # noqa: ANN401  # a module of an untyped package
    """Returns a module of the DSL. Raises ToolchainError if the DSL is missing, too old, or does not load."""
    version = dsl_version()
    if version is not None and parsed_version(version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ToolchainError(
            f"{PACKAGE} {version} is installed, and Silo needs {oldest} or later; install it: {INSTALL}"
        )
    try:
        with seldom_collected():
            return import_module(name)
    except ImportError as error:
        if version is None:
            raise ToolchainError(
                f"compiling CuTe kernels needs {PACKAGE}, which is not installed; install it: {INSTALL}"
            ) from error
        raise ToolchainError(f"{PACKAGE} {version} is installed and does not load: {error}") from error


def decorated_as(value: object) -> Literal["kernel", "jit"] | None:
    """Returns ``kernel`` for a function decorated with ``@cute.kernel``, ``jit`` for ``@cute.jit``; else None."""
    marks = getattr(value, "__dict__", {})
    kind = marks.get("_decorator_kind") if "_dsl_cls" in marks else None
    return kind if kind in ("kernel", "jit") else None


# ---- The DSL's front end is not thread-safe: this lock is held during every call of it ----

# ``cute.compile`` writes the options of one call to an object that all calls share. Two threads at once would compile
# for each other's target, or crash the process.
FRONT_END = Mutex()


# ---- The libraries that the DSL's host code calls. They are found without an import ----

RUNTIME = "libcute_dsl_runtime.so"
_FLAVOUR = re.compile(r"cu([0-9]+)")


def runtime_library(driver_major: int | None = None) -> Path | Rejected:
    """Returns the newest of the DSL's runtime libraries that a driver of this CUDA major version supports.

    None for ``driver_major``: the newest installed library. The libraries for different CUDA major versions have the
    same file name; each library launches code of any toolkit that the driver supports.
    """
    folders = folders_of("nvidia_cutlass_dsl")
    libraries = {
        int(match.group(1)): path
        for folder in folders
        for path in folder.glob(f"cu*/lib/{RUNTIME}")
        if (match := _FLAVOUR.fullmatch(path.parent.parent.name))
    }
    if not libraries:
        return Rejected(f"{RUNTIME} is not installed: it comes with {PACKAGE}; {INSTALL}")
    fitting = [major for major in libraries if driver_major is None or major <= driver_major]
    if not fitting:
        return Rejected(
            f"{RUNTIME} is here for CUDA {' and '.join(map(str, sorted(libraries)))}, and the driver supports CUDA "
            f"{driver_major}: install a newer driver, or the flavour for it (pip install '{PACKAGE}')"
        )
    return libraries[max(fitting)]


def tvm_ffi_library() -> Path | Rejected:
    """Returns the path of tvm-ffi's library, or the reason why it is missing."""
    for folder in folders_of("tvm_ffi"):
        for name in ("lib/libtvm_ffi.so", "libtvm_ffi.so"):
            if (path := folder / name).is_file():
                return path
    return Rejected(f"tvm-ffi is not installed: it is the package {FFI_PACKAGE}; {INSTALL}")


def folders_of(package: str) -> list[Path]:
    """Returns the folders of an installed package without importing it."""
    try:
        spec = find_spec(package)
    except ValueError:  # sys.modules holds a module without a spec
        spec = None
    if spec is None:
        loaded = getattr(sys.modules.get(package), "__path__", ())
        return [Path(location) for location in loaded]
    return [Path(location) for location in spec.submodule_search_locations or ()]


# ---- Missing parts of the CuTe DSL, with reasons, for ``silo doctor`` ----

_CUTE_FINDINGS_FLAVOUR = re.compile(re.escape(PACKAGE) + r"-libs-cu([0-9]+)")
_OPTIONAL = "optional"


def findings() -> Sequence[Finding]:
    """Returns findings on the CUDA versions of the DSL's libraries, and on packages needed by ``host="dsl"``.

    Empty if the DSL is not installed.
    """
    installed = _installed()
    if PACKAGE not in installed:
        return ()
    return (_flavours(installed), _host(installed))


def _installed() -> Mapping[str, str]:
    """Returns versions of the distributions of the DSL and of TVM-FFI."""
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"]).lower().replace("_", "-")
        if name.startswith(PACKAGE) or name == FFI_PACKAGE:
            versions.setdefault(name, distribution.version)
    return versions


def _flavours(installed: Mapping[str, str]) -> Finding:
    part = "CUDA of the CuTe DSL"
    version = installed[PACKAGE]
    majors = sorted(int(match.group(1)) for name in installed if (match := _CUTE_FINDINGS_FLAVOUR.fullmatch(name)))
    if not majors:
        return Finding(
            part,
            _OPTIONAL,
            f"{PACKAGE} {version} is installed without the libraries of a CUDA version",
            f"pip install '{PACKAGE}[cu13]=={version}', which also brings those for CUDA 12",
        )
    others = [
        f"{name} {other}"
        for name, other in sorted(installed.items())
        if name.startswith(f"{PACKAGE}-libs") and other != version
    ]
    if others:
        return Finding(
            part,
            _OPTIONAL,
            f"{PACKAGE} {version} beside {', '.join(others)}: parts of different versions do not work together",
            f"pip install --force-reinstall '{PACKAGE}[cu{majors[-1]}]=={version}'",
        )
    return Finding(part, "ok", " and ".join(f"cu{major}" for major in majors))


def _host(installed: Mapping[str, str]) -> Finding:
    part = 'CuTe kernels with host="dsl"'
    if FFI_PACKAGE not in installed:
        return Finding(part, _OPTIONAL, f"{FFI_PACKAGE} is not installed", f"pip install {FFI_PACKAGE}")
    runtime = runtime_library()
    if isinstance(runtime, Rejected):
        return Finding(
            part, _OPTIONAL, f"{RUNTIME} is not in the folder of {PACKAGE}", f"install {PACKAGE} again, whole"
        )
    return Finding(part, "ok", f"{FFI_PACKAGE} {installed[FFI_PACKAGE]}, {runtime}")

"""Which CuTe DSL is installed. Imports nothing of it before it is needed: that takes a second or two."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

from silo.errors import ToolchainError
from silo.gc_pause import seldom_collected
from silo.sources.package_versions import parsed_version, version_of

__all__ = [
    "FFI_PACKAGE",
    "INSTALL",
    "OLDEST",
    "PACKAGE",
    "decorated_as",
    "dsl_module",
    "dsl_version",
    "versions",
]

PACKAGE = "nvidia-cutlass-dsl"
FFI_PACKAGE = "apache-tvm-ffi"
OLDEST = (4, 6)
"""The first release whose packages lie as Silo expects."""

INSTALL = "pip install 'kernel-silo[cute]'"
"""The cure where something of it is missing."""


def dsl_version() -> str | None:
    """The version of the DSL; None where it is not installed."""
    return version_of(PACKAGE)


def versions() -> Mapping[str, str]:
    """Versions by package; without those that are not installed."""
    return {name: version for name in (PACKAGE, FFI_PACKAGE) if (version := version_of(name)) is not None}


def dsl_module(name: str = "cutlass.cute") -> Any:  # noqa: ANN401  # a module of a package that has no types
    """A module of the DSL. ToolchainError where the DSL is absent, too old, or does not load."""
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
    """What the DSL made of a function: ``kernel`` by ``@cute.kernel``, ``jit`` by ``@cute.jit``; None of others."""
    marks = getattr(value, "__dict__", {})
    kind = marks.get("_decorator_kind") if "_dsl_cls" in marks else None
    return kind if kind in ("kernel", "jit") else None

"""The installed jax: its version, the one lock for tracing, and missing parts for ``doctor``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.findings import Finding
from silo.errors import ToolchainError
from silo.forks import Mutex
from silo.sources.package_versions import parsed_version, version_of

__all__ = [
    "FRONT_END",
    "INSTALL",
    "NEWEST",
    "OLDEST",
    "PACKAGE",
    "PACKAGES",
    "findings",
    "jax_module",
    "jax_version",
    "usable",
    "versions",
]

# ---- Which jax is installed. Imports nothing of it before it is needed: that takes two to four seconds ----

PACKAGE = "jax"
PACKAGES = (PACKAGE, "jaxlib", "flatbuffers", "ml_dtypes")
OLDEST = (0, 10)
"""The first release whose Pallas has the names that Silo uses."""
NEWEST = (0, 12)
"""The last one that was tried; exported programs of a later one may be of a later calling convention."""

INSTALL = "pip install 'kernel-silo[pallas]'"
"""The cure where something of it is missing."""


def jax_version() -> str | None:
    """The version of jax; None where it is not installed."""
    return version_of(PACKAGE)


def versions() -> Mapping[str, str]:
    """Versions by package; without those that are not installed."""
    return {name: version for name in PACKAGES if (version := version_of(name)) is not None}


def usable() -> Decision:
    """Whether the jax that is installed can export Pallas kernels, without importing it."""
    version = jax_version()
    if version is None:
        return Rejected(f"compiling Pallas kernels needs {PACKAGE}, which is not installed; {INSTALL}")
    if not OLDEST <= parsed_version(version)[:2] <= NEWEST:
        oldest, newest = (".".join(map(str, one)) for one in (OLDEST, NEWEST))
        return Rejected(f"{PACKAGE} {version} is installed, and Silo knows {oldest} to {newest}; {INSTALL}")
    missing = [name for name in PACKAGES if version_of(name) is None]
    if missing:
        return Rejected(f"{PACKAGE} {version} is installed without {' and '.join(missing)}; {INSTALL}")
    return Accepted(f"{PACKAGE} {version}")


def jax_module(name: str = PACKAGE) -> Any:  # noqa: ANN401  # a module of a package whose types are not here everywhere
    """A module of jax. ToolchainError where jax is absent, of another version, or does not load."""
    decision = usable()
    if isinstance(decision, Rejected):
        raise ToolchainError(decision.reason)
    try:
        return import_module(name)
    except ImportError as error:
        raise ToolchainError(f"{PACKAGE} {jax_version()} is installed and does not load: {error}") from error


# ---- Tracing of jax as Silo does it: under one lock, for settings of jax are of the whole process or of a thread ----

# Source locations are switched off for a trace by a setting of the process; two threads would put back each other's.
FRONT_END = Mutex()
"""Held while a body is traced."""


# ---- What ``silo doctor`` says of the parts that Pallas kernels need. Imports none of them ----

_OPTIONAL = "optional"
_TPU_COMPILER = "the compiler for TPUs"


def findings() -> Sequence[Finding]:
    """Nothing where no jax is installed."""
    if jax_version() is None:
        return ()
    decision = usable()
    if isinstance(decision, Rejected):
        return (Finding("Pallas", _OPTIONAL, decision.reason, INSTALL),)
    libtpu = version_of("libtpu")
    if libtpu is None:
        reason = "libtpu is not installed: what is compiled for TPUs is exported, and not tried with their compiler"
        return (Finding(_TPU_COMPILER, _OPTIONAL, reason, "pip install 'jax[tpu]', of the jax that is here"),)
    return (Finding(_TPU_COMPILER, "ok", f"libtpu {libtpu}"),)

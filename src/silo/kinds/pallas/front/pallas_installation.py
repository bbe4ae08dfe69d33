"""The installed jax: its version, the lock for tracing, and missing parts for ``doctor``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import ToolchainError
from silo.forks import Mutex
from silo.sources.installations import Finding, parsed_version, version_of

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

# ---- The installed version. jax is imported only when needed, because importing takes two to four seconds ----

PACKAGE = "jax"
PACKAGES = (PACKAGE, "jaxlib", "flatbuffers", "ml_dtypes")
OLDEST = (0, 10)
"""The first release whose Pallas has the names that Silo uses."""
NEWEST = (0, 12)
"""The last tested release; programs exported by a later release may have a later calling convention."""

INSTALL = "pip install 'kernel-silo[pallas]'"
"""The command that installs jax and its parts, for messages."""


def jax_version() -> str | None:
    """Returns the version of jax; None if it is not installed."""
    return version_of(PACKAGE)


def versions() -> Mapping[str, str]:
    """Returns the versions of the installed packages, by package."""
    return {name: version for name in PACKAGES if (version := version_of(name)) is not None}


def usable() -> Decision:
    """Whether the installed jax can export Pallas kernels; does not import it."""
    version = jax_version()
    if version is None:
        return Rejected(f"compiling Pallas kernels needs {PACKAGE}, which is not installed; {INSTALL}")
    if not OLDEST <= parsed_version(version)[:2] <= NEWEST:
        oldest, newest = (".".join(map(str, bound)) for bound in (OLDEST, NEWEST))
        return Rejected(f"{PACKAGE} {version} is installed, and Silo knows {oldest} to {newest}; {INSTALL}")
    missing = [name for name in PACKAGES if version_of(name) is None]
    if missing:
        return Rejected(f"{PACKAGE} {version} is installed without {' and '.join(missing)}; {INSTALL}")
    return Accepted(f"{PACKAGE} {version}")


def jax_module(name: str = PACKAGE) -> Any:  # noqa: ANN401  # a module of a package that may be missing
    """Returns a module of jax. Raises ToolchainError if jax is missing, of an unsupported version, or does not load."""
    decision = usable()
    if isinstance(decision, Rejected):
        raise ToolchainError(decision.reason)
    try:
        return import_module(name)
    except ImportError as error:
        raise ToolchainError(f"{PACKAGE} {jax_version()} is installed and does not load: {error}") from error


# ---- The lock for tracing: settings of jax belong to the whole process or to a thread ----

# A trace turns off source locations and restores the setting afterwards. It belongs to the whole process: with two
# traces at once, one would save and restore the value that the other has set.
FRONT_END = Mutex()
"""The lock that a thread holds while it traces a body."""


# ---- Findings of ``silo doctor`` on the packages that Pallas kernels need. None of them is imported ----

_OPTIONAL = "optional"
_TPU_COMPILER = "the compiler for TPUs"


def findings() -> Sequence[Finding]:
    """Returns findings on jax and the compiler for TPUs; empty if jax is not installed."""
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

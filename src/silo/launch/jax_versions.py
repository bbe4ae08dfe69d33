"""The versions of jax that the hook points were tested with, and the decision about other versions."""

from __future__ import annotations

import logging
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import PackageError
from silo.launch.tested_releases import Releases

__all__ = ["ffi_version", "installed_version", "judge_ffi", "judge_version", "load_jax", "tested_versions"]

_log = logging.getLogger("silo")
# The third argument is the oldest release that has jax.ffi and jax.extend.core in the forms that Silo uses.
_JAX = Releases("jax", ("0.10", "0.12"), (0, 6), "in whose programs Silo can put kernels")
_FFI = (0, 3)  # the version of the header that native/python/xla_abi.h follows
_FFI_TESTED = (3, 5)  # minor versions of the interface in jax 0.10 and jax 0.12
_told: set[str] = set()


def tested_versions() -> tuple[str, ...]:
    """Returns the releases of jax that Silo's tests run with."""
    return _JAX.tested


def judge_version(version: str) -> Decision:
    """Returns whether programs of a version of jax can call kernels.

    The reason names the tested releases if the version is not one of them.

    >>> bool(judge_version("0.10.2")), bool(judge_version("0.4.30"))
    (True, False)
    """
    return _JAX.judge(version)


def installed_version() -> str | None:
    """Returns the installed version of jax without importing it, or None."""
    return _JAX.installed()


def ffi_version(header: str) -> tuple[int, int] | None:
    r"""Returns the version of XLA's foreign function interface that the text of its header declares, or None.

    >>> ffi_version("#define XLA_FFI_API_MAJOR 0\n#define XLA_FFI_API_MINOR 3\n")
    (0, 3)
    """
    matches = [re.search(rf"^#define XLA_FFI_API_{part} (\d+)$", header, re.MULTILINE) for part in ("MAJOR", "MINOR")]
    numbers = [int(match[1]) for match in matches if match is not None]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None


def judge_ffi(version: tuple[int, int] | None) -> Decision:
    """Returns whether Silo's handler can be registered with an XLA whose interface has this version.

    >>> judge_ffi((0, 3)).reason
    "XLA's interface 0.3"
    >>> bool(judge_ffi((1, 0)))
    False
    """
    if version is None:
        return Rejected("this jaxlib does not say which version of XLA's foreign function interface it has")
    major, minor = version
    if major != _FFI[0]:
        return Rejected(
            f"this jaxlib has version {major}.{minor} of XLA's foreign function interface, and Silo knows {_FFI[0]}: "
            f"install jax {_JAX.tested[-1]}, which is tested"
        )
    if minor in _FFI_TESTED:
        return Accepted(f"XLA's interface {major}.{minor}")
    age = "newer" if minor > _FFI[1] else "older"
    return Accepted(f"XLA's interface {major}.{minor}, {age} than {_FFI[0]}.{_FFI[1]}, which is tested")


def load_jax() -> tuple[Any, int]:
    """Returns the module ``jax``, and the minor version of its XLA's foreign function interface.

    Raises:
        PackageError: jax is not installed, or Silo cannot use its version.
    """
    try:
        jax: Any = import_module("jax")
        import_module("jax.ffi")
        import_module("jax.extend.core")
    except ImportError as error:
        raise PackageError(
            f"calls of kernels from programs of jax need jax, which cannot be imported: {error}"
        ) from error
    decision = judge_version(str(jax.__version__))
    if not decision:
        raise PackageError(decision.reason)
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    version = ffi_version(header.read_text(encoding="utf-8")) if header.exists() else None
    interface = judge_ffi(version)
    if version is None or not interface:
        raise PackageError(f"jax {jax.__version__}: {interface.reason}")
    for outcome in (decision, interface):
        if "which is tested" in outcome.reason and outcome.reason not in _told:
            _told.add(outcome.reason)
            _log.info("%s", outcome.reason)
    return jax, version[1]

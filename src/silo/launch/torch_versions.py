"""The versions of torch that the hook points were tested with, and the action for other versions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import PackageError
from silo.launch.tested_releases import Releases, release_of

__all__ = [
    "inductor_versions",
    "installed_version",
    "judge_inductor",
    "judge_version",
    "load_torch",
    "release_of",
    "tested_versions",
]

# The oldest has register_vmap, register_fake and Library.impl with a keyset in the forms that are used.
_TORCH = Releases("torch", ("2.13",), (2, 8), "whose operators Silo can define")


def tested_versions() -> tuple[str, ...]:
    """Releases of torch that Silo's tests run with."""
    return _TORCH.tested


def judge_version(version: str) -> Decision:
    """Whether operators can be made with a version of torch; a reason that names the range where it was not tested.

    >>> bool(judge_version("2.13.0")), bool(judge_version("2.1.0"))
    (True, False)
    """
    return _TORCH.judge(version)


def inductor_versions() -> tuple[str, ...]:
    """Releases of torch whose Inductor Silo serves on the CPU."""
    return _TORCH.tested


def judge_inductor(version: str) -> Decision:
    """Whether Inductor's kernels for the CPU can go through Silo with a version of torch.

    Inductor's internals differ between releases, so untested releases are left alone.

    >>> bool(judge_inductor("2.13.1+cpu")), bool(judge_inductor("2.14.0"))
    (True, False)
    """
    major, minor = release_of(version)
    if f"{major}.{minor}" in _TORCH.tested:
        return Accepted(f"torch {version}, tested")
    age = "newer" if (major, minor) > max(map(release_of, _TORCH.tested)) else "older"
    return Rejected(
        f"torch {version} is {age} than {', '.join(_TORCH.tested)}, whose Inductor Silo is tested with: install that, "
        "or try this one with silo.integrations.inductor.enable(force=True)"
    )


def load_torch() -> Any:  # noqa: ANN401  # the module, whose stubs are partial
    """The module ``torch``.

    Raises:
        PackageError: it is not installed, or too old.
    """
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise PackageError(f"operators of torch need torch, which cannot be imported: {error}") from error
    decision = judge_version(str(torch.__version__))
    if not decision:
        raise PackageError(decision.reason)
    return torch


def installed_version() -> str | None:
    """The version of torch that is installed, without importing it."""
    return _TORCH.installed()

"""The versions of torch that the hook points were tested with, and the decision about other versions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import PackageError
from silo.launch.tested_releases import Releases, release_of

__all__ = [
    "inductor_gpu_versions",
    "inductor_versions",
    "installed_version",
    "judge_inductor",
    "judge_version",
    "load_torch",
    "release_of",
    "tested_versions",
]

# The third argument is the oldest release that has register_vmap, register_fake and Library.impl with a keyset in the
# forms that Silo uses.
_TORCH = Releases("torch", ("2.13", "2.14", "2.15"), (2, 8), "whose operators Silo can define")

# Releases tested with Inductor's CPU kernels. _INDUCTOR_BAD has the releases that have all hook points but do not work,
# each with the reason.
_INDUCTOR_TESTED = ("2.13", "2.14", "2.15")
# Releases tested with Inductor's kernels for GPUs, on a stub of the driver.
_INDUCTOR_GPU_TESTED = ("2.11", "2.13", "2.14", "2.15")
_INDUCTOR_BAD: dict[str, str] = {}


def tested_versions() -> tuple[str, ...]:
    """Returns the releases of torch that Silo's tests run with."""
    return _TORCH.tested


def judge_version(version: str) -> Decision:
    """Returns whether operators can be defined with a version of torch.

    The reason names the tested releases if the version is not one of them.

    >>> bool(judge_version("2.13.0")), bool(judge_version("2.1.0"))
    (True, False)
    """
    return _TORCH.judge(version)


def inductor_versions() -> tuple[str, ...]:
    """Returns the releases of torch with which Silo's tests of Inductor's CPU kernels pass."""
    return _INDUCTOR_TESTED


def inductor_gpu_versions() -> tuple[str, ...]:
    """Returns the releases of torch with which Silo's tests of Inductor's GPU kernels pass."""
    return _INDUCTOR_GPU_TESTED


def judge_inductor(version: str) -> Decision:
    """Returns whether Silo may run Inductor's CPU kernels with a version of torch.

    Rejects only releases that have the hook points and are known not to work. Whether the installed torch has the hook
    points is checked by :mod:`silo.integrations.inductor.inductor_patching`.

    >>> judge_inductor("2.13.1+cpu").reason
    'torch 2.13.1+cpu, tested'
    >>> judge_inductor("2.99.0").reason
    'torch 2.99.0 is newer than 2.13, 2.14, 2.15, which is tested'
    """
    major, minor = release_of(version)
    if why := _INDUCTOR_BAD.get(f"{major}.{minor}"):
        return Rejected(
            f"torch {version}: {why}; install torch {_INDUCTOR_TESTED[-1]}, or try this one with "
            "silo.integrations.inductor.enable(force=True)"
        )
    if f"{major}.{minor}" in _INDUCTOR_TESTED:
        return Accepted(f"torch {version}, tested")
    age = "newer" if (major, minor) > max(map(release_of, _INDUCTOR_TESTED)) else "older"
    return Accepted(f"torch {version} is {age} than {', '.join(_INDUCTOR_TESTED)}, which is tested")


def load_torch() -> Any:  # noqa: ANN401  # the module, whose stubs are partial
    """Imports and returns the module ``torch``.

    Raises:
        PackageError: torch is not installed, or too old.
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
    """Returns the installed version of torch without importing it, or None."""
    return _TORCH.installed()

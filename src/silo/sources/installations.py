"""Versions of installed packages, and the results of ``silo doctor`` and of self-tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from silo.frozen import frozen

__all__ = ["Finding", "SelfTestReport", "SelfTestResult", "parsed_version", "version_of"]


@cache
def version_of(package: str) -> str | None:
    """Returns the version of a package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # a program with kernels needs it

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def parsed_version(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version.

    >>> parsed_version("4.8.1"), parsed_version("4.9.0rc1")
    ((4, 8, 1), (4, 9))
    """
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of ``silo doctor``: the state of one part of the installation.

    ``state`` is ok, missing (although needed) or optional (absent, which may be fine).
    """

    part: str
    state: str
    detail: str
    advice: str = ""


@frozen
class SelfTestResult:
    """The outcome of one small kernel, run ``through`` a library or an emulator.

    ``wrong`` describes the fault, "" without one. ``largest_error`` is relative to the expected value, or to 1 for
    values below 1.
    """

    probe: str
    asks: str
    through: str
    wrong: str = ""
    largest_error: float = 0.0


@frozen
class SelfTestReport:
    """The outcomes of a kind's self-test. ``facts`` name the machine and the packages.

    ``on_hardware``: whether the kernels ran on the hardware that they are for.
    """

    kind: str
    facts: tuple[tuple[str, str], ...]
    results: tuple[SelfTestResult, ...]
    on_hardware: bool

    @property
    def ok(self) -> bool:
        """Whether every kernel computed the expected values."""
        return not any(result.wrong for result in self.results)

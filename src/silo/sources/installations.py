"""Installations examined: versions of installed packages, and the findings of an examination or a self-test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from silo.frozen import frozen

__all__ = ["Finding", "SelfTestReport", "SelfTestResult", "parsed_version", "version_of"]


@cache
def version_of(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # a program with kernels needs it

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def parsed_version(version: str) -> tuple[int, ...]:
    """The leading numbers of a version.

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
    """One part of the installation. ``state`` is ok, missing (needed) or optional (absent, and that may be fine)."""

    part: str
    state: str
    detail: str
    advice: str = ""


@frozen
class SelfTestResult:
    """The outcome of one small kernel, run ``through`` a library or an emulator.

    ``wrong`` is "" where all is as it should be. ``largest_error`` is relative to the expected value, or to 1 for
    values below 1.
    """

    probe: str
    asks: str
    through: str
    wrong: str = ""
    largest_error: float = 0.0


@frozen
class SelfTestReport:
    """``facts`` name the machine and the packages.

    ``on_hardware``: whether the hardware that the kernels are for ran them.
    """

    kind: str
    facts: tuple[tuple[str, str], ...]
    results: tuple[SelfTestResult, ...]
    on_hardware: bool

    @property
    def ok(self) -> bool:
        """Whether every kernel computed the expected values."""
        return not any(one.wrong for one in self.results)

"""Findings: the results of examining an installation, or of a self-test of a kind of kernels."""

from __future__ import annotations

from dataclasses import dataclass

from silo.frozen import frozen

__all__ = [
    "Finding",
    "SelfTestReport",
    "SelfTestResult",
]


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

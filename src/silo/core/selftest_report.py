"""What a self-test of a kind of kernels found: whether what runs them does what their language promises."""

from __future__ import annotations

from silo.frozen import frozen

__all__ = ["SelfTestReport", "SelfTestResult"]


@frozen
class SelfTestResult:
    """What came of one small kernel, run ``through`` a library or an emulator.

    ``wrong`` is "" where all is as it should be. ``largest_error`` is a part of what was expected, or of 1 below it.
    """

    probe: str
    asks: str
    through: str
    wrong: str = ""
    largest_error: float = 0.0


@frozen
class SelfTestReport:
    """``facts`` name the machine and the packages; ``on_hardware`` says whether what the kernels are for ran them."""

    kind: str
    facts: tuple[tuple[str, str], ...]
    results: tuple[SelfTestResult, ...]
    on_hardware: bool

    @property
    def ok(self) -> bool:
        """Whether every kernel computed what it should."""
        return not any(one.wrong for one in self.results)

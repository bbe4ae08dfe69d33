"""Verdicts: the last stage that a candidate reached, the reasons why it was refused, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from silo.tuner.statistics import PPM

__all__ = ["STAGES", "Verdict", "speedup_of"]

STAGES: Final = ("compile", "bounds", "checked", "right", "device")
"""The stages in order, the cheapest first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one candidate. Its truth value is True if the candidate was accepted.

    ``stage`` is the stage that refused the candidate, or the last stage that the candidate passed; ``reasons`` are
    sentences, empty if it was accepted. ``speedup`` is the baseline's time divided by the candidate's, with the limits
    of its confidence interval; None if the candidate was not timed. ``figures`` are numbers by name: seconds of each
    stage, cases, configs, times. ``confinement`` lists the measures that were in force for the candidate's process, and
    the reasons for missing ones.
    """

    task: str
    candidate: str
    accepted: bool
    stage: str
    reasons: tuple[str, ...] = ()
    kernel: str = ""
    speedup: tuple[float, float, float] | None = None
    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    confinement: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __bool__(self) -> bool:
        return self.accepted

    def __str__(self) -> str:
        words = f"{self.candidate}: accepted" if self.accepted else f"{self.candidate}: refused at {self.stage}"
        if self.speedup is not None:
            words += f", {self.speedup[0]:.2f} times as fast as the baseline"
        return words + "".join(f"\n  {reason}" for reason in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Returns the members as JSON."""
        return {
            "task": self.task,
            "candidate": self.candidate,
            "accepted": self.accepted,
            "stage": self.stage,
            "reasons": list(self.reasons),
            "kernel": self.kernel,
            "speedup": None if self.speedup is None else list(self.speedup),
            "figures": dict(self.figures),
            "confinement": dict(self.confinement),
        }


def speedup_of(median_ppm: int, low_ppm: int, high_ppm: int) -> tuple[float, float, float]:
    """Returns the median speedup and its lower and upper limit: quotients of the baseline's time by the candidate's.

    The arguments are quotients of the candidate's time by the baseline's, in millionths.

    >>> speedup_of(500_000, 400_000, 1_000_000)
    (2.0, 1.0, 2.5)
    """
    return PPM / max(median_ppm, 1), PPM / max(high_ppm, 1), PPM / max(low_ppm, 1)

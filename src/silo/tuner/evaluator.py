"""The protocol of evaluators, which compile, check and run configs for a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from silo.core.config import Config
from silo.tuner.statistics import ReferenceConfig
from silo.tuner.trial import Trial

__all__ = ["Evaluator"]


class Evaluator(Protocol):
    """Compiles, checks and measures the configs of one study.

    A config's own failure is a trial with that status, or a CompileError or LaunchError, which the session turns into a
    trial. Any other failure (no C compiler, a lost device) is raised and ends the session.
    """

    def prepare(self, configs: Sequence[Config]) -> None:
        """Starts compiling ``configs`` in the background; may be called again with further configs. Returns at once."""
        ...

    def spills(self, config: Config) -> int | None:
        """Waits for the artifact: the number of 32-bit values that a thread keeps in local memory, None if unknown."""
        ...

    def evaluate(self, config: Config, reference: ReferenceConfig | None = None) -> Trial:
        """Waits for the artifact, checks its result and measures it in turns with ``reference``.

        Without a reference an evaluator takes the first config as the reference, or measures every config alone. Once
        it has returned a trial with a reference, it is always given one.
        """
        ...

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measures usable configs side by side, taking turns; returns samples in nanoseconds by config.

        A config that fails now is left out, or its error raised.
        """
        ...

    def interrupt(self) -> None:
        """Makes the evaluation that another thread waits for fail soon. Any thread may call it."""
        ...

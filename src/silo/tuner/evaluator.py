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

    A config's own failure is a trial with that status, or a ``CompileError`` or ``LaunchError`` which the session
    turns into one. Whatever is not a config's fault (no C compiler, a lost device) is raised and ends the session.
    """

    def prepare(self, configs: Sequence[Config]) -> None:
        """Start compiling ``configs`` in the background; called again with further ones. Returns at once."""
        ...

    def spills(self, config: Config) -> int | None:
        """Await the artifact: how many 32-bit values a thread keeps in local memory, None where nobody knows."""
        ...

    def evaluate(self, config: Config, reference: ReferenceConfig | None = None) -> Trial:
        """Await the artifact, check its result, measure it in turns with ``reference``.

        Without one an evaluator takes the first config as the reference, or measures every config alone; it is given
        one once it has returned a trial that has one.
        """
        ...

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measure configs that were found usable side by side, taking turns; samples in nanoseconds by config.

        A config that fails now is left out, or its error raised.
        """
        ...

    def interrupt(self) -> None:
        """Make the evaluation that another thread waits for fail soon. Any thread may call."""
        ...

"""A seed: a config of which something is known before the search begins."""

from __future__ import annotations

import math
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.values import JSON, value_to_json

__all__ = ["Seed"]


@dataclass(frozen=True, slots=True)
class Seed:
    """A config that a heuristic proposes, or that was measured elsewhere: on another device, for a near shape.

    ``relative`` is its time there over the best time there, infinity where it failed, and None where nobody knows.
    ``reason`` says where it comes from, for messages. Seeds are guesses: a search measures those it believes in again.
    """

    config: Config
    relative: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.relative is not None and not self.relative > 0:
            raise ValueError(f"the seed {self.config}: its relative time is positive, not {self.relative!r}")

    @property
    def failed(self) -> bool:
        """Whether it is known to have failed elsewhere."""
        return self.relative is not None and math.isinf(self.relative)

    def to_json(self) -> JSON:
        """The canonical form; the reason changes no search."""
        return [self.config.to_json(), None if self.relative is None else value_to_json(float(self.relative))]

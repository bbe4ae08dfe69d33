"""What proposes further configs of a call while it is tuned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from silo.core.config import Config
from silo.errors import SiloError
from silo.tune.refine import Occupancy, Refiner

if TYPE_CHECKING:
    from silo.api.resolver import Situation

__all__ = ["refiner_of"]


def refiner_of(situation: Situation, grid_of: Callable[[Config], Sequence[int]]) -> Refiner:
    """The refiner of a call's candidates; ``grid_of`` gives the grid of a launch with a config."""

    def programs(config: Config) -> int | None:
        try:
            return math.prod(grid_of(config))
        except SiloError:
            return None  # a launch with such a config fails and says why

    occupancy = Occupancy.of(situation.device.facts())
    return Refiner(situation.candidates, occupancy, programs, frozenset(situation.given))

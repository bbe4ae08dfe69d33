"""What a call's code and measurements do to its space while it is tuned: configs set aside, configs proposed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from silo.core.config import Config
from silo.errors import SiloError
from silo.settings import settings
from silo.tune.refine import Occupancy, Refiner
from silo.tune.spilling import spill_limit

if TYPE_CHECKING:
    from silo.api.declared.situation import Situation

__all__ = ["refiner_of", "spill_limit_of"]


def refiner_of(situation: Situation, grid_of: Callable[[Config], Sequence[int]]) -> Refiner:
    """The refiner of a call's candidates; ``grid_of`` gives the grid of a launch with a config."""

    def programs(config: Config) -> int | None:
        try:
            return math.prod(grid_of(config))
        except SiloError:
            return None  # a launch with such a config fails and says why

    occupancy = Occupancy.of(situation.device.facts())
    return Refiner(situation.candidates, occupancy, programs, situation.reach.fixed)


def spill_limit_of(situation: Situation) -> int | None:
    """The most values that a candidate of a call may spill to be measured with the others."""
    return spill_limit(situation.device.target, by_heuristic=situation.rule is not None, asked=settings().spills)

"""The options of a session for a case or a first call: seeds, refinements, and the limit of spills."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from silo.core.config import Config
from silo.core.protocols import RecordStore
from silo.core.search_space import SearchSpace
from silo.core.variant import seeds_key
from silo.errors import SiloError
from silo.measuring.lock_files import deployed_config
from silo.settings import settings
from silo.tuner.refine import Occupancy, Refiner
from silo.tuner.search.search_state import Seed
from silo.tuner.seeds import Neighbour, neighbours, seeds, seeds_from_records, spoken_of
from silo.tuner.spilling import spill_limit
from silo.tuner.trial import Study

if TYPE_CHECKING:
    from silo.building.call_context import CallContext

__all__ = ["imported_seeds", "refiner_of", "spill_limit_of", "study_seeds"]

# The most configs of imported files that are tried first: enough to profit, too few to use up a budget.
_IMPORTED = 8


def study_seeds(
    study: Study,
    configs: SearchSpace,
    records: RecordStore,
    lock: Path | None = None,
    near: Sequence[Neighbour] | None = None,
    tried: Container[bytes] = (),
) -> tuple[Seed, ...]:
    """Returns configs to try first: the one deployed in ``lock``, the best of similar studies, other tuners' configs.

    ``near`` are the most similar studies; None: they are looked up. Configs whose order keys are in ``tried`` are left
    out.
    """
    near = neighbours(study, records) if near is None else near
    close = seeds(configs, near, deployed=deployed_config(lock, study), tried=tried)
    untried = [config for config in configs.listed if config.order_key not in tried]
    elsewhere = spoken_of(untried, imported_seeds(study.kernel, records))[:_IMPORTED]
    return (*close, *(Seed(config, reason="best in an imported file") for config in elsewhere))


def imported_seeds(kernel: str, records: RecordStore) -> tuple[Config, ...]:
    """Returns other tuners' configs for kernels of this name, best first; see :mod:`silo.tuning.foreign_results`."""
    return seeds_from_records(records.read(seeds_key(kernel)))


def refiner_of(context: CallContext, grid_of: Callable[[Config], Sequence[int]]) -> Refiner:
    """Makes the refiner of a call's candidates; ``grid_of`` returns the grid of a launch with a config."""

    def programs(config: Config) -> int | None:
        try:
            return math.prod(grid_of(config))
        except SiloError:
            # the number of programs is unknown here; a launch with this config will fail and report the reason
            return None

    occupancy = Occupancy.of(context.device.facts())
    return Refiner(context.candidates, occupancy, programs, context.reach.fixed)


def spill_limit_of(context: CallContext) -> int | None:
    """Returns how many values a candidate of a call may spill without being set aside; None: no limit."""
    return spill_limit(context.device.target, by_heuristic=context.rule is not None, requested=settings().spills)

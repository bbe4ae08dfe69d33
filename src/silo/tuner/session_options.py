"""The options of a session: searcher, extra configs, excluded configs, and the receiver of progress events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.protocols import Searcher
from silo.tuner.early_end import EarlyEnd
from silo.tuner.objective import TIME, Objective
from silo.tuner.outcome import Budget
from silo.tuner.progress import ProgressCallback
from silo.tuner.refine import Refiner
from silo.tuner.search.search_state import Seed
from silo.tuner.search.searchers import DEFAULT_SEARCHER
from silo.tuner.trial import Status

__all__ = ["SearchOptions", "SessionScope", "SessionWatch"]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How the configs of a space are searched.

    Attributes:
        searcher: A searcher, or the name of a searcher, which is then seeded by the study's key.
        seeds: Configs to begin with, best guess first; for a searcher given by name.
        budget: Limits of the session. Without limits, the default searcher examines 256 configs at most.
        ahead: The number of configs handed to the evaluator for compiling before they are needed; by default eight,
            and more if the searcher does not learn from outcomes.
        early: The limits of an early end (:mod:`silo.tuner.early_end`); None: the search goes on to its budget's end.
        estimates: See :func:`silo.tuner.early_end.known_well_enough`.
    """

    searcher: str | Searcher = DEFAULT_SEARCHER
    seeds: tuple[Seed, ...] = ()
    budget: Budget = Budget()  # noqa: RUF009  # frozen
    ahead: int | None = None
    early: EarlyEnd | None = None
    estimates: Mapping[bytes, float] | None = None


@dataclass(frozen=True, slots=True)
class SessionScope:
    """Configs to measure besides those that a search proposes, and configs to leave out.

    Attributes:
        refiner: Proposes further configs by the measurements; they count for the space like its own.
        most_spills: Configs whose code keeps more values of a thread in local memory are set aside; None: no config is.
            A config that was set aside is neither a trial nor an evaluation, and its searcher sees it as failed.
        deployed: A config of the space, or of its refinements, that is in use: it is always measured and compared, so
            that the decision whether it stays has samples taken side by side. The winner does not depend on it.
        retry: Kinds of failure that are tried again although the store holds them.
        finalists: The number of the fastest configs to compare, and more if noise hides which they are; below 2,
            none are compared.
        remeasure: The trials known when the session begins are superseded, so every config is measured anew.
        objective: The metric that ranks configs, and constraints. Configs whose trials lack a metric that it names are
            measured again. Only by time are finalists compared side by side.
        timeouts_count: A config that passes a time limit fails. Otherwise the machine is to blame, which may have given
            its processes no CPU, and nothing is stored about the config.
    """

    refiner: Refiner | None = None
    most_spills: int | None = None
    deployed: Config | None = None
    retry: frozenset[Status] = frozenset()
    finalists: int = 4
    remeasure: bool = False
    objective: Objective = TIME
    timeouts_count: bool = True


@dataclass(frozen=True, slots=True)
class SessionWatch:
    """The receiver of progress, called after each config, and the session's clock: wall time in nanoseconds."""

    progress: ProgressCallback | None = None
    clock: Callable[[], int] = time.monotonic_ns

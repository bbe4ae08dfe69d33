"""The terms of a session: searcher, extra configs, excluded configs, and the receiver of progress events."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.protocols import Searcher
from silo.tuner.outcome import Budget
from silo.tuner.progress import ProgressCallback
from silo.tuner.refine import Refiner
from silo.tuner.search.search_state import Seed
from silo.tuner.search.searchers import DEFAULT_SEARCHER
from silo.tuner.trial import Status

__all__ = ["SearchOptions", "SessionScope", "SessionWatch"]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How the configs of a space are gone through.

    Attributes:
        searcher: A searcher, or the name of one, which is then seeded by the study's key.
        seeds: Configs to begin with, best guess first; for a searcher given by name.
        budget: Limits of the session. Without any, the default searcher looks at 256 configs at most.
        ahead: How many configs are handed to the evaluator for compiling before they are needed; by default eight,
            and more where the searcher does not learn from outcomes.
    """

    searcher: str | Searcher = DEFAULT_SEARCHER
    seeds: tuple[Seed, ...] = ()
    budget: Budget = Budget()  # noqa: RUF009  # frozen
    ahead: int | None = None


@dataclass(frozen=True, slots=True)
class SessionScope:
    """Which configs are measured besides those that a search names, and which are not.

    Attributes:
        refiner: Proposes further configs by what was measured; they count for the space as its own do.
        most_spills: Configs whose code keeps more values of a thread in local memory are set aside; None: no config is.
            A config that was set aside is neither a trial nor an evaluation, and its searcher is told that it failed.
        deployed: A config of the space, or of its refinements, that is in use: it is measured and compared whatever
            else is, so that who decides whether it stays has samples taken side by side. The winner does not depend
            on it.
        retry: Kinds of failure that are tried again although the store holds them.
        finalists: How many of the fastest configs are compared, and more where noise hides which they are; below 2
            none are.
        remeasure: The trials known when the session begins are superseded, so every config is measured anew.
    """

    refiner: Refiner | None = None
    most_spills: int | None = None
    deployed: Config | None = None
    retry: frozenset[Status] = frozenset()
    finalists: int = 4
    remeasure: bool = False


@dataclass(frozen=True, slots=True)
class SessionWatch:
    """Who is told where a session stands, after each config, and the clock it goes by: wall time in nanoseconds."""

    progress: ProgressCallback | None = None
    clock: Callable[[], int] = time.monotonic_ns

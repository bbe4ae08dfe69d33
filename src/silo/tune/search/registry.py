"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from silo.core.config import Config
from silo.errors import TuneError
from silo.tune.search import auto, descent, exhaustive, genetic, neighbourhood, random, surrogate
from silo.tune.search.board import Board
from silo.tune.search.searching import Plan, PlannedSearcher
from silo.tune.search.seed import Seed

__all__ = ["AHEAD", "DEFAULT_SEARCHER", "SEARCHERS", "ahead_of", "check_searcher", "make_searcher"]

SEARCHERS: dict[str, Callable[[Board], Plan]] = {
    "auto": auto.plan,
    "exhaustive": exhaustive.plan,
    "random": random.plan,
    "descent": descent.plan,
    "descent-all-directions": descent.all_directions_plan,
    "neighbourhood": neighbourhood.plan,
    "genetic": genetic.plan,
    "surrogate": surrogate.plan,
}

DEFAULT_SEARCHER = "auto"

# How many configs a searcher is asked for before it knows their outcomes: they are compiled meanwhile. More would make
# those that learn choose worse; those that do not learn keep as many workers busy as there may be.
AHEAD = 8
_AHEAD_BLINDLY = 32


def ahead_of(name: str, size: int) -> int:
    """How many configs a session asks the searcher called ``name`` for ahead, in a space of ``size``.

    >>> ahead_of("auto", 16), ahead_of("auto", 1000), ahead_of("random", 1000)
    (32, 8, 32)
    """
    learns = name not in ("exhaustive", "random") and not (name == DEFAULT_SEARCHER and size <= auto.SMALL)
    return AHEAD if learns else _AHEAD_BLINDLY


def check_searcher(name: str) -> None:
    """``TuneError`` if no searcher has this name."""
    if name not in SEARCHERS:
        raise TuneError(f"unknown searcher {name!r}; there are: {', '.join(SEARCHERS)}")


def make_searcher(name: str, configs: Sequence[Config], seed: str, seeds: Sequence[Seed] = ()) -> PlannedSearcher:
    """The searcher called ``name`` over ``configs``, which are distinct.

    ``seed`` is usually the key of the study: equal seeds and observations lead to equal suggestions. ``seeds`` are
    configs to begin with, best guess first; those that are not among ``configs`` are left out.

    Raises:
        TuneError: No searcher has this name, there is no config, or the searcher needs a package that is missing.
    """
    check_searcher(name)
    if not configs:
        raise TuneError("the space is empty, so there is nothing to search; check its constraints")
    board = Board(configs, seed, seeds)
    return PlannedSearcher(name, board, SEARCHERS[name](board))

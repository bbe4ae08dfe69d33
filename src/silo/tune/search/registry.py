"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from silo.core.config import Config
from silo.errors import TuneError
from silo.tune.search import auto, descent, exhaustive, genetic, neighbourhood, random, surrogate
from silo.tune.search.board import Board
from silo.tune.search.searching import Plan, PlannedSearcher
from silo.tune.search.seed import Seed

__all__ = ["DEFAULT_SEARCHER", "SEARCHERS", "check_searcher", "make_searcher"]

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

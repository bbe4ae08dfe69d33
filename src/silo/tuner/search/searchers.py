"""Searchers by name.

Each searcher's module is imported on first use, because ``silo tune --help`` needs only the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from silo.core.config import ConfigSet
from silo.errors import SpaceError, TuneError

if TYPE_CHECKING:
    from silo.core.search_space import SearchSpace
    from silo.tuner.search.search_state import Proposals, ProposalSearcher, SearchState, Seed

__all__ = ["AHEAD", "DEFAULT_SEARCHER", "SEARCHERS", "ahead_of", "check_searcher", "gone_through", "make_searcher"]

# For each searcher, the module of this package and the function in it that makes its proposals.
SEARCHERS: Final[Mapping[str, str]] = {
    "auto": "auto:plan",
    "exhaustive": "search_state:exhaustive_plan",
    "random": "search_state:random_plan",
    "descent": "descent:plan",
    "descent-all-directions": "descent:all_directions_plan",
    "neighbourhood": "neighbourhood:plan",
    "genetic": "genetic:plan",
    "surrogate": "surrogate:plan",
    "sequential": "sequential:plan",
    "sequential-descent": "sequential:descent_plan",
}
# Searchers that handle a space of groups without listing it.
_BY_GROUPS = frozenset(("auto", "sequential", "sequential-descent"))

DEFAULT_SEARCHER = "auto"

# How many configs are taken from a searcher before their outcomes are known, so that they are compiled meanwhile. A
# searcher that learns chooses worse the more it has to choose in advance. A searcher that does not learn keeps as many
# compile workers busy as possible. A small budget allows fewer configs in advance, because each choice counts.
AHEAD = 8
_LEAST_AHEAD = 2
_EVALUATIONS_OF_ONE = 12  # a budget allows one config ahead for each _EVALUATIONS_OF_ONE evaluations
_AHEAD_BLINDLY = 32
# Searchers that do not learn. Searches by groups learn only between groups, and propose a whole group at once.
_BLIND = ("exhaustive", "random", "sequential", "sequential-descent")


def ahead_of(name: str, space: SearchSpace, evaluations: int | None = None) -> int:
    """Returns the number of configs that a session takes in advance from the searcher called ``name``.

    ``evaluations`` is the session's budget of evaluations, None without a limit.

    >>> from silo.core.config import Config
    >>> large = ConfigSet(Config.of(BLOCK=block) for block in range(1000))
    >>> ahead_of("auto", ConfigSet([Config()])), ahead_of("auto", large), ahead_of("random", large)
    (32, 8, 32)
    >>> ahead_of("auto", large, 25), ahead_of("auto", large, 50), ahead_of("auto", large, 100)
    (2, 4, 8)
    """
    from silo.tuner.search import auto  # noqa: PLC0415  # imported on first use, as the module's text says

    blind = name in _BLIND or (name == DEFAULT_SEARCHER and (space.grouped is not None or space.size <= auto.SMALL))
    if blind:
        return _AHEAD_BLINDLY
    return AHEAD if evaluations is None else min(max(evaluations // _EVALUATIONS_OF_ONE, _LEAST_AHEAD), AHEAD)


def check_searcher(name: str) -> None:
    """Raises TuneError if no searcher has this name."""
    if name not in SEARCHERS:
        raise TuneError(f"unknown searcher {name!r}; there are: {', '.join(SEARCHERS)}")


def gone_through(name: str, space: SearchSpace) -> SearchSpace:
    """Returns the space in the form in which the searcher called ``name`` searches it.

    If the searcher does not handle spaces of groups, such a space is converted to the list of all its combinations.

    Raises:
        TuneError: no searcher has this name, or the combinations are too many to list.
    """
    check_searcher(name)
    if space.grouped is None or name in _BY_GROUPS:
        return space
    try:
        return ConfigSet(space.product())
    except SpaceError as error:
        raise TuneError(f"the searcher {name} goes through a list: {error}") from error


def make_searcher(
    name: str,
    space: SearchSpace,
    seed: str,
    seeds: Sequence[Seed] = (),
    *,
    first: int | None = None,
    evaluations: int | None = None,
) -> ProposalSearcher:
    """Makes the searcher called ``name`` over the configs of ``space``.

    ``seed`` is usually the key of the study: equal seeds and observations lead to equal suggestions. ``seeds`` are
    configs to begin with, best guess first; configs outside of the space are left out. ``first`` is the number of
    configs to measure before a model chooses; None leaves it to the model. ``evaluations`` is the session's limit of
    configs to measure, or None.

    Raises:
        TuneError: no searcher has this name, the space is empty, or the searcher needs a package that is missing.
    """
    from silo.tuner.search.search_state import ProposalSearcher, SearchState  # noqa: PLC0415  # imported on first use, as the module's text says

    space = gone_through(name, space)
    if not space.size:
        raise TuneError("the space is empty, so there is nothing to search; check its constraints")
    board = SearchState(space, seed, seeds, first, evaluations)
    module, _, function = SEARCHERS[name].partition(":")
    plan = cast("Callable[[SearchState], Proposals]", getattr(import_module(f"silo.tuner.search.{module}"), function))
    return ProposalSearcher(name, board, plan(board))

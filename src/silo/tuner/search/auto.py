"""The default searcher, which chooses a method by the size of the space and the budget."""

from __future__ import annotations

import logging

from silo.core.host_arrays import has_numpy
from silo.tuner.search.neighbourhood import plan as neighbourhood_plan
from silo.tuner.search.search_state import Proposals, SearchState, exhaustive_plan
from silo.tuner.search.sequential import plan as sequential_plan
from silo.tuner.search.surrogate import Surrogate

__all__ = ["SMALL", "Auto", "plan"]

_log = logging.getLogger("silo")

# Spaces up to this size are measured completely, in their order: predictions would save nothing.
SMALL = 32


class Auto:
    """Proposes the choices of the surrogate search, which uses a model of the times.

    Near the end of the budget, the neighbours of the best config come first.
    """

    def __init__(self, board: SearchState) -> None:
        self._surrogate = Surrogate(board)

    def next(self, board: SearchState) -> int | None:
        """Returns the next config to measure."""
        if board.finishing and (near := self._surrogate.near_best(board)) is not None:
            return near
        return self._surrogate.next(board)


def plan(board: SearchState) -> Proposals:
    """Proposes every config of a small space, searches a larger one by a model, and a space of groups by groups.

    A space is small if it has at most ``SMALL`` configs or, if ``board.first`` is set, at most this number: a model
    could then hardly save measurements.
    """
    if board.groups is not None:
        return sequential_plan(board)
    if len(board) <= (SMALL if board.first is None or not has_numpy() else board.first):
        return exhaustive_plan(board)
    if not has_numpy():
        _log.warning(
            "numpy is not installed, so %d configs are searched by neighbourhoods, which takes more measurements",
            len(board),
        )
        return neighbourhood_plan(board)
    return Auto(board)

"""A plan that goes through configs in an order fixed beforehand, whatever the measurements say."""

from __future__ import annotations

from collections.abc import Iterable

from silo.tune.search.board import Board

__all__ = ["Ordered"]


class Ordered:
    """Names the free ones of ``indices`` one after another."""

    def __init__(self, indices: Iterable[int]) -> None:
        self._indices = iter(indices)

    def next(self, board: Board) -> int | None:
        """The next free config; None at the end."""
        return next((index for index in self._indices if board.is_free(index)), None)

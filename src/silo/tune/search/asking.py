"""A plan written as a generator that asks for the times of some configs and goes on when it knows them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

from silo.tune.search.board import Board

__all__ = ["Asking", "Questions"]

Questions: TypeAlias = "Generator[Sequence[int], None, None]"


class Asking:
    """Names the configs that a generator asks for.

    The generator yields the configs whose times it needs next and is resumed when the board holds all of them; those
    that the board holds already cost nothing, so a replayed search walks the same way without measuring. It reads of
    the board only the times it asked for: what else is known, or handed out, depends on how far ahead a session asks.
    """

    def __init__(self, questions: Callable[[Board], Questions]) -> None:
        self._begin = questions
        self._questions: Questions | None = None
        self._wanted: Sequence[int] = ()

    def next(self, board: Board) -> int | None:
        """The next config asked for; None while an answer is awaited, and at the end."""
        if self._questions is None:
            self._questions = self._begin(board)
        while all(index in board.times for index in self._wanted):
            try:
                self._wanted = next(self._questions)
            except StopIteration:
                return None
        return next((index for index in self._wanted if board.is_free(index)), None)

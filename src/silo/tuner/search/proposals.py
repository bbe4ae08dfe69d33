"""Plans in an order fixed beforehand (as the space has it, or at random), and plans that ask for times they need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from silo.tuner.search.search_state import SearchState

__all__ = ["Asking", "Ordered", "Questions", "exhaustive_plan", "random_plan"]

Questions: TypeAlias = "Generator[Sequence[int], None, None]"


class Ordered:
    """Names the free ones of ``indices`` one after another."""

    def __init__(self, indices: Iterable[int]) -> None:
        self._indices = iter(indices)

    def next(self, board: SearchState) -> int | None:
        """The next free config; None at the end."""
        return next((index for index in self._indices if board.is_free(index)), None)


def exhaustive_plan(board: SearchState) -> Ordered:
    """Every config: seeds first, then the order of the space; the seed changes nothing."""
    return Ordered(chain(board.hopeful_seeds(), range(len(board))))


def random_plan(board: SearchState) -> Ordered:
    """Seeds first, then all configs without repetition in the order of a hash keyed by the board's seed.

    The config itself is the generator's counter: there is no state to save, the order is the same on every machine,
    and configs added to a space leave the order of the others alone.
    """
    key = hashlib.sha256(board.seed.encode()).digest()
    hashes = [hashlib.sha256(key + config.order_key).digest() for config in board.configs]
    return Ordered(chain(board.hopeful_seeds(), sorted(range(len(board)), key=hashes.__getitem__)))


class Asking:
    """Names the configs that a generator asks for.

    The generator yields the configs whose times it needs next and is resumed when the board holds all of them; those
    that the board holds already cost nothing, so a replayed search walks the same way without measuring. It reads of
    the board only the times it asked for: what else is known, or handed out, depends on how far ahead a session asks.
    """

    def __init__(self, questions: Callable[[SearchState], Questions]) -> None:
        self._begin = questions
        self._questions: Questions | None = None
        self._wanted: Sequence[int] = ()

    def next(self, board: SearchState) -> int | None:
        """The next config asked for; None while an answer is awaited, and at the end."""
        if self._questions is None:
            self._questions = self._begin(board)
        while all(index in board.times for index in self._wanted):
            try:
                self._wanted = next(self._questions)
            except StopIteration:
                return None
        return next((index for index in self._wanted if board.is_free(index)), None)

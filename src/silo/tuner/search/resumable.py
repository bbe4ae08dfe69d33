"""Searchers made of plans, which name one config after another; they can be saved and resumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, cast

from silo.core.config import Config
from silo.core.values import JSON, digest, value_to_json
from silo.tuner.search.search_state import SearchState

__all__ = ["Plan", "PlannedSearcher"]


class Plan(Protocol):
    """What a kind of search is: a choice among the free configs of a board.

    The choice must follow from the board alone (or from the board's past in the order it happened), so that replayed
    observations lead to where the search was.
    """

    def next(self, board: SearchState) -> int | None:
        """A free config to measure next; None where there is none, or none before more is observed."""
        ...


class PlannedSearcher:
    """Implements :class:`silo.core.protocols.Searcher` with a plan.

    A config that was observed without having been suggested is not suggested any more.
    """

    def __init__(self, name: str, board: SearchState, plan: Plan) -> None:
        self._name = name
        self._board = board
        self._plan = plan
        self._handed_out: dict[bytes, int] = {}

    def suggest(self, count: int) -> Sequence[Config]:
        """Up to ``count`` configs not suggested before.

        Fewer, even none, while the search must learn the outcome of earlier ones; none when it is over.
        """
        chosen: list[Config] = []
        while len(chosen) < count and (index := self._plan.next(self._board)) is not None:
            config = self._board.config(index)
            self._board.pending[index] = None
            self._handed_out[config.order_key] = index
            chosen.append(config)
        return chosen

    def observe(self, config: Config, time_ns: float | None) -> None:
        """The outcome of one config: its median time in nanoseconds, or None where it failed.

        Raises:
            ValueError: It is not of the space, or the time is not a time.
        """
        if time_ns is not None and not (math.isfinite(time_ns) and time_ns >= 0):
            raise ValueError(f"the time of {config} is a number of nanoseconds, not {time_ns!r}")
        index = self._handed_out.pop(config.order_key, None)
        if index is None:
            index = self._board.index(config)
        if index is None:
            raise ValueError(f"{config} is not in the space of this {self._name} search")
        self._board.pending.pop(index, None)
        self._board.times[index] = time_ns

    def finish(self) -> None:
        """The budget is nearly spent: what is suggested from now on is to make the best sure, not to explore."""
        self._board.finishing = True

    def state(self) -> JSON:
        """The searcher's name, a digest of what it searches, and every observation in the order it was made.

        Configs that were suggested and not observed are not in it: a restored search gives them again.
        """
        return {
            "searcher": self._name,
            "search": self._digest,
            "finishing": self._board.finishing,
            "observed": [
                [self._board.config(index).to_json(), None if time is None else value_to_json(float(time))]
                for index, time in self._board.times.items()
            ],
        }

    def restore(self, state: JSON) -> None:
        """Replay the observations of :meth:`state`; ``ValueError`` if it is the state of another search."""
        if not isinstance(state, dict) or (state.get("searcher"), state.get("search")) != (self._name, self._digest):
            raise ValueError(f"not the state of this {self._name} search")
        for config, time in cast("list[tuple[JSON, dict[str, str] | None]]", state["observed"]):
            self.observe(Config.from_json(config), None if time is None else float.fromhex(time["float"]))
        self._board.finishing = bool(state["finishing"])

    @property
    def _digest(self) -> str:
        board = self._board
        seeds = [seed.to_json() for seed in board.seeds.values()]
        return digest("search/1", [board.seed, board.identity(), seeds])

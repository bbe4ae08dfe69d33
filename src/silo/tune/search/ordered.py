"""Searchers that go through the configs in an order fixed beforehand, whatever the measurements say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from silo.core.config import Config
from silo.core.values import JSON, digest, value_to_json

__all__ = ["OrderedSearcher"]


class OrderedSearcher:
    """Suggests ``configs`` one after another. Implements :class:`silo.core.protocols.Searcher`.

    A config that was observed without having been suggested is not suggested any more.
    """

    def __init__(self, name: str, configs: Sequence[Config]) -> None:
        self._name = name
        self._configs = tuple(configs)
        self._next = 0
        self._observed: dict[bytes, tuple[Config, float | None]] = {}

    def suggest(self, count: int) -> Sequence[Config]:
        """Up to ``count`` configs not suggested before; empty when the search is over."""
        chosen: list[Config] = []
        while len(chosen) < count and self._next < len(self._configs):
            config = self._configs[self._next]
            self._next += 1
            if config.order_key not in self._observed:
                chosen.append(config)
        return chosen

    def observe(self, config: Config, time_ns: float | None) -> None:
        """The outcome of one config: its median time in nanoseconds, or None where it failed."""
        self._observed[config.order_key] = (config, time_ns)

    def state(self) -> JSON:
        """The searcher's name, a digest of its order, and every observation."""
        return {
            "searcher": self._name,
            "order": self._order,
            "observed": [
                [config.to_json(), None if time is None else value_to_json(float(time))]
                for _, (config, time) in sorted(self._observed.items())
            ],
        }

    def restore(self, state: JSON) -> None:
        """Replay the observations of :meth:`state`; ``ValueError`` if it is the state of another search."""
        if not isinstance(state, dict) or (state.get("searcher"), state.get("order")) != (self._name, self._order):
            raise ValueError(f"not the state of this {self._name} search")
        for config, time in cast("list[tuple[JSON, dict[str, str] | None]]", state["observed"]):
            self.observe(Config.from_json(config), None if time is None else float.fromhex(time["float"]))

    @property
    def _order(self) -> str:
        return digest("search-order/1", [config.to_json() for config in self._configs])

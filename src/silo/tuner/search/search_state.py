"""The board of a search: its configs, those that were suggested, and their times."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import cached_property

from silo.core.config import Config
from silo.core.lattice import Lattice
from silo.core.search_space import SearchSpace
from silo.core.values import JSON
from silo.tuner.search.seed import Seed

__all__ = ["SearchState", "draws"]


class SearchState:
    """Configs by their index, and what is known of them.

    A space of groups is not listed: it is in ``groups``, and only what is asked of the board itself may be asked then.
    ``times`` holds what was observed, in that order: a time, or None where the config failed. ``pending`` are the
    configs that were handed out and not observed yet, in order. ``seeds`` are the seeds of configs that something is
    known of before, best guess first. ``finishing`` says that the budget is nearly spent.
    """

    def __init__(self, space: SearchSpace, seed: str, seeds: Sequence[Seed] = ()) -> None:
        self.groups = space.grouped
        self.configs = space.listed if self.groups is None else ()
        self.seed = seed
        self.times: dict[int, float | None] = {}
        self.pending: dict[int, None] = {}
        self.finishing = False
        self.seeds: dict[int, Seed] = {}
        for given in seeds:
            index = self.index(given.config)
            if index is not None:
                self.seeds.setdefault(index, given)

    def __len__(self) -> int:
        return len(self.configs)

    def config(self, index: int) -> Config:
        """The config with an index."""
        return self.configs[index] if self.groups is None else self.groups.box.config(index)

    def index(self, config: Config) -> int | None:
        """The index of a config, None where it is none of the space."""
        return self.lattice.index(config) if self.groups is None else self.groups.box.index(config)

    def identity(self) -> JSON:
        """What tells its space from others."""
        return [one.to_json() for one in self.configs] if self.groups is None else self.groups.to_json()

    @cached_property
    def lattice(self) -> Lattice:
        """The configs by coordinates; built when first asked for."""
        return Lattice(self.configs)

    @property
    def best(self) -> int | None:
        """The fastest config observed, of equal ones the first of the space; None before there is one."""
        return min(((time, index) for index, time in self.times.items() if time is not None), default=(0, None))[1]

    @property
    def left(self) -> int:
        """How many configs were neither observed nor handed out."""
        return len(self.configs) - len(self.times) - len(self.pending)

    def cost(self, index: int) -> float:
        """The time of an observed config; infinity where it failed."""
        time = self.times[index]
        return math.inf if time is None else time

    def is_free(self, index: int) -> bool:
        """Whether the config was neither observed nor handed out."""
        return index not in self.times and index not in self.pending

    def hopeful_seeds(self) -> list[int]:
        """The seeds that were not seen to fail, best guess first."""
        return [index for index, seed in self.seeds.items() if not seed.failed]

    def random(self, purpose: str) -> random.Random:
        """A generator that depends on the seed and the purpose alone."""
        return random.Random(f"{self.seed} {purpose}")  # noqa: S311  # nothing secret


def draws(count: int, generator: random.Random) -> Iterator[int]:
    """Each of ``count`` indices once, in random order, without laying them all out: a shuffle that swaps when asked."""
    moved: dict[int, int] = {}
    for at in range(count):
        chosen = generator.randrange(at, count)
        yield moved.get(chosen, chosen)
        moved[chosen] = moved.pop(at, at)

"""The state of a search: the seeds, the proposed configs and their times. The state can be saved and resumed."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Protocol, TypeAlias, cast

from silo.core.config import Config
from silo.core.lattice import Lattice
from silo.core.search_space import SearchSpace
from silo.core.values import JSON, digest, value_to_json

__all__ = [
    "Asking",
    "Ordered",
    "ProposalSearcher",
    "Proposals",
    "Questions",
    "SearchState",
    "Seed",
    "draws",
    "exhaustive_plan",
    "random_plan",
]

# ---- A seed: a config about which something is known before the search begins ----


@dataclass(frozen=True, slots=True)
class Seed:
    """A config that a heuristic proposes, or that was measured on another device or for a similar shape.

    ``relative`` is its time in that measurement divided by the best time, infinity if it failed, None if unknown.
    ``reason`` is its source, for messages. Seeds are guesses: a search measures the promising ones again.
    """

    config: Config
    relative: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.relative is not None and not self.relative > 0:
            raise ValueError(f"the seed {self.config}: its relative time is positive, not {self.relative!r}")

    @property
    def failed(self) -> bool:
        """Whether this config is known to have failed elsewhere."""
        return self.relative is not None and math.isinf(self.relative)

    def to_json(self) -> JSON:
        """Returns the canonical form, without the reason, which does not affect a search."""
        return [self.config.to_json(), None if self.relative is None else value_to_json(float(self.relative))]


# ---- The configs of a search, the proposed configs, and their times ----


class SearchState:
    """The configs of a search by their index, with their times.

    ``configs`` is empty for a space of groups, which is never listed: such a space is in ``groups``, and its configs
    are reached by the methods of this object. ``times`` holds observations in the order in which they were made: a
    time, or None for a config that failed. ``pending`` are the configs that were proposed and not observed yet, in
    order. ``seeds`` are the configs with earlier information, best guess first. ``finishing`` is True when the budget
    is nearly spent. ``first`` is the number of configs to measure before a model chooses; None leaves it to the model.
    ``evaluations`` is the limit of configs to measure, or None.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: str,
        seeds: Sequence[Seed] = (),
        first: int | None = None,
        evaluations: int | None = None,
    ) -> None:
        self.first = first
        self.evaluations = evaluations
        self.groups = space.grouped
        self.configs = space.listed if self.groups is None else ()
        self.seed = seed
        self.times: dict[int, float | None] = {}
        self.pending: dict[int, None] = {}
        self.finishing = False
        self.seeds: dict[int, Seed] = {}
        for seed_given in seeds:
            index = self.index(seed_given.config)
            if index is not None:
                self.seeds.setdefault(index, seed_given)

    def __len__(self) -> int:
        return len(self.configs)

    def config(self, index: int) -> Config:
        """Returns the config with an index."""
        return self.configs[index] if self.groups is None else self.groups.box.config(index)

    def index(self, config: Config) -> int | None:
        """Returns the index of a config; None if the config is not in the space."""
        return self.lattice.index(config) if self.groups is None else self.groups.box.index(config)

    def identity(self) -> JSON:
        """Returns a JSON value that identifies the space."""
        return [config.to_json() for config in self.configs] if self.groups is None else self.groups.to_json()

    @cached_property
    def lattice(self) -> Lattice:
        """The configs of a listed space by coordinates; built on first use."""
        return Lattice(self.configs)

    @property
    def best(self) -> int | None:
        """The index of the fastest observed config (the smallest index of equal times); None while no config worked."""
        return min(((time, index) for index, time in self.times.items() if time is not None), default=(0, None))[1]

    @property
    def left(self) -> int:
        """The number of configs that were neither observed nor proposed."""
        return len(self.configs) - len(self.times) - len(self.pending)

    def cost(self, index: int) -> float:
        """Returns the time of an observed config; infinity if it failed."""
        time = self.times[index]
        return math.inf if time is None else time

    def is_free(self, index: int) -> bool:
        """Returns whether the config was neither observed nor proposed."""
        return index not in self.times and index not in self.pending

    def hopeful_seeds(self) -> list[int]:
        """Returns the seeds that are not known to have failed, best guess first."""
        return [index for index, seed in self.seeds.items() if not seed.failed]

    def random(self, purpose: str) -> random.Random:
        """Returns a random number generator that depends only on the search's seed and on ``purpose``."""
        return random.Random(f"{self.seed} {purpose}")  # noqa: S311  # nothing secret


def draws(count: int, generator: random.Random) -> Iterator[int]:
    """Yields each of ``count`` indices once, in random order: a lazy shuffle that stores no full list."""
    moved: dict[int, int] = {}
    for at in range(count):
        chosen = generator.randrange(at, count)
        yield moved.get(chosen, chosen)
        moved[chosen] = moved.pop(at, at)


# ---- Searchers made of proposals, which can be saved and resumed ----


class Proposals(Protocol):
    """A kind of search: it chooses among the configs of a search state that were neither observed nor proposed.

    The choice must follow from the state and its history alone, so that replayed observations lead to the same state.
    """

    def next(self, board: SearchState) -> int | None:
        """Returns a config to measure next, which was neither observed nor proposed.

        Returns None at the end, or if more outcomes must be observed first.
        """
        ...


class ProposalSearcher:
    """A searcher whose suggestions come from :class:`Proposals`. Implements :class:`silo.core.protocols.Searcher`.

    A config that is observed although it was never suggested is not suggested later.
    """

    def __init__(self, name: str, board: SearchState, plan: Proposals) -> None:
        self._name = name
        self._board = board
        self._plan = plan
        self._handed_out: dict[bytes, int] = {}

    def suggest(self, count: int) -> Sequence[Config]:
        """Returns up to ``count`` configs that were not suggested before.

        Returns fewer configs, or none, while the search needs the outcomes of configs that it suggested earlier;
        returns none when the search is over.
        """
        chosen: list[Config] = []
        while len(chosen) < count and (index := self._plan.next(self._board)) is not None:
            config = self._board.config(index)
            self._board.pending[index] = None
            self._handed_out[config.order_key] = index
            chosen.append(config)
        return chosen

    def observe(self, config: Config, time_ns: float | None) -> None:
        """Reports the outcome of one config: its median time in nanoseconds, or None if it failed.

        Raises:
            ValueError: the config is not in the space, or the time is negative or not finite.
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
        """Announces that the budget is nearly spent: later suggestions confirm the best config instead of exploring."""
        self._board.finishing = True

    def state(self) -> JSON:
        """Returns the searcher's name, a digest of its search, and every observation in the order in which it was made.

        Configs that were suggested and not observed are left out: a restored search suggests them again.
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
        """Replays the observations of a saved :meth:`state`. Raises ValueError if it belongs to another search."""
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


# ---- Proposals in a fixed order (the space's, or random), and proposals that depend on times ----

Questions: TypeAlias = "Generator[Sequence[int], None, None]"


class Ordered:
    """Proposes those configs of ``indices`` that were neither observed nor proposed, one after another."""

    def __init__(self, indices: Iterable[int]) -> None:
        self._indices = iter(indices)

    def next(self, board: SearchState) -> int | None:
        """Returns the next config that was neither observed nor proposed; None at the end."""
        return next((index for index in self._indices if board.is_free(index)), None)


def exhaustive_plan(board: SearchState) -> Ordered:
    """Proposes every config: seeds first, then the others in the order of the space. The random seed has no effect."""
    return Ordered(chain(board.hopeful_seeds(), range(len(board))))


def random_plan(board: SearchState) -> Ordered:
    """Proposes seeds first, then each other config once, in the order of hashes keyed by the search's random seed.

    Because a config's place depends only on its own hash, no state has to be saved, the order is the same on every
    machine, and configs added to a space do not change the order of the others.
    """
    key = hashlib.sha256(board.seed.encode()).digest()
    hashes = [hashlib.sha256(key + config.order_key).digest() for config in board.configs]
    return Ordered(chain(board.hopeful_seeds(), sorted(range(len(board)), key=hashes.__getitem__)))


class Asking:
    """Proposes the configs whose times a generator requests.

    The generator yields the configs whose times it needs next, and is resumed when the state holds all of them. Configs
    with known times cost nothing, so a replayed search takes the same path without measuring. The generator must read
    only the times that it requested, because the other times in the state depend on how far ahead a session proposes.
    """

    def __init__(self, questions: Callable[[SearchState], Questions]) -> None:
        self._begin = questions
        self._questions: Questions | None = None
        self._requested: Sequence[int] = ()

    def next(self, board: SearchState) -> int | None:
        """Returns the index of the next requested config to measure.

        Returns None while outcomes of configs that were proposed are missing, and when the generator has ended.
        """
        if self._questions is None:
            self._questions = self._begin(board)
        while all(index in board.times for index in self._requested):
            try:
                self._requested = next(self._questions)
            except StopIteration:
                return None
        return next((index for index in self._requested if board.is_free(index)), None)

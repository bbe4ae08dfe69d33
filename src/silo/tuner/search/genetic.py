"""A genetic search: good configs are crossed, parameter by parameter, and now and then mutated by a step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice

from silo.core.lattice import Lattice
from silo.tuner.search.search_state import Asking, Questions, SearchState, draws

__all__ = ["plan"]

_POPULATION = 16  # only this many of the best configs may be crossed
_CHILDREN = 8  # new configs in each generation
_TOURNAMENT = 3
_TRIES = 8  # attempts to make a child that is new and in the space, before a config is drawn at random instead


def plan(board: SearchState) -> Asking:  # noqa: ARG001  # all searchers have this form
    """Returns a search that begins with seeds and random configs, and continues until every config was measured."""
    return Asking(_evolve)


def _evolve(board: SearchState) -> Questions:
    generator = board.random("genetic")
    strangers = chain(board.hopeful_seeds(), draws(len(board), generator))
    visited: set[int] = set()
    first = list(islice(_new(strangers, visited), _POPULATION))
    yield first
    population = first
    while True:
        population = sorted(population, key=lambda index: (board.cost(index), index))[:_POPULATION]
        children: list[int] = []
        for _ in range(_CHILDREN):
            child = _child(board.lattice, population, generator, visited)
            if child is None:
                child = next(_new(strangers, visited), None)
            if child is None:
                break
            visited.add(child)
            children.append(child)
        if not children:
            return
        yield children
        population = population + children


def _new(indices: Iterator[int], visited: set[int]) -> Iterator[int]:
    for index in indices:
        if index not in visited:
            visited.add(index)
            yield index


def _child(lattice: Lattice, population: list[int], generator: random.Random, visited: set[int]) -> int | None:
    """Returns an unvisited config of the space, mixed from two configs of the population; None if no attempt finds one.

    ``population`` is sorted, the best first.
    """
    for _ in range(_TRIES):
        mother, father = (population[min(generator.choices(range(len(population)), k=_TOURNAMENT))] for _ in range(2))
        mixed = zip(lattice.coordinates(mother), lattice.coordinates(father), strict=True)
        child = lattice.at([generator.choice(pair) for pair in mixed])
        if child is None:  # the space lacks this mixture of parameters
            child = mother
        changes = 1 if child in visited or generator.random() < 0.3 else 0
        for _ in range(changes):
            near = lattice.neighbours(child)
            child = generator.choice(near) if near else child
        if child not in visited:
            return child
    return None

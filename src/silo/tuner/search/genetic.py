"""A genetic search: configs that did well are crossed, parameter by parameter, and now and then changed by a step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice

from silo.core.lattice import Lattice
from silo.tuner.search.search_state import Asking, Questions, SearchState, draws

__all__ = ["plan"]

_POPULATION = 16  # the best configs, which may be crossed
_CHILDREN = 8  # of a generation
_TOURNAMENT = 3
_TRIES = 8  # at a child that is in the space and new, before one is drawn at random


def plan(board: SearchState) -> Asking:  # noqa: ARG001  # all searchers have this form
    """Begins with seeds and configs drawn at random; continues until every config was measured."""
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
    """A config of the space that was not visited, mixed from two of the population (which is sorted)."""
    for _ in range(_TRIES):
        mother, father = (population[min(generator.choices(range(len(population)), k=_TOURNAMENT))] for _ in range(2))
        mixed = zip(lattice.coordinates(mother), lattice.coordinates(father), strict=True)
        child = lattice.at([generator.choice(pair) for pair in mixed])
        if child is None:  # the space lacks the mixture of the parents' parameters
            child = mother
        changes = 1 if child in visited or generator.random() < 0.3 else 0
        for _ in range(changes):
            near = lattice.neighbours(child)
            child = generator.choice(near) if near else child
        if child not in visited:
            return child
    return None

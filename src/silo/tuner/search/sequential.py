"""Searches a space of groups (a combo of kernels) group by group, in about as many measurements as there are choices.

It works as PyTorch Inductor tunes combo kernels whose kernels have separate blocks. For each group, the largest first,
each of its choices is tried while all other groups keep the best choices so far; warps and stages are the last group.
Two things are added: a fallback if the first config does not work, and a descent over single blocks
(:func:`descent_plan`), which finds choices that are good only together.

The measured configs follow from their times alone. So a search that was stopped takes the same path again, and after a
completed search every later process finds all outcomes in the store.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from functools import partial

from silo.core.config import Config
from silo.core.grouped_space import GroupedSpace
from silo.core.values import same_values
from silo.tuner.search.descent import field_order, passes
from silo.tuner.search.search_state import Asking, Proposals, Questions, SearchState, exhaustive_plan

__all__ = ["descent_plan", "plan"]


def plan(board: SearchState) -> Proposals:
    """Searches one group after the other. A listed space counts as one group: all of it is measured."""
    return exhaustive_plan(board) if board.groups is None else Asking(partial(_search, board.groups, descends=False))


def descent_plan(board: SearchState) -> Proposals:
    """Like :func:`plan`, followed by a coordinate descent from the best config over the steps of the space."""
    return exhaustive_plan(board) if board.groups is None else Asking(partial(_search, board.groups, descends=True))


def _search(space: GroupedSpace, board: SearchState, *, descends: bool) -> Questions:
    start = _index(board, space.default)
    count = len(space.groups)
    if seeds := _fresh_seeds(board, start):
        yield [start, *seeds]
    # The default and the first group are requested together, so that the first group is compiled and measured without
    # waiting for the default's time.
    yield [start, *(_order(board, space, start, 0) if count else ())]
    if math.isinf(board.cost(start)) and space.least is not None:
        smallest = _index(board, space.least)
        yield [smallest]
        start = start if math.isinf(board.cost(smallest)) else smallest
    best = start
    barren: list[int] = []  # groups that were tried while no config worked, which showed nothing about them
    for group in range(count):
        best = yield from _turn(board, space, best, group)
        if math.isinf(board.cost(best)):
            barren.append(group)
    if not math.isinf(board.cost(best)):
        for group in barren:
            best = yield from _turn(board, space, best, group)
        if descends:
            yield from passes(board, space.box, best, _fields(space))


def _turn(board: SearchState, space: GroupedSpace, best: int, group: int) -> Generator[Sequence[int], None, int]:
    """Tries the choices of one group and returns the best config: ``best``, unless a choice is faster."""
    yield _order(board, space, best, group)
    alternatives = [_index(board, config) for config in space.alternatives(board.config(best), group)]
    return min([best, *alternatives], key=board.cost)


def _order(board: SearchState, space: GroupedSpace, best: int, group: int) -> list[int]:
    """Returns the configs that put each choice of one group into ``best``.

    Choices of seeds come first, because a budget may end before the others are measured. The result of the
    search does not depend on this order; it must not, because seeds change as other studies are made.
    """
    seeds = [board.config(index).as_dict() for index in board.hopeful_seeds()]
    own = {name for choice in space.groups[group] for name in choice.as_dict()}

    def rank(config: Config) -> int:
        members = {name: value for name, value in config.as_dict().items() if name in own}
        return next((position for position, seed in enumerate(seeds) if same_values(members, seed)), len(seeds))

    return [
        _index(board, alternative) for alternative in sorted(space.alternatives(board.config(best), group), key=rank)
    ]


def _fresh_seeds(board: SearchState, start: int) -> list[int]:
    """Returns the seeds to measure unchanged: all of them, or none if this search was begun earlier with other seeds.

    The search itself starts at the default even if a seed is faster, because a later process may have other seeds and
    must measure the same configs.
    """
    seeds = board.hopeful_seeds()
    return seeds if board.times.keys() <= {start, *seeds} else []


def _fields(space: GroupedSpace) -> list[int]:
    """Returns the axis of each step of the space (a parameter with its values), in the order of a descent."""
    return [space.box.field_of(name) for name in field_order([step.names[0] for step in space.steps])]


def _index(board: SearchState, config: Config) -> int:
    index = board.index(config)
    assert index is not None, config
    return index

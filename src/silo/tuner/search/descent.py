"""Coordinate descent, by the rules of PyTorch Inductor's ``CoordescTuner``.

For one field after another, each neighbour of the best config in that field is measured, and the search moves at once
to a neighbour that is better by more than a thousandth. Passes over all fields are repeated until a pass finds nothing
better. Inductor limits each field; here, the space limits the fields.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Protocol

from silo.core.lattice import Axis, Lattice
from silo.tuner.search.search_state import Asking, Questions, SearchState

__all__ = ["THRESHOLD", "Points", "all_directions_plan", "field_order", "move_values", "passes", "plan"]

# A config is better if its time is below the best time times 1 - THRESHOLD.
THRESHOLD = 0.001

_BLOCKS = ("XBLOCK", "YBLOCK", "ZBLOCK", "R0_BLOCK", "R1_BLOCK", "BLOCK_M", "BLOCK_N", "BLOCK_K")
_LAST = ("num_warps", "num_stages", "waves_per_eu", "NUM_STAGES")
_DOUBLED = frozenset((*_BLOCKS, "num_warps", "waves_per_eu"))
_COUNTED = frozenset(("num_stages", "NUM_STAGES"))
_COMBO = re.compile(rf"({'|'.join(_BLOCKS)})_\d+")


class Points(Protocol):
    """Configs by index and by coordinates: a :class:`silo.core.lattice.Lattice` or a :class:`silo.core.lattice.Box`."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The parameters with their values."""
        ...

    def coordinates(self, index: int) -> tuple[int, ...]:
        """Returns, for each axis, the position of the config's value among the values of the axis."""
        ...

    def along(self, index: int, axis: int, value_indices: Sequence[int]) -> Iterator[int]:
        """Yields the configs that differ from ``index`` only on ``axis``, and have one of ``value_indices`` there."""
        ...


def field_order(names: Sequence[str]) -> list[str]:
    """Returns the names of fields in the order in which a pass tries them.

    First come blocks of sub-kernels, then blocks, names that Inductor does not use, warps, and stages.

    >>> field_order(["GROUP", "NUM_STAGES", "num_stages", "num_warps", "R0_BLOCK", "XBLOCK", "XBLOCK_0"])
    ['XBLOCK_0', 'XBLOCK', 'R0_BLOCK', 'GROUP', 'num_warps', 'num_stages', 'NUM_STAGES']
    """

    def rank(name: str) -> tuple[int, int, str]:
        if _COMBO.fullmatch(name):
            return 0, 0, name
        if name in _BLOCKS:
            return 1, _BLOCKS.index(name), name
        if name in _LAST:
            return 3, _LAST.index(name), name
        return 2, 0, name

    return sorted(names, key=rank)


def move_values(axis: Axis, value_index: int, radius: int = 1) -> Iterator[list[int]]:
    """Yields lists of positions on ``axis`` to try from the position ``value_index``, in order.

    The caller stops a list at its first position whose config is not in the space.

    The first list holds ``radius`` steps up, the second as many down, and each value without order has a list of its
    own. A step doubles or halves blocks and counts of warps, and adds or subtracts one stage. On other axes, a step
    doubles or halves if all numbers are powers of two, and otherwise goes to the next number. If an axis lacks the
    number that a step leads to, the next number beyond is used.
    """
    numbers, count = axis.numbers, len(axis.numbers)
    if value_index < count:
        doubled = _is_doubled(axis)
        radius = max(radius, 2) if axis.name == "NUM_STAGES" else radius
        for up in (True, False):
            places: list[int] = []
            at = value_index
            for _ in range(radius):
                if up:
                    limit = 2 * numbers[at] if doubled else numbers[at]
                    reached = next(
                        (index_reached for index_reached in range(at + 1, count) if numbers[index_reached] >= limit),
                        None,
                    )
                else:
                    limit = numbers[at] // 2 if doubled else numbers[at]
                    reached = next(
                        (index_reached for index_reached in range(at - 1, -1, -1) if numbers[index_reached] <= limit),
                        None,
                    )
                if reached is None:
                    break
                places.append(reached)
                at = reached
            yield places
        yield from ([other] for other in range(count, len(axis)))
    else:
        yield from ([other] for other in range(len(axis)) if other != value_index)


def plan(board: SearchState) -> Asking:  # noqa: ARG001  # all searchers have this form
    """Returns a search that descends from the best seed, or from the first config of the space."""
    return Asking(partial(_descend, all_directions=False))


def all_directions_plan(board: SearchState) -> Asking:  # noqa: ARG001
    """Like :func:`plan`, but once no single field helps, tries all combinations of neighbours in every field."""
    return Asking(partial(_descend, all_directions=True))


def _descend(board: SearchState, *, all_directions: bool) -> Questions:
    lattice = board.lattice
    numbers = {axis.name: number for number, axis in enumerate(lattice.axes)}
    fields = [numbers[name] for name in field_order(list(numbers))]
    best = next(iter(board.hopeful_seeds()), 0)
    yield [best]
    best_time = board.cost(best)
    improved = True
    while improved:
        best = yield from passes(board, lattice, best, fields)
        best_time, improved = board.cost(best), False
        if all_directions:
            around = _around(lattice, best, fields)
            yield around
            for index in around:
                if board.cost(index) < best_time * (1 - THRESHOLD):
                    best, best_time, improved = index, board.cost(index), True


def passes(board: SearchState, points: Points, best: int, fields: Sequence[int]) -> Generator[Sequence[int], None, int]:
    """Makes passes over all fields until one finds nothing better; returns the best config.

    Starts at ``best``, whose time must be known. Yields the configs whose times are needed.
    """
    best_time = board.cost(best)
    improved = True
    while improved:
        improved = False
        for field in fields:
            near = _near(points, best, field)
            yield near
            for index in near:
                if board.cost(index) < best_time * (1 - THRESHOLD):
                    best, best_time, improved = index, board.cost(index), True
    return best


def _near(points: Points, index: int, field: int) -> list[int]:
    """Returns the neighbours of one config in one field.

    The steps in each direction end before the first config that is not in the space.
    """
    neighbours: list[int] = []
    for places in move_values(points.axes[field], points.coordinates(index)[field]):
        for position in places:
            reached = next(points.along(index, field, [position]), None)
            if reached is None:
                break
            neighbours.append(reached)
    return neighbours


def _around(lattice: Lattice, index: int, fields: Sequence[int]) -> list[int]:
    """Returns the configs of the space that combine neighbours of one config in every field, in product order."""
    origin = lattice.coordinates(index)
    choices = [
        [position for places in move_values(lattice.axes[field], origin[field]) for position in places]
        + [origin[field]]
        if origin[field] < len(lattice.axes[field])
        else [origin[field]]
        for field in fields
    ]
    neighbours: list[int] = []
    for chosen in itertools.product(*choices):
        coordinates = list(origin)
        for field, position in zip(fields, chosen, strict=True):
            coordinates[field] = position
        reached = lattice.at(coordinates)
        if reached is not None and reached != index:
            neighbours.append(reached)
    return neighbours


def _is_doubled(axis: Axis) -> bool:
    if axis.name in _DOUBLED or _COMBO.fullmatch(axis.name):
        return True
    if axis.name in _COUNTED:
        return False
    return all(isinstance(value, int) and value > 0 and value & (value - 1) == 0 for value in axis.numbers)

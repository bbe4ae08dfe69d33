"""Boxes: all combinations of the values of some parameters, which are never laid out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.lattice import Axis, identity_of, strides_of
from silo.core.values import Value

__all__ = ["Box", "Field"]


@dataclass(frozen=True, slots=True)
class Field:
    """Parameters that always have one value, and the values it may have. ``optional``: configs may lack them."""

    names: tuple[str, ...]
    axis: Axis
    optional: bool = False


class Box:
    """The combinations of the values of ``fields`` that ``allowed`` says yes to, by number.

    As in a :class:`silo.core.lattice.Lattice`, a coordinate is the place of a value on its axis, and the number of an
    axis's values stands for a config without it. Numbers are as large as the box is, nothing is kept for each config.
    """

    def __init__(self, fields: Sequence[Field], allowed: Callable[[Config], bool]) -> None:
        self._fields = tuple(fields)
        self._allowed = allowed
        self.axes = tuple(field.axis for field in self._fields)
        self._places = [{identity_of(value): place for place, value in enumerate(axis.values)} for axis in self.axes]
        self._number = {name: at for at, field in enumerate(self._fields) for name in field.names}
        self._strides = strides_of([len(axis) + 1 for axis in self.axes])

    @property
    def size(self) -> int:
        """How many combinations there are, those that are not allowed among them."""
        return math.prod(len(field.axis) + field.optional for field in self._fields)

    def field_of(self, name: str) -> int:
        """The number of the axis that holds a parameter."""
        return self._number[name]

    def index(self, config: Config) -> int | None:
        """The number of ``config``, or None where it is none of the box."""
        found: dict[int, list[object]] = {}
        for name, value in (*config.values, *config.options):
            number = self._number.get(name)
            if number is None:
                return None
            found.setdefault(number, []).append(identity_of(value))
        coordinates: list[int] = []
        for number, field in enumerate(self._fields):
            values = found.get(number, [])
            if not values and field.optional:
                coordinates.append(len(field.axis))
                continue
            place = self._places[number].get(values[0]) if values else None
            if place is None or values != [values[0]] * len(field.names):
                return None
            coordinates.append(place)
        return self._code(coordinates) if self._allowed(config) else None

    def config(self, index: int) -> Config:
        """The config with a number that :meth:`index` gave."""
        members: dict[str, Value] = {}
        for field, place in zip(self._fields, self.coordinates(index), strict=True):
            if place < len(field.axis):
                members |= dict.fromkeys(field.names, field.axis.values[place])
        return Config.of(members)

    def coordinates(self, index: int) -> tuple[int, ...]:
        """The coordinates of a config, one for each axis."""
        lengths = [len(axis) + 1 for axis in self.axes]
        return tuple(index // stride % length for stride, length in zip(self._strides, lengths, strict=True))

    def along(self, index: int, axis: int, places: Sequence[int]) -> Iterator[int]:
        """The configs that differ from one only on ``axis``, where they have one of ``places``; in that order."""
        base = index - self.coordinates(index)[axis] * self._strides[axis]
        for place in places:
            reached = base + place * self._strides[axis]
            if reached != index and self._allowed(self.config(reached)):
                yield reached

    def _code(self, coordinates: Sequence[int]) -> int:
        return sum(map(int.__mul__, coordinates, self._strides))

"""Lattices and boxes: configs by their coordinates, so that neighbours are found without searching all configs.

A lattice holds a list of configs; a box holds all combinations of some values without listing them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from silo.core.config import Config
from silo.core.values import Value, canonical_json, identity_of, value_to_json

__all__ = ["Axis", "Box", "Field", "Lattice", "strides_of"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter and the values it takes: numbers by size, then the others.

    Values that are not numbers (bools, strings, None, ...) have no meaningful order; they are sorted by canonical text.
    """

    name: str
    numbers: tuple[int | float, ...]
    others: tuple[Value, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        """All values of the axis; a coordinate is an index into them."""
        return (*self.numbers, *self.others)

    def __len__(self) -> int:
        return len(self.numbers) + len(self.others)

    @classmethod
    def of(cls, name: str, values: Iterable[Value]) -> Axis:
        """Returns the axis ``name`` with the given values, which must be distinct."""
        numbers: list[int | float] = []
        others: list[Value] = []
        for value in values:
            if isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
                numbers.append(value)
            else:
                others.append(value)
        numbers.sort(key=lambda value: (value, type(value).__name__))
        others.sort(key=lambda value: canonical_json(value_to_json(value)))
        return cls(name, tuple(numbers), tuple(others))


class Lattice:
    """Distinct configs, each with one coordinate on each axis.

    A coordinate is the index of the config's value on the axis; the length of the axis stands for a config without that
    parameter. Building a lattice looks at each value once.

    >>> lattice = Lattice([Config.of(BLOCK=block, num_warps=4) for block in (128, 64, 256)])
    >>> lattice.coordinates(0), [str(lattice.configs[at]) for at in lattice.neighbours(0)]
    ((1, 0), ['BLOCK=64, num_warps=4', 'BLOCK=256, num_warps=4'])
    """

    def __init__(self, configs: Sequence[Config]) -> None:
        self.configs = tuple(configs)
        values_of: dict[str, dict[object, Value]] = {}
        for config in self.configs:
            for name, value in (*config.values, *config.options):
                values_of.setdefault(name, {}).setdefault(identity_of(value), value)
        self.axes = tuple(Axis.of(name, values_of[name].values()) for name in sorted(values_of))
        self._value_indices = [
            {identity_of(value): position for position, value in enumerate(axis.values)} for axis in self.axes
        ]
        self._number = {axis.name: at for at, axis in enumerate(self.axes)}
        self.columns = self._columns()
        self._strides = strides_of([len(axis) + 1 for axis in self.axes])
        self._codes = [0] * len(self.configs)
        for column, stride in zip(self.columns, self._strides, strict=True):
            self._codes = [code + position * stride for code, position in zip(self._codes, column, strict=True)]

    def __len__(self) -> int:
        return len(self.configs)

    def index(self, config: Config) -> int | None:
        """Returns the index of ``config``, or None if it is not in the lattice."""
        places = [len(axis) for axis in self.axes]
        for name, value in (*config.values, *config.options):
            number = self._number.get(name)
            position = None if number is None else self._value_indices[number].get(identity_of(value))
            if number is None or position is None:
                return None
            places[number] = position
        return self.at(places)

    def at(self, coordinates: Sequence[int]) -> int | None:
        """Returns the index of the config with these coordinates, or None if the lattice has no such config."""
        return self._by_code.get(sum(map(int.__mul__, coordinates, self._strides)))

    def coordinates(self, index: int) -> tuple[int, ...]:
        """The coordinates of a config, one for each axis."""
        return tuple(column[index] for column in self.columns)

    def along(self, index: int, axis: int, value_indices: Sequence[int]) -> Iterator[int]:
        """Yields the indices of the configs that differ from config ``index`` only on ``axis``.

        Their values on ``axis`` are those at ``value_indices``, in that order.
        """
        base = self._codes[index] - self.columns[axis][index] * self._strides[axis]
        for position in value_indices:
            index_at = self._by_code.get(base + position * self._strides[axis])
            if index_at is not None and index_at != index:
                yield index_at

    def line(self, index: int, axis: int) -> list[int]:
        """Returns the indices of all configs that differ from config ``index`` only in the value on ``axis``."""
        count = len(self.axes[axis])
        return [] if self.columns[axis][index] == count else list(self.along(index, axis, range(count)))

    def steps(self, index: int, axis: int) -> list[int]:
        """Returns the indices of the configs one step away on ``axis``.

        A step leads from a number to the next smaller and the next larger number, and to each value that is not a
        number; from a value that is not a number it leads to every other value.
        """
        position, count, numbers = self.columns[axis][index], len(self.axes[axis]), len(self.axes[axis].numbers)
        if position >= numbers:
            return self.line(index, axis)
        smaller = next(self.along(index, axis, range(position - 1, -1, -1)), None)
        larger = next(self.along(index, axis, range(position + 1, numbers)), None)
        neighbours = [at for at in (smaller, larger) if at is not None]
        return neighbours + list(self.along(index, axis, range(numbers, count)))

    def neighbours(self, index: int) -> list[int]:
        """Returns the indices of the configs one step away, axis by axis in order of name (see :meth:`steps`)."""
        return [at for axis in range(len(self.axes)) for at in self.steps(index, axis)]

    @cached_property
    def _by_code(self) -> dict[int, int]:
        return {code: index for index, code in enumerate(self._codes)}

    def _columns(self) -> tuple[array[int], ...]:
        columns = [array("I", [len(axis)]) * len(self.configs) for axis in self.axes]
        for index, config in enumerate(self.configs):
            for name, value in (*config.values, *config.options):
                number = self._number[name]
                columns[number][index] = self._value_indices[number][identity_of(value)]
        return tuple(columns)


@dataclass(frozen=True, slots=True)
class Field:
    """Parameters that always share one value, and its possible values.

    ``optional``: configs may lack the parameters.
    """

    names: tuple[str, ...]
    axis: Axis
    optional: bool = False


class Box:
    """The combinations of the values of ``fields`` that ``allowed`` accepts, addressed by number.

    As in a :class:`Lattice`, a coordinate is the index of a value on its axis, and the length of the axis stands for a
    config without that parameter. No config is stored.
    """

    def __init__(self, fields: Sequence[Field], allowed: Callable[[Config], bool]) -> None:
        self._fields = tuple(fields)
        self._allowed = allowed
        self.axes = tuple(field.axis for field in self._fields)
        self._value_indices = [
            {identity_of(value): position for position, value in enumerate(axis.values)} for axis in self.axes
        ]
        self._number = {name: at for at, field in enumerate(self._fields) for name in field.names}
        self._strides = strides_of([len(axis) + 1 for axis in self.axes])

    @property
    def size(self) -> int:
        """The number of combinations, including those that are not allowed."""
        return math.prod(len(field.axis) + field.optional for field in self._fields)

    def field_of(self, name: str) -> int:
        """The number of the axis that holds a parameter."""
        return self._number[name]

    def index(self, config: Config) -> int | None:
        """Returns the number of ``config``, or None if it is not in the box."""
        values_of: dict[int, list[object]] = {}
        for name, value in (*config.values, *config.options):
            number = self._number.get(name)
            if number is None:
                return None
            values_of.setdefault(number, []).append(identity_of(value))
        coordinates: list[int] = []
        for number, field in enumerate(self._fields):
            values = values_of.get(number, [])
            if not values and field.optional:
                coordinates.append(len(field.axis))
                continue
            position = self._value_indices[number].get(values[0]) if values else None
            if position is None or values != [values[0]] * len(field.names):
                return None
            coordinates.append(position)
        return self._code(coordinates) if self._allowed(config) else None

    def config(self, index: int) -> Config:
        """Returns the config that has this number: the inverse of :meth:`index`."""
        members: dict[str, Value] = {}
        for field, coordinate in zip(self._fields, self.coordinates(index), strict=True):
            if coordinate < len(field.axis):
                members |= dict.fromkeys(field.names, field.axis.values[coordinate])
        return Config.of(members)

    def coordinates(self, index: int) -> tuple[int, ...]:
        """Returns the coordinates of a config, one for each axis."""
        lengths = [len(axis) + 1 for axis in self.axes]
        return tuple(index // stride % length for stride, length in zip(self._strides, lengths, strict=True))

    def along(self, index: int, axis: int, value_indices: Sequence[int]) -> Iterator[int]:
        """Yields the numbers of the configs that differ from config ``index`` only on ``axis``.

        Their values on ``axis`` are those at ``value_indices``, in that order.
        """
        base = index - self.coordinates(index)[axis] * self._strides[axis]
        for position in value_indices:
            reached = base + position * self._strides[axis]
            if reached != index and self._allowed(self.config(reached)):
                yield reached

    def _code(self, coordinates: Sequence[int]) -> int:
        return sum(map(int.__mul__, coordinates, self._strides))


def strides_of(lengths: Sequence[int]) -> list[int]:
    """Returns, for each of the axes of these lengths, how much a config's number grows with one step along the axis."""
    strides: list[int] = []
    product = 1
    for length in lengths:
        strides.append(product)
        product *= length
    return strides

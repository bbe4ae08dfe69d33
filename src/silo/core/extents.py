"""Extents: array shapes, strides or grids that a kernel's code is compiled for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from silo.core.dynamic_layout import DynamicLayout
from silo.core.json_reader import INTEGER, Persisted, listed, read_integers, read_list, read_pairs
from silo.core.nodes import Argument, Extent, Node, Stride, leaves
from silo.core.signature import ParameterKind, Signature
from silo.core.values import JSON, MAX_AXES, malformed
from silo.frozen import field, frozen

__all__ = [
    "ArrayExtents",
    "ExtentKind",
    "Extents",
    "HeldExtents",
    "extents_from_json",
    "extents_to_json",
    "grid_from_json",
    "guard_for_grid",
    "kind_of",
    "shape_text",
]

_AXES = 3  # held for a grid
_WORD = 1 << 63


class ExtentKind(Enum):
    """The part of an array's layout that decides the code."""

    SHAPE = "shape"
    LAYOUT = "layout"  # the shape and the strides of an array
    DYNAMIC = "dynamic"  # :class:`silo.core.dynamic_layout.DynamicLayout` describes both, which are passed


@frozen
class HeldExtents:
    """Which extents of a call decide the code of a kernel: extents of ``arguments``, by name, and perhaps its grid.

    A kernel that has some is compiled for each of their values; its guard holds each of these numbers, or all facts of
    a dynamic layout that code may assume.

    >>> HeldExtents.of({"x": "shape", "out": "layout"}).names
    ('out', 'x')
    """

    arguments: tuple[tuple[str, ExtentKind], ...] = ()
    grid: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", tuple(sorted(self.arguments, key=lambda item: item[0])))
        if len(set(self.names)) != len(self.arguments):
            raise ValueError(f"an argument is named twice: {', '.join(self.names)}")

    @classmethod
    def of(cls, arguments: Mapping[str, str | ExtentKind] | None = None, *, grid: bool = False) -> HeldExtents:
        """Makes the value from ``{"x": "shape", "out": "layout"}``."""
        return cls(tuple((name, ExtentKind(kind)) for name, kind in (arguments or {}).items()), grid)

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments, sorted."""
        return tuple(name for name, _ in self.arguments)

    def kind_of(self, name: str) -> ExtentKind | None:
        """The extents of one argument that decide the code; None: none."""
        return dict(self.arguments).get(name)

    def with_arguments(self, others: Mapping[str, ExtentKind]) -> HeldExtents:
        """These and others; for an argument that is in both, the one that holds more."""
        joined = dict(self.arguments)
        for name, kind in others.items():
            # A layout contains a shape and a dynamic layout; those two do not contain each other.
            joined[name] = kind if joined.get(name, kind) is kind else ExtentKind.LAYOUT
        return HeldExtents(tuple(joined.items()), self.grid)

    def __bool__(self) -> bool:
        return self.grid or bool(self.arguments)


@frozen
class Extents(Persisted):
    """The extents of one array. ``strides`` count elements; None: code made for this shape takes any strides."""

    title = "the extents of an array"

    shape: tuple[int, ...] = field(form=listed(INTEGER, most=MAX_AXES))
    strides: tuple[int, ...] | None = field(default=None, form=listed(INTEGER, most=MAX_AXES), left_out=True)

    def __post_init__(self) -> None:
        if any(not 0 <= size < _WORD for size in self.shape):
            raise ValueError(f"not a shape: {self.shape!r}")
        if self.strides is None:
            return
        if len(self.strides) != len(self.shape) or any(not -_WORD <= step < _WORD for step in self.strides):
            raise ValueError(f"not the strides of an array of shape {self.shape!r}: {self.strides!r}")

    @property
    def kind(self) -> ExtentKind:
        """The part of the array's layout that decides the code."""
        return ExtentKind.SHAPE if self.strides is None else ExtentKind.LAYOUT

    def __str__(self) -> str:
        return shape_text(self.shape) + ("" if self.strides is None else f", strides {shape_text(self.strides)}")

    def problem(self, shape: tuple[int, ...] | None, strides: tuple[int, ...] | None) -> str | None:
        """The reason why code for these extents does not take an array with other extents; None if it does.

        >>> Extents((64, 64)).problem((128, 64), None)
        'shape (128, 64), this variant was built for (64, 64)'
        """
        if shape != self.shape:
            given = "no shape" if shape is None else f"shape {shape_text(shape)}"
            return f"{given}, this variant was built for {shape_text(self.shape)}"
        if self.strides is None or strides == self.strides:
            return None
        given = "no strides" if strides is None else f"strides {shape_text(strides)}"
        return f"{given}, this variant was built for {shape_text(self.strides)}"

    def may_have(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape, with any strides, may have one of these extents."""
        return tuple(shape) == self.shape


ArrayExtents: TypeAlias = Extents | DynamicLayout
"""The extents of one array that code was made for: fixed numbers, or facts about numbers that are passed."""


def kind_of(extents: ArrayExtents) -> ExtentKind:
    """The fact that a guard holds for these extents."""
    return ExtentKind.DYNAMIC if isinstance(extents, DynamicLayout) else extents.kind


def array_extents_from_json(data: JSON) -> ArrayExtents:
    """The inverse of both ``to_json``; ``ValueError`` on anything else."""
    dynamic = isinstance(data, dict) and "axes" in data
    return DynamicLayout.from_json(data) if dynamic else Extents.from_json(data)


def extents_to_json(extents: Iterable[tuple[str, ArrayExtents]]) -> JSON:
    """Those of several arrays, by name."""
    return [[name, one.to_json()] for name, one in extents]


def extents_from_json(data: JSON) -> tuple[tuple[str, ArrayExtents], ...]:
    """The inverse of :func:`extents_to_json`; ``ValueError`` on anything else, and on a name that occurs twice."""
    pairs = read_pairs(data, "the extents of arrays")
    names = [name for name, _ in pairs]
    if not pairs or names != sorted(set(names)):
        raise malformed("the extents of arrays, sorted by name", data)
    return tuple((name, array_extents_from_json(item)) for name, item in pairs)


def guard_for_grid(
    held: HeldExtents, grid: Sequence[Node] | None, signature: Signature
) -> tuple[HeldExtents, frozenset[str]]:
    """The facts of a guard if a declared grid decides the code too: extents, and arguments by their exact value.

    The grid follows from these and the config, and the config from the guard, so the guard holds the grid.
    """
    if not held.grid or grid is None:
        return held, frozenset()
    passed = {one.name for one in signature.parameters if one.kind is not ParameterKind.CONSTEXPR}
    values: set[str] = set()
    arrays: dict[str, ExtentKind] = {}
    for leaf in (leaf for axis in grid for leaf in leaves(axis)):
        if isinstance(leaf, Argument):
            values.add(leaf.name)
        elif isinstance(leaf, Stride):
            arrays[leaf.argument] = ExtentKind.LAYOUT
        elif isinstance(leaf, Extent):
            arrays.setdefault(leaf.argument, ExtentKind.SHAPE)
    return held.with_arguments(arrays), frozenset(values & passed)


def grid_from_json(data: JSON) -> tuple[int, int, int]:
    """The three dimensions of a grid; ``ValueError`` on anything else."""
    dims = read_integers(read_list(data, "a grid", _AXES), "a grid")  # pyright: ignore[reportArgumentType]  # a list
    if len(dims) != _AXES or any(not 0 <= size < _WORD for size in dims):
        raise malformed("a grid", data)
    return dims[0], dims[1], dims[2]


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape, strides or a grid for people.

    >>> shape_text((64,)), shape_text(())
    ('(64,)', '()')
    """
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"

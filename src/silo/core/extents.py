"""Extents that code is compiled for: shapes, strides or grids; and layouts of arrays whose extents a call passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from silo.core.expressions import Argument, Extent, Node, Stride, leaves
from silo.core.json_reader import (
    INTEGER,
    NATURAL,
    Persisted,
    PersistedRow,
    listed,
    optional,
    read_integers,
    read_list,
    read_natural,
    read_object,
    read_pairs,
    value_of,
)
from silo.core.signature import ParameterKind, Signature
from silo.core.values import JSON, MAX_AXES, malformed
from silo.frozen import field, frozen

__all__ = [
    "LAYOUT_MEMBERS",
    "MAX_DYNAMIC_AXES",
    "ArrayExtents",
    "DynamicAxis",
    "DynamicLayout",
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

MAX_DYNAMIC_AXES = 5
LAYOUT_MEMBERS = ("axes", "bits")  # members of a DynamicLayout's JSON
_MOST_DIVISOR = 128
_WIDE = 1 << 31
# The most bits that a load moves. The strides of a tensor map must be multiples of as many bits.
_VECTOR_BITS = 128


@frozen
class DynamicAxis(PersistedRow):
    """Assumptions about one axis: its extent is a multiple of ``divisor``, its stride of ``stride_divisor``.

    Both are powers of two, in elements. ``stride`` is 0 or 1 if that value is compiled in, None if the stride is
    passed.
    """

    title = "an axis of a dynamic layout"

    divisor: int = field(default=1, form=NATURAL)
    stride: int | None = field(default=None, form=optional(NATURAL))
    stride_divisor: int = field(default=1, form=NATURAL)

    def __post_init__(self) -> None:
        for divisor in (self.divisor, self.stride_divisor):
            if not 1 <= divisor <= _MOST_DIVISOR or divisor & (divisor - 1):
                raise ValueError(f"a divisor is a power of two up to {_MOST_DIVISOR}, not {divisor}")
        if self.stride not in (None, 0, 1) or (self.stride is not None and self.stride_divisor != 1):
            raise ValueError("a stride of an axis that is compiled in is 0 or 1, and has no divisor")

    def holds(self, call: DynamicAxis) -> bool:
        """Whether a call with the facts ``call`` meets all assumptions of this axis."""
        steps = _VECTOR_BITS if call.stride == 0 else call.stride_divisor  # 0 is a multiple of every number
        return (
            call.divisor % self.divisor == 0
            and (self.stride is None or self.stride == call.stride)
            and steps % self.stride_divisor == 0
        )


_LAYOUT_AXES: Final = listed(value_of(DynamicAxis), most=MAX_DYNAMIC_AXES)


@frozen
class DynamicLayout:
    """The assumptions of code about one array whose extents and strides are passed to it, for up to 5 axes.

    ``size_bits`` is 32 if every extent fits a signed integer of 32 bits. ``offset_bits`` is 32 if every stride, and the
    distance from the first element to the farthest (in elements), fit such an integer. A width of 64 assumes nothing.

    >>> layout = DynamicLayout.of((30, 64), (64, 1), bits=16)
    >>> str(layout)
    'layout (n, 8n), strides (8s, 1), 32-bit extents, 32-bit offsets'
    >>> DynamicLayout((DynamicAxis(), DynamicAxis(stride=1))).problem(layout) is None
    True
    """

    axes: tuple[DynamicAxis, ...]
    size_bits: int = 32
    offset_bits: int = 32

    def __post_init__(self) -> None:
        if len(self.axes) > MAX_DYNAMIC_AXES:
            raise ValueError(f"a dynamic layout has up to {MAX_DYNAMIC_AXES} axes, not {len(self.axes)}")
        if self.size_bits not in (32, 64) or self.offset_bits not in (32, 64):
            raise ValueError("the extents and offsets of a dynamic layout have 32 or 64 bits")

    @classmethod
    def of(cls, shape: Sequence[int], strides: Sequence[int], bits: int) -> DynamicLayout:
        """Returns the layout with all facts that hold for an array whose elements have ``bits`` bits.

        The facts are, for each extent and stride, whether it is a multiple of 16 bytes; for each stride, whether it is
        0 or 1; and the widths. Raises ``ValueError`` for more than 5 axes.
        """
        divisor = _VECTOR_BITS // bits if bits > 0 and _VECTOR_BITS % bits == 0 else 1

        def divides(value: int) -> int:
            return divisor if value % divisor == 0 else 1

        axes = tuple(
            DynamicAxis(divides(size), step if step in (0, 1) else None, 1 if step in (0, 1) else divides(step))
            for size, step in zip(shape, strides, strict=True)
        )
        empty = 0 in shape
        reach = 0 if empty else sum((size - 1) * abs(step) for size, step in zip(shape, strides, strict=True))
        narrow = reach < _WIDE and all(-_WIDE <= step < _WIDE for step in strides)
        return cls(axes, 32 if all(size < _WIDE for size in shape) else 64, 32 if narrow else 64)

    @classmethod
    def of_word(cls, word: int) -> DynamicLayout:
        """Returns the layout that a word of guard code stands for (``native/core/dynamic_layout.h``)."""
        divisor = 1 << (word >> 25 & 7)

        def axis(bits: int) -> DynamicAxis:
            stride = (None, 1, 0)[bits >> 1 & 3]
            return DynamicAxis(divisor if bits & 1 else 1, stride, divisor if bits & 8 else 1)

        axes = tuple(axis(word >> (5 + 4 * number) & 15) for number in range(word & 7))
        return cls(axes, 64 if word & 8 else 32, 64 if word & 16 else 32)

    @property
    def word(self) -> int:
        """The word of guard code for this layout: the inverse of :meth:`of_word`.

        >>> layout = DynamicLayout.of((30, 64), (64, 1), bits=16)
        >>> DynamicLayout.of_word(layout.word) == layout
        True
        """
        divisor = max(
            (axis_divisor for axis in self.axes for axis_divisor in (axis.divisor, axis.stride_divisor)), default=1
        )
        word = len(self.axes) | (self.size_bits == 64) << 3 | (self.offset_bits == 64) << 4
        for number, axis in enumerate(self.axes):
            stride = (None, 1, 0).index(axis.stride)
            word |= ((axis.divisor > 1) | stride << 1 | (axis.stride_divisor > 1) << 3) << (5 + 4 * number)
        return word | divisor.bit_length() - 1 << 25

    def __str__(self) -> str:
        sizes = (_multiple("n", axis.divisor) for axis in self.axes)
        steps = (_multiple("s", axis.stride_divisor) if axis.stride is None else str(axis.stride) for axis in self.axes)
        return (
            f"layout ({', '.join(sizes)}), strides ({', '.join(steps)}), {self.size_bits}-bit extents, "
            f"{self.offset_bits}-bit offsets"
        )

    def problem(self, call: DynamicLayout | None) -> str | None:
        """Returns why code with these assumptions refuses an array with the facts ``call``; None if the code fits."""
        if call is None:
            return f"no layout of up to {MAX_DYNAMIC_AXES} axes, this variant was built for {self}"
        if (
            len(call.axes) == len(self.axes)
            and call.size_bits <= self.size_bits
            and call.offset_bits <= self.offset_bits
            and all(own.holds(other) for own, other in zip(self.axes, call.axes, strict=True))
        ):
            return None
        return f"{call}, this variant was built for {self}"

    def may_have(self, shape: Sequence[int]) -> bool:
        """Whether some strides exist with which an array of this shape meets these assumptions."""
        fit = len(shape) == len(self.axes) and (self.size_bits == 64 or all(size < _WIDE for size in shape))
        return fit and all(size % axis.divisor == 0 for size, axis in zip(shape, self.axes, strict=True))

    def to_json(self) -> JSON:
        """Returns the canonical JSON form."""
        return {
            "axes": _LAYOUT_AXES.write(self.axes),
            "bits": [self.size_bits, self.offset_bits],
        }

    @classmethod
    def from_json(cls, data: JSON) -> DynamicLayout:
        """Returns the layout with this JSON form; raises ``ValueError`` for any other JSON."""
        members = read_object(data, LAYOUT_MEMBERS, "a dynamic layout")
        bits = [read_natural(item, "the bits of a dynamic layout") for item in read_list(members["bits"], "bits", 2)]
        if len(bits) != 2:
            raise malformed("a dynamic layout", data)
        return cls(_LAYOUT_AXES.read(members["axes"], "the axes of a dynamic layout"), bits[0], bits[1])


def _multiple(name: str, divisor: int) -> str:
    return name if divisor == 1 else f"{divisor}{name}"


_AXES = 3  # dimensions of a grid
_WORD = 1 << 63


class ExtentKind(Enum):
    """The part of an array's layout that decides the code."""

    SHAPE = "shape"
    LAYOUT = "layout"  # the shape and the strides of an array
    # shape and strides are passed to the code, whose assumptions about them are a :class:`DynamicLayout`
    DYNAMIC = "dynamic"


@frozen
class HeldExtents:
    """The extents of a call that decide the code of a kernel: extents of ``arguments``, by name, and perhaps its grid.

    A kernel with such extents is compiled for each of their values. Its guard compares each of these numbers, or, for a
    dynamic layout, all facts that the code may assume.

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
        """Returns the extents that a mapping such as ``{"x": "shape", "out": "layout"}`` declares."""
        return cls(tuple((name, ExtentKind(kind)) for name, kind in (arguments or {}).items()), grid)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments, sorted."""
        return tuple(name for name, _ in self.arguments)

    def kind_of(self, name: str) -> ExtentKind | None:
        """Returns which extents of an argument decide the code; None if none do."""
        return dict(self.arguments).get(name)

    def with_arguments(self, others: Mapping[str, ExtentKind]) -> HeldExtents:
        """Returns these extents and ``others``; an argument in both gets a kind that includes both kinds."""
        joined = dict(self.arguments)
        for name, kind in others.items():
            # LAYOUT includes SHAPE and DYNAMIC; neither of these includes the other.
            joined[name] = kind if joined.get(name, kind) is kind else ExtentKind.LAYOUT
        return HeldExtents(tuple(joined.items()), self.grid)

    def __bool__(self) -> bool:
        return self.grid or bool(self.arguments)


@frozen
class Extents(Persisted):
    """The extents of one array.

    ``strides`` count elements; None means that code made for this shape takes any strides.
    """

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
        """Returns why code for these extents refuses an array of this shape and these strides; None if the code fits.

        >>> Extents((64, 64)).problem((128, 64), None)
        'shape (128, 64), this variant was built for (64, 64)'
        """
        if shape != self.shape:
            actual = "no shape" if shape is None else f"shape {shape_text(shape)}"
            return f"{actual}, this variant was built for {shape_text(self.shape)}"
        if self.strides is None or strides == self.strides:
            return None
        actual = "no strides" if strides is None else f"strides {shape_text(strides)}"
        return f"{actual}, this variant was built for {shape_text(self.strides)}"

    def may_have(self, shape: Sequence[int]) -> bool:
        """Whether some strides exist with which an array of this shape has these extents."""
        return tuple(shape) == self.shape


ArrayExtents: TypeAlias = Extents | DynamicLayout
"""The extents of one array that code was made for: fixed numbers, or facts about numbers that are passed."""


def kind_of(extents: ArrayExtents) -> ExtentKind:
    """Returns the kind of extents that a guard compares for this array."""
    return ExtentKind.DYNAMIC if isinstance(extents, DynamicLayout) else extents.kind


def array_extents_from_json(data: JSON) -> ArrayExtents:
    """Returns extents or a dynamic layout, whichever the JSON holds; raises ``ValueError`` for any other JSON."""
    dynamic = isinstance(data, dict) and "axes" in data
    return DynamicLayout.from_json(data) if dynamic else Extents.from_json(data)


def extents_to_json(extents: Iterable[tuple[str, ArrayExtents]]) -> JSON:
    """Returns the JSON of the extents of several arrays: pairs of a name and its extents."""
    return [[name, extent.to_json()] for name, extent in extents]


def extents_from_json(data: JSON) -> tuple[tuple[str, ArrayExtents], ...]:
    """Returns pairs of an array's name and its extents from their JSON.

    Raises ``ValueError`` for any other JSON and for repeated names.
    """
    pairs = read_pairs(data, "the extents of arrays")
    names = [name for name, _ in pairs]
    if not pairs or names != sorted(set(names)):
        raise malformed("the extents of arrays, sorted by name", data)
    return tuple((name, array_extents_from_json(item)) for name, item in pairs)


def guard_for_grid(
    held: HeldExtents, grid: Sequence[Node] | None, signature: Signature
) -> tuple[HeldExtents, frozenset[str]]:
    """Returns the extents and the names of arguments that a guard compares to fix a declared grid.

    If the grid decides the code, the extents include the shapes and strides that the grid's expressions read, and the
    guard compares the named arguments by exact value. These values and the config determine the grid, and the guard
    determines the config, so all calls that pass the guard have the same grid.
    """
    if not held.grid or grid is None:
        return held, frozenset()
    passed = {parameter.name for parameter in signature.parameters if parameter.kind is not ParameterKind.CONSTEXPR}
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
    """Returns the three dimensions of a grid; raises ``ValueError`` for any other JSON."""
    dims = read_integers(read_list(data, "a grid", _AXES), "a grid")  # pyright: ignore[reportArgumentType]  # a list
    if len(dims) != _AXES or any(not 0 <= size < _WORD for size in dims):
        raise malformed("a grid", data)
    return dims[0], dims[1], dims[2]


def shape_text(shape: tuple[int, ...]) -> str:
    """Formats a shape, strides or a grid for messages.

    >>> shape_text((64,)), shape_text(())
    ('(64,)', '()')
    """
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"

"""Dynamic layouts: the assumptions of code about an array whose shape and strides are passed with each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from silo.core.json_reader import (
    NATURAL,
    PersistedRow,
    listed,
    optional,
    read_list,
    read_natural,
    read_object,
    value_of,
)
from silo.core.values import JSON, malformed
from silo.frozen import field, frozen

__all__ = ["LAYOUT_MEMBERS", "MAX_DYNAMIC_AXES", "DynamicAxis", "DynamicLayout"]

MAX_DYNAMIC_AXES = 5
LAYOUT_MEMBERS = ("axes", "bits")  # of its JSON
_MOST_DIVISOR = 128
_WIDE = 1 << 31
# the most bytes that a load or a tensor map moves, and the number that its strides must be multiples of
_VECTOR_BITS = 128


@frozen
class DynamicAxis(PersistedRow):
    """One axis. ``divisor`` and ``stride_divisor`` divide its extent and its stride: powers of two, in elements.

    ``stride`` is 0 or 1 if that value is compiled in, None if the stride is passed.
    """

    title = "an axis of a dynamic layout"

    divisor: int = field(default=1, form=NATURAL)
    stride: int | None = field(default=None, form=optional(NATURAL))
    stride_divisor: int = field(default=1, form=NATURAL)

    def __post_init__(self) -> None:
        for one in (self.divisor, self.stride_divisor):
            if not 1 <= one <= _MOST_DIVISOR or one & (one - 1):
                raise ValueError(f"a divisor is a power of two up to {_MOST_DIVISOR}, not {one}")
        if self.stride not in (None, 0, 1) or (self.stride is not None and self.stride_divisor != 1):
            raise ValueError("a stride of an axis that is compiled in is 0 or 1, and has no divisor")

    def holds(self, call: DynamicAxis) -> bool:
        """Whether a call with the facts ``call`` meets all of these assumptions."""
        steps = _VECTOR_BITS if call.stride == 0 else call.stride_divisor  # 0 is a multiple of anything
        return (
            call.divisor % self.divisor == 0
            and (self.stride is None or self.stride == call.stride)
            and steps % self.stride_divisor == 0
        )


_LAYOUT_AXES: Final = listed(value_of(DynamicAxis), most=MAX_DYNAMIC_AXES)


@frozen
class DynamicLayout:
    """The assumptions of code about one array whose extents and strides are passed to it, for up to 5 axes.

    ``size_bits`` 32: every extent fits a signed integer of 32 bits. ``offset_bits`` 32: so do the strides, and the
    distance from the first element to the farthest, in elements. 64: they may be anything.

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
        """All facts that distinguish layouts of an array whose elements have ``bits`` bits.

        Of each extent and stride whether it is a multiple of 16 bytes; of a stride whether it is 0 or 1; and the
        widths. ``ValueError`` for more than 5 axes.
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
        """The layout of a guard's word (``native/core/dynamic_layout.h``)."""
        divisor = 1 << (word >> 25 & 7)

        def axis(bits: int) -> DynamicAxis:
            stride = (None, 1, 0)[bits >> 1 & 3]
            return DynamicAxis(divisor if bits & 1 else 1, stride, divisor if bits & 8 else 1)

        axes = tuple(axis(word >> (5 + 4 * number) & 15) for number in range(word & 7))
        return cls(axes, 64 if word & 8 else 32, 64 if word & 16 else 32)

    @property
    def word(self) -> int:
        """A guard's word for this layout: the inverse of :meth:`of_word`.

        >>> layout = DynamicLayout.of((30, 64), (64, 1), bits=16)
        >>> DynamicLayout.of_word(layout.word) == layout
        True
        """
        divisor = max((most for axis in self.axes for most in (axis.divisor, axis.stride_divisor)), default=1)
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
        """The reason why code with these assumptions refuses an array with the facts ``call``; None if it does not."""
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
        """Whether an array of this shape, with any strides, may have one of these layouts."""
        fit = len(shape) == len(self.axes) and (self.size_bits == 64 or all(size < _WIDE for size in shape))
        return fit and all(size % axis.divisor == 0 for size, axis in zip(shape, self.axes, strict=True))

    def to_json(self) -> JSON:
        """The canonical form."""
        return {
            "axes": _LAYOUT_AXES.write(self.axes),
            "bits": [self.size_bits, self.offset_bits],
        }

    @classmethod
    def from_json(cls, data: JSON) -> DynamicLayout:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        members = read_object(data, LAYOUT_MEMBERS, "a dynamic layout")
        bits = [read_natural(item, "the bits of a dynamic layout") for item in read_list(members["bits"], "bits", 2)]
        if len(bits) != 2:
            raise malformed("a dynamic layout", data)
        return cls(_LAYOUT_AXES.read(members["axes"], "the axes of a dynamic layout"), bits[0], bits[1])


def _multiple(name: str, divisor: int) -> str:
    return name if divisor == 1 else f"{divisor}{name}"

"""The facts about an argument of a call that lead to a specialization, and descriptions of arguments for messages."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, cast

from silo.core.values import DType, Value, dtype
from silo.frozen import frozen

if TYPE_CHECKING:
    from silo.core.extents import DynamicLayout

__all__ = ["ArgumentFacts", "describe", "describe_array"]


@frozen
class ArgumentFacts:
    """The facts about one argument of one call.

    For an array: ``is_pointer``, its ``dtype`` and ``address``, and ``range32`` if the target's compiler uses the fact
    that offsets fit 32 bits and the array's memory is known to be less than 2 GiB. ``shape`` and ``strides`` are set if
    the source declares that its code is compiled for them, ``layout`` if the source declares that shape and strides are
    passed to the code (a dynamic layout). For a tensor descriptor: the facts of its base array, ``block_shape``,
    ``block_form`` (the number in the guard code that stands for the block's layout in shared memory; 0 for the default
    layout) and ``block_layout`` (the same layout as a value of the kernel's language, or None). For any other argument:
    its ``value``, and the ``dtype`` only if the caller's scalar has one (``numpy.int64``).
    """

    value: Value = None
    dtype: DType | None = None
    is_pointer: bool = False
    address: int = 0
    block_shape: tuple[int, ...] = ()
    block_form: int = 0
    block_layout: Value = None
    range32: bool = False
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    layout: DynamicLayout | None = None

    @classmethod
    def array(cls, element: DType | str, address: int = 0) -> ArgumentFacts:
        """Returns the facts of an array of ``element`` at ``address``; address 0 counts as aligned."""
        return cls(dtype=dtype(element) if isinstance(element, str) else element, is_pointer=True, address=address)


_LENGTH = 60  # the most characters of a description of an argument


class _Words(reprlib.Repr):
    """A ``reprlib.Repr`` that shortens the text of nested values and writes an array as its dtype and shape."""

    def repr1(self, x: Any, level: int) -> str:  # noqa: ANN401
        """Returns the description of an array, or the shortened ``repr`` of any other value."""
        return describe_array(x) or super().repr1(x, level)


_words = _Words()
_words.maxstring = _words.maxother = _words.maxlong = _LENGTH


def describe(value: object) -> str:
    """Describes an argument in at most about 60 characters.

    >>> describe(3), describe(None)
    ('3', 'None')
    >>> from types import SimpleNamespace
    >>> array = SimpleNamespace(dtype="float32", shape=(1000,))
    >>> describe(array), describe([1, array])
    ('float32[1000]', '[1, float32[1000]]')

    For an array on a named device the text ends with the device: ``float32[1000] on cuda:0``. A tensor descriptor is
    described with its base array. Reads attributes of ``value``, which may be an object of a user's class; exceptions
    that these attributes raise are passed on, and no others are raised.
    """
    base, shape = getattr(value, "base", None), getattr(value, "shape", None)
    if hasattr(value, "block_shape") and base is not None and shape is not None:
        return f"{type(value).__name__}{list(cast('tuple[int, ...]', shape))} of {describe(base)}"
    if (array := describe_array(value)) is not None:
        return array
    text = _words.repr(value)
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 3]}..."


def describe_array(value: Any) -> str | None:  # noqa: ANN401
    """Returns the dtype, shape and device of an array, as ``float32[1000] on cuda:0``; None for anything else.

    >>> describe_array(1) is None
    True
    """
    if isinstance(value, type):  # reading ``shape`` of a class returns a property, not a shape
        return None
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or not isinstance(shape, tuple):
        return None
    device = getattr(value, "device", None)
    where = "" if device is None else f" on {device}"
    return f"{str(dtype).removeprefix('torch.')}{list(cast('tuple[int, ...]', shape))}{where}"

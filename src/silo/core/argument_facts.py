"""Facts about one argument of one call, from which sources derive a specialization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silo.core.dtypes import DType, dtype
from silo.core.values import Value
from silo.frozen import frozen

if TYPE_CHECKING:
    from silo.core.dynamic_layout import DynamicLayout

__all__ = ["ArgumentFacts"]


@frozen
class ArgumentFacts:
    """The facts about one argument.

    An array: ``is_pointer``, its ``dtype`` and ``address``, and ``range32`` if its memory is known to be less than 2
    GiB and the target may use that; ``shape`` and ``strides`` if the source declares that they decide its code,
    ``layout`` if it declares that they are passed to the code (a dynamic layout). A tensor descriptor: the same of its
    base, ``block_shape``, ``block_form`` and, once the source has read it, ``block_layout``: how a block lies in shared
    memory, if the descriptor has one. Anything else: its ``value``, with the ``dtype`` only if the caller's scalar has
    one (``numpy.int64``).
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
        """An array of ``element`` at ``address``; address 0 counts as aligned."""
        return cls(dtype=dtype(element) if isinstance(element, str) else element, is_pointer=True, address=address)

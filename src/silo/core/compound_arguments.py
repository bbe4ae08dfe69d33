"""Arguments that hold other values: tuples, described by their structure, and tensor descriptors made on the host.

A kernel that takes a tuple is compiled for the tuple's structure: each value in the tuple becomes a parameter, named by
its path (``xs.0``, or ``xs.scale`` for a field of a NamedTuple). Only the front end of the kernel's language puts the
tuple together again.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias, cast

from silo.core.values import JSON
from silo.errors import ArgumentError
from silo.frozen import frozen

__all__ = ["TensorDescriptor", "TupleShape", "TupleShapes", "flat_names", "leaves", "shape_of"]

_MOST_NESTED = 16


@frozen
class TupleShape:
    """The structure of a tuple.

    ``items`` has an entry for each item: the shape of a nested tuple, or None for any other value. ``fields`` are the
    names of a NamedTuple's fields, and ``kind`` is the name of its class; both are empty for a plain tuple.
    """

    items: tuple[TupleShape | None, ...]
    fields: tuple[str, ...] = ()
    kind: str = ""

    def names(self, path: str) -> tuple[str, ...]:
        """Returns the names of the values in the tuple, in order, for a tuple called ``path``.

        >>> shape_of((1, (2, 3))).names("xs")
        ('xs.0', 'xs.1.0', 'xs.1.1')
        """
        names: list[str] = []
        for position, item in enumerate(self.items):
            name = f"{path}.{self.fields[position] if self.fields else position}"
            names.extend([name] if item is None else item.names(name))
        return tuple(names)

    def made(self, path: str, leaf: Callable[[str, tuple[int, ...]], object], place: tuple[int, ...] = ()) -> Any:  # noqa: ANN401  # a tuple
        """Makes a tuple of this shape.

        ``leaf`` returns each value from its name and its place in the tuple: one index for each level of nesting.

        >>> shape_of((1, (2,))).made("xs", lambda name, place: (name, place))
        (('xs.0', (0,)), (('xs.1.0', (1, 0)),))
        """
        values: list[object] = []
        for index, item in enumerate(self.items):
            name = f"{path}.{self.fields[index] if self.fields else index}"
            at = (*place, index)
            values.append(leaf(name, at) if item is None else item.made(name, leaf, at))
        return _class_of(self.kind, self.fields)(*values) if self.fields else tuple(values)

    def to_json(self) -> JSON:
        """Returns the canonical JSON form, which is part of a kernel's fingerprint."""
        return [self.kind, list(self.fields), [item and item.to_json() for item in self.items]]


TupleShapes: TypeAlias = Mapping[str, TupleShape]
"""The shapes of a call's tuple arguments, by parameter."""


@cache
def _class_of(kind: str, fields: tuple[str, ...]) -> Any:  # noqa: ANN401  # a class
    return namedtuple(kind, fields)  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]  # fields by the call


def shape_of(value: tuple[object, ...], nested: int = 0) -> TupleShape:
    """Returns the shape of a tuple. Raises ArgumentError if tuples are nested too deeply."""
    if nested == _MOST_NESTED:
        raise ArgumentError(f"a tuple argument has at most {_MOST_NESTED} tuples within each other")
    items = tuple(
        shape_of(cast("tuple[object, ...]", item), nested + 1) if isinstance(item, tuple) else None for item in value
    )
    fields = getattr(type(value), "_fields", ())
    return TupleShape(items, tuple(fields), type(value).__name__ if fields else "")


def leaves(value: tuple[object, ...]) -> Iterator[object]:
    """Yields the values in a tuple, in the order of :meth:`TupleShape.names`.

    >>> list(leaves((1, (2, 3))))
    [1, 2, 3]
    """
    for item in value:
        if isinstance(item, tuple):
            yield from leaves(cast("tuple[object, ...]", item))
        else:
            yield item


def flat_names(shapes: TupleShapes, names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the parameter names, with each tuple's name replaced by the names of its values."""
    flat: list[str] = []
    for name in names:
        flat.extend(shapes[name].names(name) if name in shapes else [name])
    return tuple(flat)


@dataclass(eq=False)
class TensorDescriptor:
    """A tensor descriptor that does not need Triton; launches accept Triton's own class too.

    ``base`` is an array at a multiple of 16 bytes; ``strides`` count elements, are multiples of 16 bytes and end in 1;
    ``padding`` is the value that loads outside the array return: ``zero`` or ``nan``; ``round_f32_to_tf32`` rounds
    float32 as it is loaded. ``layout`` is the layout of a block in shared memory (Gluon's ``NVMMASharedLayout``), for
    kernels that depend on it; None means the default of the block. Members may be changed: each launch checks them.
    """

    __tensor_descriptor__: ClassVar[bool] = True

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False
    layout: Any = None

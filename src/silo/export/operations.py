"""The kernels of a bundle as frameworks call them: one function a kernel, whatever its arrays' dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from keyword import iskeyword
from typing import TypeVar

from silo.core.dtypes import DType
from silo.core.signature import NO_DEFAULT, NoDefault
from silo.core.values import Value, identity_of
from silo.export.c_names import Names
from silo.export.function_signatures import Function, Role, Taken

__all__ = ["Given", "GivenArgument", "Operation", "operations_of"]

T = TypeVar("T")


class Given(Enum):
    """What a framework gives for a parameter."""

    TENSOR = "tensor"
    DESCRIPTOR = "descriptor"
    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    TEXT = "text"
    DTYPE = "dtype"
    ANY = "any"  # there is code for values of several types


_TAKEN = frozenset({"functions", "operators", "Kernel", "Library"})  # in the module of a wheel
_OF_ROLE = {
    Role.NULL: Given.TENSOR,
    Role.POINTER: Given.TENSOR,
    Role.ARRAY: Given.TENSOR,
    Role.DESCRIPTOR: Given.DESCRIPTOR,
    Role.INTEGER: Given.INTEGER,
    Role.FLOAT: Given.REAL,
    Role.BOOL: Given.BOOLEAN,
}
_OF_TYPE: dict[type, Given] = {
    str: Given.TEXT,
    bool: Given.BOOLEAN,
    int: Given.INTEGER,
    float: Given.REAL,
    DType: Given.DTYPE,
}


@dataclass(frozen=True, slots=True)
class GivenArgument:
    """One argument of an operation; ``called`` is the kernel's name for it, ``place`` its number among all parameters.

    ``name`` is an identifier of Python, C and C++. ``optional``: None may be given. ``dtypes``: of a tensor's elements.
    ``values``: the constants that there is code for. ``block`` names the block of a descriptor where it is an argument
    of its own.
    """

    called: str
    name: str
    place: int
    given: Given
    optional: bool = False
    writes: bool = False
    dtypes: tuple[DType, ...] = ()
    values: tuple[Value, ...] = ()
    default: Value | NoDefault = NO_DEFAULT
    block: str = ""

    @property
    def has_default(self) -> bool:
        """Whether it may be left out."""
        return not isinstance(self.default, NoDefault)


@dataclass(frozen=True, slots=True)
class Operation:
    """A kernel; ``at`` is its number among the kernels of the library. ``has_grid``: the bundle declares its grid."""

    kernel: str
    name: str
    at: int
    arguments: tuple[GivenArgument, ...]
    has_grid: bool


def operations_of(functions: Sequence[Function]) -> tuple[Operation, ...]:
    """An operation for each kernel, from its functions for all of its dtypes, in order."""
    by_kernel: dict[str, list[Function]] = {}
    for one in functions:
        by_kernel.setdefault(one.kernel, []).append(one)
    return tuple(_operation(at, found) for at, found in enumerate(by_kernel.values()))


def _operation(at: int, functions: Sequence[Function]) -> Operation:
    first = functions[0]
    name = f"{first.name}_" if first.name in _TAKEN or iskeyword(first.name) else first.name
    names = Names(["grid", "self", f"_{name}"])
    columns = zip(*(one.parameters for one in functions), strict=True)
    arguments = [
        _argument(place, column, names)
        for place, column in enumerate(columns)
        if any(one.role is not Role.LEFT for one in column)
    ]
    arguments = tuple(
        replace(one, block=names.give(f"{one.name}_block")) if one.given is Given.DESCRIPTOR else one
        for one in arguments
    )
    return Operation(first.kernel, name, at, arguments, all(one.has_grid for one in functions))


def _argument(place: int, column: Sequence[Taken], names: Names) -> GivenArgument:
    called = column[0].called
    kinds = set[Given]()
    values: list[Value] = []
    for one in column:
        if one.role is Role.CHOICE:
            values += [choice.value for choice in one.choices]
        elif one.role is not Role.LEFT:
            kinds.add(_OF_ROLE[one.role])
    kinds |= {_OF_TYPE[type(value)] for value in values if value is not None}
    nullable = any(one.nullable or one.role is Role.NULL for one in column) or None in values
    defaults = {type(one.default): one.default for one in column}
    return GivenArgument(
        called=called,
        name=names.give(f"{called}_" if iskeyword(called) else called),
        place=place,
        given=kinds.pop() if len(kinds) == 1 else Given.ANY,
        optional=nullable,
        writes=any(one.writes for one in column if one.dtype is not None),
        dtypes=tuple(_unique(one.dtype for one in column if one.dtype is not None)),
        values=tuple(_unique(values)),
        default=column[0].default if len(defaults) == 1 else NO_DEFAULT,
    )


def _unique(values: Iterable[T]) -> list[T]:
    found: list[T] = []
    for one in values:
        if not any(type(other) is type(one) and identity_of(other) == identity_of(one) for other in found):
            found.append(one)
    return found

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
from silo.export.function_signatures import ExportedFunction, ParameterRole, Taken

__all__ = ["ExportedOperation", "GivenArgument", "OperationArgument", "operations_of"]

T = TypeVar("T")


class OperationArgument(Enum):
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
    ParameterRole.NULL: OperationArgument.TENSOR,
    ParameterRole.POINTER: OperationArgument.TENSOR,
    ParameterRole.ARRAY: OperationArgument.TENSOR,
    ParameterRole.DESCRIPTOR: OperationArgument.DESCRIPTOR,
    ParameterRole.INTEGER: OperationArgument.INTEGER,
    ParameterRole.FLOAT: OperationArgument.REAL,
    ParameterRole.BOOL: OperationArgument.BOOLEAN,
}
_OF_TYPE: dict[type, OperationArgument] = {
    str: OperationArgument.TEXT,
    bool: OperationArgument.BOOLEAN,
    int: OperationArgument.INTEGER,
    float: OperationArgument.REAL,
    DType: OperationArgument.DTYPE,
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
    given: OperationArgument
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
class ExportedOperation:
    """A kernel; ``at`` is its number among the kernels of the library. ``has_grid``: the bundle declares its grid."""

    kernel: str
    name: str
    at: int
    arguments: tuple[GivenArgument, ...]
    has_grid: bool


def operations_of(functions: Sequence[ExportedFunction]) -> tuple[ExportedOperation, ...]:
    """An operation for each kernel, from its functions for all of its dtypes, in order."""
    by_kernel: dict[str, list[ExportedFunction]] = {}
    for one in functions:
        by_kernel.setdefault(one.kernel, []).append(one)
    return tuple(_operation(at, found) for at, found in enumerate(by_kernel.values()))


def _operation(at: int, functions: Sequence[ExportedFunction]) -> ExportedOperation:
    first = functions[0]
    name = f"{first.name}_" if first.name in _TAKEN or iskeyword(first.name) else first.name
    names = Names(["grid", "self", f"_{name}"])
    columns = zip(*(one.parameters for one in functions), strict=True)
    arguments = [
        _argument(place, column, names)
        for place, column in enumerate(columns)
        if any(one.role is not ParameterRole.LEFT for one in column)
    ]
    arguments = tuple(
        replace(one, block=names.give(f"{one.name}_block")) if one.given is OperationArgument.DESCRIPTOR else one
        for one in arguments
    )
    return ExportedOperation(first.kernel, name, at, arguments, all(one.has_grid for one in functions))


def _argument(place: int, column: Sequence[Taken], names: Names) -> GivenArgument:
    called = column[0].called
    kinds = set[OperationArgument]()
    values: list[Value] = []
    for one in column:
        if one.role is ParameterRole.CHOICE:
            values += [choice.value for choice in one.choices]
        elif one.role is not ParameterRole.LEFT:
            kinds.add(_OF_ROLE[one.role])
    kinds |= {_OF_TYPE[type(value)] for value in values if value is not None}
    nullable = any(one.nullable or one.role is ParameterRole.NULL for one in column) or None in values
    defaults = {type(one.default): one.default for one in column}
    return GivenArgument(
        called=called,
        name=names.give(f"{called}_" if iskeyword(called) else called),
        place=place,
        given=kinds.pop() if len(kinds) == 1 else OperationArgument.ANY,
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

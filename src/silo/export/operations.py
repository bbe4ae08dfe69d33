"""Kernels in the forms that frameworks call: operators of torch over its stable ABI, and functions of TVM-FFI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from keyword import iskeyword
from typing import TypeVar

from silo.core.signature import NO_DEFAULT, NoDefault
from silo.core.values import DType, Value, identity_of
from silo.errors import BundleError
from silo.export.c_names import Names, string_literal
from silo.export.function_signatures import ExportedFunction, ParameterRole, Taken

__all__ = [
    "ExportedOperation",
    "GivenArgument",
    "OperationArgument",
    "frameworks_source",
    "operations_of",
    "schema",
    "torch_source",
]

# ---- Operations: one function for each kernel, with arrays of any of its dtypes ----

T = TypeVar("T")


class OperationArgument(Enum):
    """The type of object that a framework passes for a parameter."""

    TENSOR = "tensor"
    DESCRIPTOR = "descriptor"
    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    TEXT = "text"
    DTYPE = "dtype"
    ANY = "any"  # code exists for values of several types


_TAKEN = frozenset({"functions", "operators", "Kernel", "Library"})  # taken names in the Python module of a wheel
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
    """One argument of an operation.

    ``called`` is the kernel's name for it, and ``place`` its position among all parameters. ``name`` is an identifier
    of Python, C and C++. ``optional``: None may be passed. ``dtypes`` are the dtypes of a tensor's elements, and
    ``values`` the constants that code exists for. ``block`` is the name of the argument for a descriptor's block shape,
    "" for other arguments.
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
        """Whether callers may omit the argument."""
        return not isinstance(self.default, NoDefault)


@dataclass(frozen=True, slots=True)
class ExportedOperation:
    """A kernel as one function for all of its dtypes.

    ``at`` is its number among the kernels of the library. ``has_grid``: the bundle declares its grid.
    """

    kernel: str
    name: str
    at: int
    arguments: tuple[GivenArgument, ...]
    has_grid: bool


def operations_of(functions: Sequence[ExportedFunction]) -> tuple[ExportedOperation, ...]:
    """Returns an operation for each kernel, made from its functions for all of its dtypes, in order."""
    by_kernel: dict[str, list[ExportedFunction]] = {}
    for function in functions:
        by_kernel.setdefault(function.kernel, []).append(function)
    return tuple(_operation(at, operation_functions) for at, operation_functions in enumerate(by_kernel.values()))


def _operation(at: int, functions: Sequence[ExportedFunction]) -> ExportedOperation:
    first = functions[0]
    name = f"{first.name}_" if first.name in _TAKEN or iskeyword(first.name) else first.name
    names = Names(["grid", "self", f"_{name}"])
    columns = zip(*(function.parameters for function in functions), strict=True)
    arguments = [
        _argument(position, column, names)
        for position, column in enumerate(columns)
        if any(parameter.role is not ParameterRole.LEFT for parameter in column)
    ]
    arguments = tuple(
        replace(argument, block=names.give(f"{argument.name}_block"))
        if argument.given is OperationArgument.DESCRIPTOR
        else argument
        for argument in arguments
    )
    return ExportedOperation(first.kernel, name, at, arguments, all(function.has_grid for function in functions))


def _argument(index: int, column: Sequence[Taken], names: Names) -> GivenArgument:
    called = column[0].called
    kinds = set[OperationArgument]()
    values: list[Value] = []
    for parameter in column:
        if parameter.role is ParameterRole.CHOICE:
            values += [choice.value for choice in parameter.choices]
        elif parameter.role is not ParameterRole.LEFT:
            kinds.add(_OF_ROLE[parameter.role])
    kinds |= {_OF_TYPE[type(value)] for value in values if value is not None}
    nullable = any(parameter.nullable or parameter.role is ParameterRole.NULL for parameter in column) or None in values
    defaults = {type(parameter.default): parameter.default for parameter in column}
    return GivenArgument(
        called=called,
        name=names.give(f"{called}_" if iskeyword(called) else called),
        place=index,
        given=kinds.pop() if len(kinds) == 1 else OperationArgument.ANY,
        optional=nullable,
        writes=any(parameter.writes for parameter in column if parameter.dtype is not None),
        dtypes=tuple(_unique(parameter.dtype for parameter in column if parameter.dtype is not None)),
        values=tuple(_unique(values)),
        default=column[0].default if len(defaults) == 1 else NO_DEFAULT,
    )


def _unique(values: Iterable[T]) -> list[T]:
    unique: list[T] = []
    for value in values:
        if not any(type(other) is type(value) and identity_of(other) == identity_of(value) for other in unique):
            unique.append(value)
    return unique


# ---- The C++ source that makes kernels custom operators of torch, over its stable ABI ----

_TYPES = {
    OperationArgument.TENSOR: "Tensor",
    OperationArgument.DESCRIPTOR: "Tensor",
    OperationArgument.INTEGER: "SymInt",
    OperationArgument.REAL: "float",
    OperationArgument.BOOLEAN: "bool",
    OperationArgument.TEXT: "str",
    OperationArgument.DTYPE: "ScalarType",
}

_HEAD = """\
/* The kernels of {name} as operators of torch, torch.ops.{name}. Made by `silo export --torch`.
 *
 * A library of its own, for it needs torch's; torch 2.10 or newer, whichever it was built with. */
#include "torch_op.h"

extern "C" const silo_framework *{name}_framework();

namespace {{

using silo_torch::given;
"""


def schema(operation: ExportedOperation) -> str:
    """Returns the operation's torch schema: types, written arguments, defaults.

    Raises:
        BundleError: one of its arguments has a type that torch lacks.
    """
    positional = operation.arguments
    # In a schema, every argument after one with a default needs a default too.
    free = len(positional)
    while free > 0 and _default(positional[free - 1]) is not None:
        free -= 1
    written = 0
    words: list[str] = []
    for at, argument in enumerate(positional):
        type_ = _type(operation, argument, written)
        written += argument.writes
        default = _default(argument) if at >= free else None
        words.append(f"{type_} {argument.name}" + (f"={default}" if default is not None else ""))
    words.append("*")
    words += [f"SymInt[]? {argument.block}=None" for argument in positional if argument.block]
    words.append("SymInt[]? grid=None")
    return f"{operation.name}({', '.join(words)}) -> ()"


def _type(operation: ExportedOperation, argument: GivenArgument, written: int) -> str:
    type_ = _TYPES.get(argument.given)
    if type_ is None:
        raise BundleError(
            f"kernel {operation.kernel} cannot be an operator of torch: there is code for several types of "
            f"{argument.called}, and an operator has one type an argument; leave it out with --kernels"
        )
    alias = f"({_letters(written)}!)" if argument.writes else ""
    return f"{type_}{alias}{'?' if argument.optional else ''}"


def _letters(number: int) -> str:
    """Returns the letters that mark the memory of written argument ``number`` in a torch schema: a, ... z, a1, ..."""
    turn, letter = divmod(number, 26)
    return f"{chr(ord('a') + letter)}{turn or ''}"


def _default(argument: GivenArgument) -> str | None:
    """Returns the default as a schema writes it; None without a default, or if a schema cannot express it."""
    return _spelled(argument.default, argument) if argument.has_default else None


def _spelled(value: object, argument: GivenArgument) -> str | None:
    match value:
        case None:
            return "None" if argument.optional else None
        case bool():
            return str(value)
        case int() | float() if argument.given is OperationArgument.REAL:
            return repr(float(value)) if _is_finite(value) else None
        case int():
            return str(value)
        case str() if value.isascii() and value.isprintable() and not set(value) & set("\"'\\"):
            return f'"{value}"'
        case _:
            return None


def _is_finite(value: Value) -> bool:
    return isinstance(value, int | float) and abs(value) < float("inf")


def torch_source(name: str, operations: Sequence[ExportedOperation]) -> str:
    """Generates ``NAME_torch.cpp``. ``name`` is the name of the exported library and of the operators' namespace.

    Raises:
        BundleError: an argument has a type that torch lacks.
    """
    tables = "".join(_table(name, operation) for operation in operations)
    defined = "".join(f"    m.def({string_literal(schema(operation))});\n" for operation in operations)
    definitions = "".join(
        f"    m.impl({string_literal(operation.name)}, silo_torch::boxed<{operation.name}_operation>);\n"
        for operation in operations
    )
    kinds = "".join(f"\nSTABLE_TORCH_LIBRARY_IMPL({name}, {kind}, m) {{\n{definitions}}}\n" for kind in ("CPU", "CUDA"))
    library = f"\nSTABLE_TORCH_LIBRARY_FRAGMENT({name}, m) {{\n{defined}}}\n"
    return f"{_HEAD.format(name=name)}{tables}\n}} // namespace\n{library}{kinds}"


def _table(name: str, operation: ExportedOperation) -> str:
    table = f"{operation.name}_parameters" if operation.arguments else "nullptr"
    rows = "".join(
        f"    {{{string_literal(argument.called)}, {argument.place}, given::{argument.given.value}, "
        f"{str(argument.optional).lower()}, {str(argument.writes).lower()}}},\n"
        for argument in operation.arguments
    )
    parameters = f"const silo_torch::parameter {table}[] = {{\n{rows}}};\n" if rows else ""
    return (
        f"\n{parameters}"
        f"constexpr silo_torch::operation {operation.name}_operation = {{\n"
        f"    {string_literal(operation.kernel)}, {operation.at}, {table}, {len(operation.arguments)}, "
        f"{name}_framework}};\n"
    )


# ---- The C source that makes kernels functions of TVM-FFI: a symbol and a table each ----

_KINDS = {OperationArgument.REAL: "SILO_FRAMEWORK_FLOAT", OperationArgument.DESCRIPTOR: "SILO_FRAMEWORK_DESCRIPTOR"}

_TVM_FFI_HEAD = """\
/* The kernels of {name} as frameworks call them. Made by `silo export`.
 *
 * Each is a function of TVM-FFI: tvm_ffi.load_module("lib{name}.so")["{first}"](...). */
#include "framework.h"
#include "tvm_ffi.h"

silo_kernel *{name}_kernel_at(int at, silo_error *error);

/* For the libraries beside this one. */
__attribute__((visibility("default"))) const struct silo_framework *{name}_framework(void);

const struct silo_framework *{name}_framework(void) {{
    static const struct silo_framework offered = {{sizeof offered, {name}_kernel_at, silo_launch,
                                                  silo_error_clear}};
    return &offered;
}}
"""


def frameworks_source(name: str, operations: Sequence[ExportedOperation]) -> str:
    """Generates ``NAME_frameworks.c``. ``name`` is the name of the exported library."""
    parts = [_TVM_FFI_HEAD.format(name=name, first=operations[0].name if operations else "")]
    return "".join([*parts, *(_function(name, operation) for operation in operations)])


def _function(name: str, operation: ExportedOperation) -> str:
    table = f"{operation.name}_parameters" if operation.arguments else "NULL"
    rows = "".join(
        f"    {{{string_literal(argument.called)}, {argument.place}, "
        f"{_KINDS.get(argument.given, 'SILO_FRAMEWORK_VALUE')}}},\n"
        for argument in operation.arguments
    )
    parameters = f"static const struct silo_framework_parameter {table}[] = {{\n{rows}}};\n" if rows else ""
    return (
        f"\n{parameters}"
        f"static const struct silo_ffi_function {operation.name}_function = {{\n"
        f"    {{{string_literal(operation.kernel)}, {operation.at}, {table}, {len(operation.arguments)}}},"
        f" {name}_kernel_at}};\n"
        f"SILO_FFI_SYMBOL(__tvm_ffi_{operation.name}, {operation.name}_function)\n"
    )

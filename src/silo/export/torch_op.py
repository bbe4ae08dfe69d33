"""The C++ source that makes kernels custom operators of torch, over its stable ABI."""

from __future__ import annotations

from collections.abc import Sequence

from silo.core.values import Value
from silo.errors import BundleError
from silo.export.c_names import string_literal
from silo.export.operations import ExportedOperation, GivenArgument, OperationArgument

__all__ = ["schema", "torch_source"]

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
    """What torch is told of an operation: types, what is written, defaults.

    Raises:
        BundleError: torch has no type for one of its arguments.
    """
    positional = operation.arguments
    # Behind an argument that has a default, every other one has.
    free = len(positional)
    while free > 0 and _default(positional[free - 1]) is not None:
        free -= 1
    written = 0
    words: list[str] = []
    for at, one in enumerate(positional):
        type_ = _type(operation, one, written)
        written += one.writes
        default = _default(one) if at >= free else None
        words.append(f"{type_} {one.name}" + (f"={default}" if default is not None else ""))
    words.append("*")
    words += [f"SymInt[]? {one.block}=None" for one in positional if one.block]
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
    """A name for a piece of memory that is written: a, b, ... z, a1, ..."""
    turn, letter = divmod(number, 26)
    return f"{chr(ord('a') + letter)}{turn or ''}"


def _default(argument: GivenArgument) -> str | None:
    """As a schema spells it; None: it has none, or one that a schema cannot say."""
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
    """The text of ``NAME_torch.cpp``; ``name`` is the exported library's, and the namespace of the operators.

    Raises:
        BundleError: torch has no type for an argument.
    """
    tables = "".join(_table(name, one) for one in operations)
    defined = "".join(f"    m.def({string_literal(schema(one))});\n" for one in operations)
    made = "".join(
        f"    m.impl({string_literal(one.name)}, silo_torch::boxed<{one.name}_operation>);\n" for one in operations
    )
    kinds = "".join(f"\nSTABLE_TORCH_LIBRARY_IMPL({name}, {kind}, m) {{\n{made}}}\n" for kind in ("CPU", "CUDA"))
    library = f"\nSTABLE_TORCH_LIBRARY_FRAGMENT({name}, m) {{\n{defined}}}\n"
    return f"{_HEAD.format(name=name)}{tables}\n}} // namespace\n{library}{kinds}"


def _table(name: str, operation: ExportedOperation) -> str:
    table = f"{operation.name}_parameters" if operation.arguments else "nullptr"
    rows = "".join(
        f"    {{{string_literal(one.called)}, {one.place}, given::{one.given.value}, "
        f"{str(one.optional).lower()}, {str(one.writes).lower()}}},\n"
        for one in operation.arguments
    )
    parameters = f"const silo_torch::parameter {table}[] = {{\n{rows}}};\n" if rows else ""
    return (
        f"\n{parameters}"
        f"constexpr silo_torch::operation {operation.name}_operation = {{\n"
        f"    {string_literal(operation.kernel)}, {operation.at}, {table}, {len(operation.arguments)}, "
        f"{name}_framework}};\n"
    )

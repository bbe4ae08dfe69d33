"""The C source that makes kernels functions of TVM-FFI: a symbol and a table each; native/frameworks does the rest."""

from __future__ import annotations

from collections.abc import Sequence

from silo.export.c_names import string_literal
from silo.export.operations import ExportedOperation, OperationArgument

__all__ = ["frameworks_source"]

_KINDS = {OperationArgument.REAL: "SILO_FRAMEWORK_FLOAT", OperationArgument.DESCRIPTOR: "SILO_FRAMEWORK_DESCRIPTOR"}

_HEAD = """\
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
    """The text of ``NAME_frameworks.c``; ``name`` is the exported library's."""
    parts = [_HEAD.format(name=name, first=operations[0].name if operations else "")]
    return "".join([*parts, *(_function(name, one) for one in operations)])


def _function(name: str, operation: ExportedOperation) -> str:
    table = f"{operation.name}_parameters" if operation.arguments else "NULL"
    rows = "".join(
        f"    {{{string_literal(one.called)}, {one.place}, {_KINDS.get(one.given, 'SILO_FRAMEWORK_VALUE')}}},\n"
        for one in operation.arguments
    )
    parameters = f"static const struct silo_framework_parameter {table}[] = {{\n{rows}}};\n" if rows else ""
    return (
        f"\n{parameters}"
        f"static const struct silo_ffi_function {operation.name}_function = {{\n"
        f"    {{{string_literal(operation.kernel)}, {operation.at}, {table}, {len(operation.arguments)}}},"
        f" {name}_kernel_at}};\n"
        f"SILO_FFI_SYMBOL(__tvm_ffi_{operation.name}, {operation.name}_function)\n"
    )

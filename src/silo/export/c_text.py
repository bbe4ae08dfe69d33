"""The functions of an export in C: the header, and the file behind it."""

from __future__ import annotations

from dataclasses import dataclass

from silo.core.dtypes import DType
from silo.export.c_names import Names, comment_text, joined, string_literal
from silo.export.exported_library import (
    ExportedLibrary,
    comment,
    described,
    element_code,
    element_type,
    enumeration,
    enumerations,
    filled,
    folded,
    number,
)
from silo.export.function_signatures import ExportedFunction, FunctionChoice, ParameterRole, Taken

__all__ = ["c_header", "c_source"]

_SCALAR = {ParameterRole.INTEGER: "int64_t", ParameterRole.FLOAT: "double", ParameterRole.BOOL: "bool"}


@dataclass(frozen=True, slots=True)
class _Spelled:
    """One parameter of a kernel as C spells it: what is declared, and the ``silo_argument`` made of it."""

    declared: tuple[tuple[str, str], ...]  # type, which ends in its blank or star, and name
    argument: str


def _spell(library: ExportedLibrary, function: ExportedFunction) -> list[_Spelled]:
    extra = Names([one.name for one in function.parameters] + ["queue", "grid", "error"])
    return [_spelled(library, function, one, extra) for one in function.parameters]


def _spelled(library: ExportedLibrary, function: ExportedFunction, one: Taken, extra: Names) -> _Spelled:
    name, element = one.name, element_type(one.dtype)
    pointer = (f"{'' if one.writes else 'const '}{element} *", name)
    code = element_code(one.dtype)
    if one.role is ParameterRole.LEFT:
        return _Spelled((), "silo_absent_argument()")
    if one.role is ParameterRole.NULL:
        return _Spelled((), "silo_none()")
    if one.role in _SCALAR:
        make = {ParameterRole.INTEGER: "silo_int", ParameterRole.FLOAT: "silo_float", ParameterRole.BOOL: "silo_bool"}[
            one.role
        ]
        return _Spelled(((f"{_SCALAR[one.role]} ", name),), f"{make}({name})")
    if one.role is ParameterRole.CHOICE:
        declared = (f"{enumeration(library, function, one)} ", name)
        return _Spelled((declared,), f"value_of_{function.name}_{name}({name})")
    shape, strides = extra.give(f"{name}_shape"), extra.give(f"{name}_strides")
    extents = (("const int64_t *", shape), ("const int64_t *", strides))
    if one.role is ParameterRole.POINTER:
        declared, argument = (pointer,), f"silo_pointer({name}, {code})"
    elif one.role is ParameterRole.ARRAY:
        rank = extra.give(f"{name}_rank")
        declared = (pointer, ("int32_t ", rank), *extents)
        argument = f"silo_array({name}, {code}, {rank}, {shape}, {strides})"
    else:
        block, flags = extra.give(f"{name}_block"), extra.give(f"{name}_flags")
        declared = (pointer, *extents, ("const int64_t *", block), ("unsigned ", flags))
        given = f"{block} != NULL ? {block} : usual_{name}" if one.block else block
        argument = f"described({name}, {code}, {one.rank}, {shape}, {strides}, {given}, {flags})"
    return _Spelled(declared, f"{name} != NULL ? {argument} : silo_none()" if one.nullable else argument)


def _c_parameters(library: ExportedLibrary, function: ExportedFunction) -> list[str]:
    own = [f"{type_}{name}" for one in _spell(library, function) for type_, name in one.declared]
    grid = [] if function.has_grid else ["const int64_t grid[3]"]
    return ["const silo_queue *queue", *grid, *own, "silo_error *error"]


def c_header(library: ExportedLibrary) -> str:
    """``NAME.h``."""
    parts = [
        filled("head.h.in", ORIGIN=comment_text(library.origin), GUARD=library.name.upper(), NAME=library.name),
    ]
    for function, one in enumerations(library):
        name = enumeration(library, function, one)
        rows = "".join(f"    {name}_{choice.name} = {at},\n" for at, choice in enumerate(one.choices))
        parts += [
            comment([f"{one.called} of {function.kernel}."]),
            f"typedef enum {name} {{\n{rows}}} {name};\n\n",
        ]
    for function in library.functions:
        parameters = _c_parameters(library, function)
        name = joined(library.name, function.c_name)
        parts += [
            described(library, function),
            folded(f"int {name}", parameters, ";\n"),
            folded(f"int {joined(name, 'warmup')}", parameters, ";\n\n"),
        ]
    parts.append("#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
    return "".join(parts)


def _value(choice: FunctionChoice) -> str:
    match choice.value:
        case None:
            return "silo_none()"
        case DType():
            return f"silo_type({element_code(choice.value)})"
        case str():
            return f"silo_text({string_literal(choice.value)})"
        case bool():
            return f"silo_bool({number(choice.value)})"
        case int():
            return f"silo_int({number(choice.value)})"
        case _:
            return f"silo_float({number(choice.value)})"


def c_source(library: ExportedLibrary, head: str) -> str:
    """``NAME.c``: ``head`` opens the bundle and launches (``templates/library.c``), the rest makes its arguments."""
    parts = [head]
    for function, one in enumerations(library):
        type_ = enumeration(library, function, one)
        rows = "".join(f"    case {type_}_{choice.name}:\n        return {_value(choice)};\n" for choice in one.choices)
        parts.append(
            f"\nstatic silo_argument value_of_{function.name}_{one.name}({type_} value) {{\n    switch (value) "
            f"{{\n{rows}    }}\n    return silo_absent_argument();\n}}\n"
        )
    for function in library.functions:
        for suffix, action in (((), "silo_launch"), (("warmup",), "silo_warmup")):
            parts.append(_definition(library, function, suffix, action))
    return "".join(parts)


def _definition(library: ExportedLibrary, function: ExportedFunction, suffix: tuple[str, ...], action: str) -> str:
    spelled = _spell(library, function)
    arguments = ",\n".join(f"        {one.argument}" for one in spelled) or "        silo_absent_argument()"
    usual = "".join(
        f"    static const int64_t usual_{one.name}[] = {{{', '.join(map(str, one.block))}}};\n"
        for one in function.parameters
        if one.role is ParameterRole.DESCRIPTOR and one.block
    )
    head = folded(f"int {joined(library.name, function.c_name, *suffix)}", _c_parameters(library, function), " {\n")
    grid = "NULL" if function.has_grid else "grid"
    at = library.kernels.index(function.kernel)
    return (
        f"\n{head}{usual}    const silo_argument arguments[] = {{\n{arguments},\n    }};\n"
        f"    return call({at}, {action}, queue, arguments, {len(spelled)}, {grid}, error);\n}}\n"
    )

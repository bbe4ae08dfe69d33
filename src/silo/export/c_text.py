"""The functions of an export in C and C++17: the headers, and the source file."""

from __future__ import annotations

from dataclasses import dataclass

from silo.core.dtypes import DType
from silo.core.signature import NoDefault
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
    plan_classes,
)
from silo.export.function_signatures import ExportedFunction, FunctionChoice, ParameterRole, Taken

__all__ = ["c_header", "c_source", "cpp_header"]

# ---- The functions of an export in C: the header, and the source file ----

_SCALAR = {ParameterRole.INTEGER: "int64_t", ParameterRole.FLOAT: "double", ParameterRole.BOOL: "bool"}


@dataclass(frozen=True, slots=True)
class _Spelled:
    """One parameter of a kernel in C: its declarations, and the ``silo_argument`` made from them."""

    declared: tuple[tuple[str, str], ...]  # the type, which ends in a blank or a star, and the name
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


# ---- The functions of an export in C++17: a header over the C header ----


def _cpp_type(function: ExportedFunction, one: Taken) -> str:
    element = element_type(one.dtype)
    element = f"silo::{element.removeprefix('silo_')}" if element.startswith("silo_") else element
    element = f"std::{element}" if element.endswith("_t") else element
    pointee = f"{'' if one.writes else 'const '}{element}"
    match one.role:
        case ParameterRole.POINTER:
            return f"{pointee} *"
        case ParameterRole.ARRAY:
            return f"const silo::array<{pointee}> &"
        case ParameterRole.DESCRIPTOR:
            return f"const silo::descriptor<{pointee}, {one.rank}> &"
        case ParameterRole.CHOICE:
            return f"{function.name}_{one.name} "
        case _:
            return {
                ParameterRole.INTEGER: "std::int64_t ",
                ParameterRole.FLOAT: "double ",
                ParameterRole.BOOL: "bool ",
            }[one.role]


def _cpp_argument(library: ExportedLibrary, function: ExportedFunction, one: Taken) -> str:
    name = one.name
    match one.role:
        case ParameterRole.ARRAY:
            return f"{name}.data, {name}.rank, {name}.shape, {name}.strides"
        case ParameterRole.DESCRIPTOR:
            return f"{name}.data, {name}.shape, {name}.strides, {name}.block, {name}.flags"
        case ParameterRole.CHOICE:
            return f"static_cast<{enumeration(library, function, one)}>({name})"
        case _:
            return name


def _cpp_default(function: ExportedFunction, one: Taken) -> str:
    default = one.default
    assert not isinstance(default, NoDefault)
    if one.role is ParameterRole.POINTER:
        return "nullptr"
    if one.role is ParameterRole.CHOICE:
        held = next(c.name for c in one.choices if type(c.value) is type(default) and c.value == default)
        return f"{function.name}_{one.name}::{held}"
    return number(float(default) if one.role is ParameterRole.FLOAT and isinstance(default, int) else default)


def _cpp_parameters(function: ExportedFunction) -> list[str]:
    given = [one for one in function.parameters if one.is_given]
    found: list[str] = []
    optional = True  # a default is allowed only if all following parameters have a default too
    for one in reversed(given):
        optional = (
            optional
            and not isinstance(one.default, NoDefault)
            and one.role not in (ParameterRole.ARRAY, ParameterRole.DESCRIPTOR)
        )
        default = f" = {_cpp_default(function, one)}" if optional else ""
        found.append(f"{_cpp_type(function, one)}{one.name}{default}")
    grid = [] if function.has_grid else ["const silo::grid &grid"]
    return ["const silo::queue &queue", *grid, *reversed(found)]


def cpp_header(library: ExportedLibrary) -> str:
    """``NAME.hpp``."""
    parts = [
        filled(
            "head.hpp.in",
            ORIGIN=comment_text(library.origin),
            GUARD=library.name.upper(),
            NAME=library.name,
            NAMESPACE=library.namespace,
        ),
    ]
    for function, one in enumerations(library):
        rows = "".join(f"    {choice.name} = {at},\n" for at, choice in enumerate(one.choices))
        parts.append(f"/// {comment_text(one.called)} of {comment_text(function.kernel)}.\n")
        parts.append(f"enum class {function.name}_{one.name} : int {{\n{rows}}};\n\n")
    for function in library.functions:
        parts += [described(library, function), *_cpp_overloads(library, function, ())]
    parts.append("/// Load all that a call needs, and launch nothing.\nnamespace warmup {\n\n")
    for function in library.functions:
        parts += _cpp_overloads(library, function, ("warmup",))
    parts.append("} // namespace warmup\n\n")
    parts.append(plan_classes(library.name, library.plans))
    parts.append(f"}} // namespace {library.namespace}\n\n#endif\n")
    return "".join(parts)


def _cpp_overloads(library: ExportedLibrary, function: ExportedFunction, suffix: tuple[str, ...]) -> list[str]:
    parameters = _cpp_parameters(function)
    grid = [] if function.has_grid else ["dimensions"]
    given = [_cpp_argument(library, function, one) for one in function.parameters if one.is_given]
    made = "" if function.has_grid else "    const std::int64_t dimensions[3] = {grid.x, grid.y, grid.z};\n"
    # The C name is called: by argument-dependent lookup, overloads outside of `warmup` would be found too.
    name, words = joined(library.name, function.c_name, *suffix), ["&queue", *grid, *given, "&error"]
    return [
        folded(f"inline int {function.name}", ["silo_error &error", *parameters], " noexcept {\n"),
        made,
        folded(f"    return {name}", words, ";\n}\n"),
        folded(f"inline void {function.name}", parameters, " {\n"),
        f"{made}    silo_error error;\n",
        folded(f"    const int code = {name}", words, ";\n"),
        "    silo::check(code, error);\n}\n\n",
    ]

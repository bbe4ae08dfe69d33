"""The functions of an export in C++17: a header over the one of C."""

from __future__ import annotations

from silo.core.signature import NoDefault
from silo.export.c_names import comment_text, joined
from silo.export.exported_library import (
    ExportedLibrary,
    described,
    element_type,
    enumeration,
    enumerations,
    filled,
    folded,
    number,
)
from silo.export.function_signatures import ExportedFunction, ParameterRole, Taken

__all__ = ["cpp_header"]


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
    optional = True  # a default holds only where all that follow have one too
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
    parts.append(f"}} // namespace warmup\n\n}} // namespace {library.namespace}\n\n#endif\n")
    return "".join(parts)


def _cpp_overloads(library: ExportedLibrary, function: ExportedFunction, suffix: tuple[str, ...]) -> list[str]:
    parameters = _cpp_parameters(function)
    grid = [] if function.has_grid else ["dimensions"]
    given = [_cpp_argument(library, function, one) for one in function.parameters if one.is_given]
    made = "" if function.has_grid else "    const std::int64_t dimensions[3] = {grid.x, grid.y, grid.z};\n"
    # By its own name in C: among overloads, arguments of this namespace would bring those outside of `warmup` too.
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

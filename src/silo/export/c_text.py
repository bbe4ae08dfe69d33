"""Generates the C and C++17 text of an export: the headers, the source file, and the self-test with its cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from silo.core.checks import tolerance
from silo.core.expressions import Bindings, evaluate
from silo.core.generator import Fill
from silo.core.literal_data import OWN_LIMIT
from silo.core.recipes import (
    AliasRecipe,
    ArgumentRecipe,
    ArrayRecipe,
    CaseRecipe,
    DescriptorRecipe,
    ExpectedRecipe,
    ScalarRecipe,
)
from silo.core.signature import NoDefault
from silo.core.values import DType
from silo.errors import ExpressionError
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

__all__ = ["c_header", "c_source", "cpp_header", "selftest_source"]

# ---- The C header and the C source file ----

_SCALAR = {ParameterRole.INTEGER: "int64_t", ParameterRole.FLOAT: "double", ParameterRole.BOOL: "bool"}


@dataclass(frozen=True, slots=True)
class _Spelled:
    """A kernel's parameter in C: its declarations, and the expression for its ``silo_argument``."""

    declared: tuple[tuple[str, str], ...]  # the type, which ends in a space or a star, and the name
    argument: str


def _spell(library: ExportedLibrary, function: ExportedFunction) -> list[_Spelled]:
    extra = Names([parameter.name for parameter in function.parameters] + ["queue", "grid", "error"])
    return [_spelled(library, function, parameter, extra) for parameter in function.parameters]


def _spelled(library: ExportedLibrary, function: ExportedFunction, taken: Taken, extra: Names) -> _Spelled:
    name, element = taken.name, element_type(taken.dtype)
    pointer = (f"{'' if taken.writes else 'const '}{element} *", name)
    code = element_code(taken.dtype)
    if taken.role is ParameterRole.LEFT:
        return _Spelled((), "silo_absent_argument()")
    if taken.role is ParameterRole.NULL:
        return _Spelled((), "silo_none()")
    if taken.role in _SCALAR:
        make = {ParameterRole.INTEGER: "silo_int", ParameterRole.FLOAT: "silo_float", ParameterRole.BOOL: "silo_bool"}[
            taken.role
        ]
        return _Spelled(((f"{_SCALAR[taken.role]} ", name),), f"{make}({name})")
    if taken.role is ParameterRole.CHOICE:
        declared = (f"{enumeration(library, function, taken)} ", name)
        return _Spelled((declared,), f"value_of_{function.name}_{name}({name})")
    shape, strides = extra.give(f"{name}_shape"), extra.give(f"{name}_strides")
    extents = (("const int64_t *", shape), ("const int64_t *", strides))
    if taken.role is ParameterRole.POINTER:
        declared, argument = (pointer,), f"silo_pointer({name}, {code})"
    elif taken.role is ParameterRole.ARRAY:
        rank = extra.give(f"{name}_rank")
        declared = (pointer, ("int32_t ", rank), *extents)
        argument = f"silo_array({name}, {code}, {rank}, {shape}, {strides})"
    else:
        block, flags = extra.give(f"{name}_block"), extra.give(f"{name}_flags")
        declared = (pointer, *extents, ("const int64_t *", block), ("unsigned ", flags))
        block_argument = f"{block} != NULL ? {block} : usual_{name}" if taken.block else block
        argument = f"described({name}, {code}, {taken.rank}, {shape}, {strides}, {block_argument}, {flags})"
    return _Spelled(declared, f"{name} != NULL ? {argument} : silo_none()" if taken.nullable else argument)


def _c_parameters(library: ExportedLibrary, function: ExportedFunction) -> list[str]:
    own = [f"{type_}{name}" for spelled in _spell(library, function) for type_, name in spelled.declared]
    grid = [] if function.has_grid else ["const int64_t grid[3]"]
    return ["const silo_queue *queue", *grid, *own, "silo_error *error"]


def c_header(library: ExportedLibrary) -> str:
    """Generates ``NAME.h``."""
    parts = [
        filled("head.h.in", ORIGIN=comment_text(library.origin), GUARD=library.name.upper(), NAME=library.name),
    ]
    for function, constant in enumerations(library):
        name = enumeration(library, function, constant)
        rows = "".join(f"    {name}_{choice.name} = {at},\n" for at, choice in enumerate(constant.choices))
        parts += [
            comment([f"{constant.called} of {function.kernel}."]),
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
    """Generates ``NAME.c``: ``head`` (``templates/library.c``), which opens the bundle, and the functions."""
    parts = [head]
    for function, constant in enumerations(library):
        type_ = enumeration(library, function, constant)
        rows = "".join(
            f"    case {type_}_{choice.name}:\n        return {_value(choice)};\n" for choice in constant.choices
        )
        parts.append(
            f"\nstatic silo_argument value_of_{function.name}_{constant.name}({type_} value) {{\n    switch (value) "
            f"{{\n{rows}    }}\n    return silo_absent_argument();\n}}\n"
        )
    for function in library.functions:
        for suffix, action in (((), "silo_launch"), (("warmup",), "silo_warmup")):
            parts.append(_definition(library, function, suffix, action))
    return "".join(parts)


def _definition(library: ExportedLibrary, function: ExportedFunction, suffix: tuple[str, ...], action: str) -> str:
    spelled = _spell(library, function)
    arguments = (
        ",\n".join(f"        {spelled_argument.argument}" for spelled_argument in spelled)
        or "        silo_absent_argument()"
    )
    usual = "".join(
        f"    static const int64_t usual_{parameter.name}[] = {{{', '.join(map(str, parameter.block))}}};\n"
        for parameter in function.parameters
        if parameter.role is ParameterRole.DESCRIPTOR and parameter.block
    )
    head = folded(f"int {joined(library.name, function.c_name, *suffix)}", _c_parameters(library, function), " {\n")
    grid = "NULL" if function.has_grid else "grid"
    at = library.kernels.index(function.kernel)
    return (
        f"\n{head}{usual}    const silo_argument arguments[] = {{\n{arguments},\n    }};\n"
        f"    return call({at}, {action}, queue, arguments, {len(spelled)}, {grid}, error);\n}}\n"
    )


# ---- The C++17 header, which calls the functions of the C header ----


def _cpp_type(function: ExportedFunction, taken: Taken) -> str:
    element = element_type(taken.dtype)
    element = f"silo::{element.removeprefix('silo_')}" if element.startswith("silo_") else element
    element = f"std::{element}" if element.endswith("_t") else element
    pointee = f"{'' if taken.writes else 'const '}{element}"
    match taken.role:
        case ParameterRole.POINTER:
            return f"{pointee} *"
        case ParameterRole.ARRAY:
            return f"const silo::array<{pointee}> &"
        case ParameterRole.DESCRIPTOR:
            return f"const silo::descriptor<{pointee}, {taken.rank}> &"
        case ParameterRole.CHOICE:
            return f"{function.name}_{taken.name} "
        case _:
            return {
                ParameterRole.INTEGER: "std::int64_t ",
                ParameterRole.FLOAT: "double ",
                ParameterRole.BOOL: "bool ",
            }[taken.role]


def _cpp_argument(library: ExportedLibrary, function: ExportedFunction, taken: Taken) -> str:
    name = taken.name
    match taken.role:
        case ParameterRole.ARRAY:
            return f"{name}.data, {name}.rank, {name}.shape, {name}.strides"
        case ParameterRole.DESCRIPTOR:
            return f"{name}.data, {name}.shape, {name}.strides, {name}.block, {name}.flags"
        case ParameterRole.CHOICE:
            return f"static_cast<{enumeration(library, function, taken)}>({name})"
        case _:
            return name


def _cpp_default(function: ExportedFunction, taken: Taken) -> str:
    default = taken.default
    assert not isinstance(default, NoDefault)
    if taken.role is ParameterRole.POINTER:
        return "nullptr"
    if taken.role is ParameterRole.CHOICE:
        choice_name = next(c.name for c in taken.choices if type(c.value) is type(default) and c.value == default)
        return f"{function.name}_{taken.name}::{choice_name}"
    return number(float(default) if taken.role is ParameterRole.FLOAT and isinstance(default, int) else default)


def _cpp_parameters(function: ExportedFunction) -> list[str]:
    given_parameters = [parameter for parameter in function.parameters if parameter.is_given]
    declarations: list[str] = []
    optional = True  # C++ allows a default only if all following parameters have a default too
    for parameter in reversed(given_parameters):
        optional = (
            optional
            and not isinstance(parameter.default, NoDefault)
            and parameter.role not in (ParameterRole.ARRAY, ParameterRole.DESCRIPTOR)
        )
        default = f" = {_cpp_default(function, parameter)}" if optional else ""
        declarations.append(f"{_cpp_type(function, parameter)}{parameter.name}{default}")
    grid = [] if function.has_grid else ["const silo::grid &grid"]
    return ["const silo::queue &queue", *grid, *reversed(declarations)]


def cpp_header(library: ExportedLibrary) -> str:
    """Generates ``NAME.hpp``."""
    parts = [
        filled(
            "head.hpp.in",
            ORIGIN=comment_text(library.origin),
            GUARD=library.name.upper(),
            NAME=library.name,
            NAMESPACE=library.namespace,
        ),
    ]
    for function, choice_parameter in enumerations(library):
        rows = "".join(f"    {choice.name} = {at},\n" for at, choice in enumerate(choice_parameter.choices))
        parts.append(f"/// {comment_text(choice_parameter.called)} of {comment_text(function.kernel)}.\n")
        parts.append(f"enum class {function.name}_{choice_parameter.name} : int {{\n{rows}}};\n\n")
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
    arguments = [_cpp_argument(library, function, parameter) for parameter in function.parameters if parameter.is_given]
    dimensions = "" if function.has_grid else "    const std::int64_t dimensions[3] = {grid.x, grid.y, grid.z};\n"
    # The C function is called by its unique name: a C++ overload's name would also find overloads outside of `warmup`,
    # by argument-dependent lookup.
    name, words = joined(library.name, function.c_name, *suffix), ["&queue", *grid, *arguments, "&error"]
    return [
        folded(f"inline int {function.name}", ["silo_error &error", *parameters], " noexcept {\n"),
        dimensions,
        folded(f"    return {name}", words, ";\n}\n"),
        folded(f"inline void {function.name}", parameters, " {\n"),
        f"{dimensions}    silo_error error;\n",
        folded(f"    const int code = {name}", words, ";\n"),
        "    silo::check(code, error);\n}\n\n",
    ]


_A_ROW = 6  # numbers in one line of an initializer


@dataclass(frozen=True, slots=True)
class _Test:
    """A test of one case: the name and the text of its function, or the reason why it cannot run without Python."""

    kernel: str
    label: str
    name: str
    text: str
    left_out: str = ""


def selftest_source(library: ExportedLibrary) -> str:
    """Generates ``tests/selftest.cpp``.

    Raises:
        PackageError: numpy, which is needed to compute the tolerances, is not installed.
    """
    tests = [
        _test(library, kernel, case, f"case_{number_}")
        for number_, (kernel, case) in enumerate(
            (kernel, case) for kernel in library.kernels for case in library.cases.get(kernel, ())
        )
    ]
    rows = "".join(
        f"    {{{string_literal(test.kernel)}, {string_literal(test.label)}, "
        f"{'nullptr' if test.left_out else test.name}, "
        f"{string_literal(test.left_out) if test.left_out else 'nullptr'}}},\n"
        for test in tests
    )
    return filled(
        "selftest.cpp.in",
        ORIGIN=comment_text(library.origin),
        NAME=library.name,
        CASES="".join(test.text for test in tests),
        ROWS=rows or '    {"", "no cases", nullptr, "the bundle has none"},\n',
    )


class _LeftOutError(Exception):
    """Raised for a case that cannot be run; the text is the reason."""


def _test(library: ExportedLibrary, kernel: str, case: CaseRecipe, name: str) -> _Test:
    function = next(
        (function for function in library.functions if function.kernel == kernel and function.takes(case)), None
    )
    if function is None:
        return _Test(kernel, case.label, name, "", "no function takes arguments of its types")
    if case.config:
        options = ", ".join(option for option, _ in case.config)
        reason = f"it asks for compile options ({options}), which typed functions do not take"
        return _Test(kernel, case.label, name, "", reason)
    try:
        return _Test(kernel, case.label, name, _text(library, function, case, name))
    except _LeftOutError as error:
        return _Test(kernel, case.label, name, "", str(error))


def _text(library: ExportedLibrary, function: ExportedFunction, case: CaseRecipe, name: str) -> str:
    recipes, names = dict(case.arguments), Names(["where", "wrong"])
    arrays: dict[str, str] = {}
    lines: list[str] = []
    tables: list[str] = []
    for argument, array in _arrays(case).items():
        if array.fill is Fill.OWN and array.size * array.dtype.itemsize > OWN_LIMIT:
            raise _LeftOutError(f"the values of {argument} are computed, and too many to be written down")
        arrays[argument] = names.give(argument)
        lines.append(_array(arrays[argument], array, f"{name}_{arrays[argument]}", tables))
    for argument, recipe in case.arguments:
        if isinstance(recipe, AliasRecipe):
            arrays[argument] = arrays[recipe.name]
    words = [
        _argument(library, function, parameter, recipes, arrays, lines)
        for parameter in function.parameters
        if parameter.is_given
    ]
    grid = [] if function.has_grid else [_grid(function, case)]
    lines.append(f"{library.namespace}::{function.name}({', '.join(['where.queue', *grid, *words])});")
    lines.append("std::size_t wrong = 0;")
    for argument, expected in case.expected:
        dtype = _dtype(recipes, argument)
        table = f"{name}_expected_{arrays[argument]}"
        tables.append(_expected(table, argument, expected, dtype))
        lines.append(f"wrong += silo_selftest::compare({arrays[argument]}, {table});")
    body = "".join(f"    {line}\n" for line in [*lines, "return wrong;"])
    label = comment_text(case.label)
    return (
        f"// {comment_text(function.kernel)} {label}\n{''.join(tables)}"
        f"std::size_t {name}(const silo_selftest::place &where) {{\n{body}}}\n\n"
    )


def _dtype(recipes: dict[str, ArgumentRecipe], name: str) -> DType:
    recipe = recipes[name]
    if isinstance(recipe, AliasRecipe):
        recipe = recipes[recipe.name]
    array = recipe.array if isinstance(recipe, DescriptorRecipe) else recipe
    assert isinstance(array, ArrayRecipe)
    return array.dtype


def _integers(values: Iterable[int]) -> str:
    return "{" + ", ".join(f"INT64_C({value})" for value in values) + "}"


def _array(name: str, recipe: ArrayRecipe, table: str, tables: list[str]) -> str:
    if recipe.fill is Fill.OWN:
        data = recipe.own_bytes()
        items = [str(byte) for byte in data] or ["0"]
        rows = "".join(f"    {', '.join(items[at : at + 24])},\n" for at in range(0, len(items), 24))
        tables.append(f"const unsigned char {table}[] = {{\n{rows}}};\n")
        fill = f"{{-1, 0, silo_fill_params(), {table}}}"
    else:
        params = recipe.fill_params
        numbers = f"{{{number(float(params.a))}, {number(float(params.b))}, {number(params.low)}, {params.span}U}}"
        fill = f"{{{int(recipe.fill)}, UINT64_C({recipe.seed}), {numbers}, nullptr}}"
    shape, strides = _integers(recipe.shape), _integers(recipe.element_strides)
    return f"const silo_selftest::array {name}(where, {element_code(recipe.dtype)}, {shape}, {strides}, {fill});"


def _argument(
    library: ExportedLibrary,
    function: ExportedFunction,
    taken: Taken,
    recipes: dict[str, ArgumentRecipe],
    arrays: dict[str, str],
    lines: list[str],
) -> str:
    recipe = recipes.get(taken.called)
    if isinstance(recipe, AliasRecipe):
        recipe = recipes[recipe.name]
    value = recipe.value if isinstance(recipe, ScalarRecipe) else taken.default
    if taken.called not in arrays:
        if taken.role is ParameterRole.CHOICE:
            choice_name = (c.name for c in taken.choices if type(c.value) is type(value) and c.value == value)
            return f"{library.namespace}::{function.name}_{taken.name}::{next(choice_name)}"
        if value is None:
            return "nullptr"
        assert not isinstance(value, NoDefault)
        return number(float(value) if taken.role is ParameterRole.FLOAT and isinstance(value, int) else value)
    array, element = arrays[taken.called], element_type(taken.dtype)
    element = f"{'' if taken.writes else 'const '}{element}"
    pointer = f"{array}.at<{element}>()"
    if taken.role is ParameterRole.ARRAY:
        return f"silo::array<{element}>({pointer}, {array}.rank(), {array}.shape(), {array}.strides())"
    if taken.role is ParameterRole.DESCRIPTOR:
        assert isinstance(recipe, DescriptorRecipe)
        block = f"{array}_block"
        shape = f"{array}_shape"
        lines.append(f"const std::int64_t {block}[] = {_integers(recipe.block_shape)};")
        lines.append(f"const std::int64_t {shape}[] = {_integers(recipe.array.shape)};")
        flags = [
            *(["SILO_ARGUMENT_PAD_NAN"] if recipe.padding == "nan" else []),
            *(["SILO_ARGUMENT_ROUND_TF32"] if recipe.round_f32_to_tf32 else []),
        ]
        marks = f"static_cast<unsigned>({' | '.join(flags)})" if flags else "0"
        return f"silo::descriptor<{element}, {taken.rank}>({pointer}, {shape}, {array}.strides(), {block}, {marks})"
    return pointer


def _grid(function: ExportedFunction, case: CaseRecipe) -> str:
    """Returns the grid of a case as C++ text.

    Raises _LeftOutError if the grid is unknown or is not the same with every config that a call may get.
    """
    if case.grid is None:
        raise _LeftOutError("neither the bundle nor the case says its grid")
    values = {name: recipe.value for name, recipe in case.arguments if isinstance(recipe, ScalarRecipe)}
    grids: set[tuple[int, ...]] = set()
    for variant in function.variants:
        config = {**variant.config.as_dict(), **variant.specialization.constant_values}
        arrays = _arrays(case)
        bindings = Bindings(
            values={**config, **values},
            shapes={name: array.shape for name, array in arrays.items()},
            strides={name: array.element_strides for name, array in arrays.items()},
            itemsizes={name: array.dtype.itemsize for name, array in arrays.items()},
            config=config,
        )
        try:
            grids.add(tuple(evaluate(axis, bindings) for axis in case.grid))
        except ExpressionError as error:
            raise _LeftOutError(f"its grid has no value here: {error}") from None
    if len(grids) != 1:
        raise _LeftOutError("its grid depends on the config, which is chosen at run time")
    axes = (*grids.pop(), 1, 1)[:3]
    return f"silo::grid{_integers(axes)}"


def _arrays(case: CaseRecipe) -> dict[str, ArrayRecipe]:
    return {
        name: recipe.array if isinstance(recipe, DescriptorRecipe) else recipe
        for name, recipe in case.arguments
        if isinstance(recipe, ArrayRecipe | DescriptorRecipe)
    }


def _expected(table: str, argument: str, expected: ExpectedRecipe, dtype: DType) -> str:
    size = expected.dtype.itemsize
    words = [int.from_bytes(expected.values[at : at + size], "little") for at in range(0, len(expected.values), size)]
    rtol, atol = tolerance(expected, dtype)
    text = f"const std::uint64_t {table}_bits[] = {{\n{_rows([f'0x{word:x}' for word in words])}}};\n"
    indices = expected.indices()
    if indices is not None:
        text += f"const std::int64_t {table}_numbers[] = {{\n{_rows([str(index) for index in indices])}}};\n"
    numbers = "nullptr" if indices is None else f"{table}_numbers"
    return (
        f"{text}const silo_selftest::expected {table} = {{{string_literal(argument)}, {element_code(expected.dtype)}, "
        f"{len(words)}, {table}_bits, {numbers}, {number(rtol)}, {number(atol)}}};\n"
    )


def _rows(items: Sequence[str]) -> str:
    items = items or ["0"]
    return "".join(f"    {', '.join(items[at : at + _A_ROW])},\n" for at in range(0, len(items), _A_ROW))

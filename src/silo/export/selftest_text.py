"""The self-test of an export as text: each case of its kernels, with the values that are expected of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from silo.core.checks import tolerance
from silo.core.dtypes import DType
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
from silo.errors import ExpressionError
from silo.export.c_names import Names, comment_text, string_literal
from silo.export.exported_library import ExportedLibrary, element_code, element_type, filled, number
from silo.export.function_signatures import ExportedFunction, ParameterRole, Taken

__all__ = ["selftest_source"]

_A_ROW = 6  # numbers in one line


@dataclass(frozen=True, slots=True)
class _Test:
    """One case: the name and the text of its function, or the reason why it cannot run without Python."""

    kernel: str
    label: str
    name: str
    text: str
    left_out: str = ""


def selftest_source(library: ExportedLibrary) -> str:
    """``tests/selftest.cpp``.

    Raises:
        PackageError: numpy, which the tolerances are computed with, is not installed.
    """
    tests = [
        _test(library, kernel, case, f"case_{number_}")
        for number_, (kernel, case) in enumerate(
            (kernel, case) for kernel in library.kernels for case in library.cases.get(kernel, ())
        )
    ]
    rows = "".join(
        f"    {{{string_literal(one.kernel)}, {string_literal(one.label)}, "
        f"{'nullptr' if one.left_out else one.name}, {string_literal(one.left_out) if one.left_out else 'nullptr'}}},\n"
        for one in tests
    )
    return filled(
        "selftest.cpp.in",
        ORIGIN=comment_text(library.origin),
        NAME=library.name,
        CASES="".join(one.text for one in tests),
        ROWS=rows or '    {"", "no cases", nullptr, "the bundle has none"},\n',
    )


class _LeftOutError(Exception):
    """A case cannot be run; the text is the reason."""


def _test(library: ExportedLibrary, kernel: str, case: CaseRecipe, name: str) -> _Test:
    function = next((one for one in library.functions if one.kernel == kernel and one.takes(case)), None)
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
    given, made = dict(case.arguments), Names(["where", "wrong"])
    arrays: dict[str, str] = {}
    lines: list[str] = []
    tables: list[str] = []
    for argument, array in _arrays(case).items():
        if array.fill is Fill.OWN and array.size * array.dtype.itemsize > OWN_LIMIT:
            raise _LeftOutError(f"the values of {argument} are computed, and too many to be written down")
        arrays[argument] = made.give(argument)
        lines.append(_array(arrays[argument], array, f"{name}_{arrays[argument]}", tables))
    for argument, recipe in case.arguments:
        if isinstance(recipe, AliasRecipe):
            arrays[argument] = arrays[recipe.name]
    words = [_argument(library, function, one, given, arrays, lines) for one in function.parameters if one.is_given]
    grid = [] if function.has_grid else [_grid(function, case)]
    lines.append(f"{library.namespace}::{function.name}({', '.join(['where.queue', *grid, *words])});")
    lines.append("std::size_t wrong = 0;")
    for argument, expected in case.expected:
        dtype = _dtype(given, argument)
        table = f"{name}_expected_{arrays[argument]}"
        tables.append(_expected(table, argument, expected, dtype))
        lines.append(f"wrong += silo_selftest::compare({arrays[argument]}, {table});")
    body = "".join(f"    {line}\n" for line in [*lines, "return wrong;"])
    label = comment_text(case.label)
    return (
        f"// {comment_text(function.kernel)} {label}\n{''.join(tables)}"
        f"std::size_t {name}(const silo_selftest::place &where) {{\n{body}}}\n\n"
    )


def _dtype(given: dict[str, ArgumentRecipe], name: str) -> DType:
    recipe = given[name]
    if isinstance(recipe, AliasRecipe):
        recipe = given[recipe.name]
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
    one: Taken,
    given: dict[str, ArgumentRecipe],
    arrays: dict[str, str],
    lines: list[str],
) -> str:
    recipe = given.get(one.called)
    if isinstance(recipe, AliasRecipe):
        recipe = given[recipe.name]
    value = recipe.value if isinstance(recipe, ScalarRecipe) else one.default
    if one.called not in arrays:
        if one.role is ParameterRole.CHOICE:
            held = (c.name for c in one.choices if type(c.value) is type(value) and c.value == value)
            return f"{library.namespace}::{function.name}_{one.name}::{next(held)}"
        if value is None:
            return "nullptr"
        assert not isinstance(value, NoDefault)
        return number(float(value) if one.role is ParameterRole.FLOAT and isinstance(value, int) else value)
    array, element = arrays[one.called], element_type(one.dtype)
    element = f"{'' if one.writes else 'const '}{element}"
    pointer = f"{array}.at<{element}>()"
    if one.role is ParameterRole.ARRAY:
        return f"silo::array<{element}>({pointer}, {array}.rank(), {array}.shape(), {array}.strides())"
    if one.role is ParameterRole.DESCRIPTOR:
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
        return f"silo::descriptor<{element}, {one.rank}>({pointer}, {shape}, {array}.strides(), {block}, {marks})"
    return pointer


def _grid(function: ExportedFunction, case: CaseRecipe) -> str:
    """The grid of a case, if every config that a call may get leads to the same grid."""
    if case.grid is None:
        raise _LeftOutError("neither the bundle nor the case says its grid")
    values = {name: one.value for name, one in case.arguments if isinstance(one, ScalarRecipe)}
    found: set[tuple[int, ...]] = set()
    for variant in function.variants:
        config = {**variant.config.as_dict(), **variant.specialization.constant_values}
        arrays = _arrays(case)
        bindings = Bindings(
            values={**config, **values},
            shapes={name: one.shape for name, one in arrays.items()},
            strides={name: one.element_strides for name, one in arrays.items()},
            itemsizes={name: one.dtype.itemsize for name, one in arrays.items()},
            config=config,
        )
        try:
            found.add(tuple(evaluate(axis, bindings) for axis in case.grid))
        except ExpressionError as error:
            raise _LeftOutError(f"its grid has no value here: {error}") from None
    if len(found) != 1:
        raise _LeftOutError("its grid depends on the config, which is chosen at run time")
    axes = (*found.pop(), 1, 1)[:3]
    return f"silo::grid{_integers(axes)}"


def _arrays(case: CaseRecipe) -> dict[str, ArrayRecipe]:
    return {
        name: one.array if isinstance(one, DescriptorRecipe) else one
        for name, one in case.arguments
        if isinstance(one, ArrayRecipe | DescriptorRecipe)
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

"""Kernels as frameworks call them: one operation for all dtypes, its tables in C, its schema for torch."""

import pytest

from silo.core.signature import NO_DEFAULT
from silo.core.values import dtype
from silo.errors import BundleError
from silo.export.function_signatures import ExportedFunction, FunctionChoice, ParameterRole, Taken
from silo.export.operations import (
    ExportedOperation,
    GivenArgument,
    OperationArgument,
    frameworks_source,
    operations_of,
    schema,
    torch_source,
)


def taken(name, role, *, of=None, writes=False, **rest):
    return Taken(name, name, role, dtype=None if of is None else dtype(of), writes=writes, **rest)


def function(*parameters, kernel="scale", name="scale", has_grid=True):
    return ExportedFunction(kernel, name, name, parameters, has_grid, ())


def scale(of):
    return function(
        taken("x", ParameterRole.POINTER, of=of),
        taken("out", ParameterRole.ARRAY, of=of, writes=True),
        taken("n", ParameterRole.INTEGER),
        taken("BLOCK", ParameterRole.LEFT),
        taken("factor", ParameterRole.FLOAT, default=1.5),
    )


def operation(*arguments, has_grid=True):
    return ExportedOperation("scale", "scale", 0, arguments, has_grid)


def argument(name, given, **rest):
    return GivenArgument(name, name, rest.pop("place", 0), given, **rest)


def test_functions_of_one_kernel_are_one_operation():
    (found,) = operations_of([scale("float32"), scale("float16")])
    assert [(one.name, one.place, one.given) for one in found.arguments] == [
        ("x", 0, OperationArgument.TENSOR),
        ("out", 1, OperationArgument.TENSOR),
        ("n", 2, OperationArgument.INTEGER),
        ("factor", 4, OperationArgument.REAL),
    ]
    x, out, _, factor = found.arguments
    assert [one.name for one in x.dtypes] == ["float32", "float16"]
    assert (x.writes, out.writes, factor.default) == (False, True, 1.5)


def test_operations_are_numbered_as_the_kernels_of_the_library():
    found = operations_of([scale("float32"), function(kernel="b", name="b"), scale("float16")])
    assert [(one.kernel, one.at) for one in found] == [("scale", 0), ("b", 1)]


def test_an_array_that_may_be_none_is_optional():
    null, given = taken("bias", ParameterRole.NULL), taken("bias", ParameterRole.POINTER, of="float32")
    (found,) = operations_of([function(null), function(given)])
    (bias,) = found.arguments
    assert (bias.given, bias.optional) == (OperationArgument.TENSOR, True)


def test_constants_take_the_type_of_their_values():
    texts = taken("ACT", ParameterRole.CHOICE, choices=(FunctionChoice("none", None), FunctionChoice("relu", "relu")))
    types = taken("OUT", ParameterRole.CHOICE, choices=(FunctionChoice("fp16", dtype("float16")),))
    mixed = taken("D", ParameterRole.CHOICE, choices=(FunctionChoice("a", "auto"), FunctionChoice("n64", 64)))
    (found,) = operations_of([function(texts, types, mixed)])
    assert [(one.given, one.optional) for one in found.arguments] == [
        (OperationArgument.TEXT, True),
        (OperationArgument.DTYPE, False),
        (OperationArgument.ANY, False),
    ]


def test_names_that_python_keeps_for_itself_are_changed():
    of = function(
        taken("lambda", ParameterRole.INTEGER),
        taken("grid", ParameterRole.INTEGER),
        kernel="functions",
        name="functions",
    )
    (found,) = operations_of([of])
    assert found.name == "functions_"
    assert [(one.called, one.name) for one in found.arguments] == [("lambda", "lambda_"), ("grid", "grid_2")]


def test_the_table_of_a_kernel_in_c():
    text = frameworks_source("demo", operations_of([scale("float32")]))
    rows = [line.strip() for line in text.splitlines() if "SILO_FRAMEWORK_" in line]
    assert rows == [
        '{"x", 0, SILO_FRAMEWORK_VALUE},',
        '{"out", 1, SILO_FRAMEWORK_VALUE},',
        '{"n", 2, SILO_FRAMEWORK_VALUE},',
        '{"factor", 4, SILO_FRAMEWORK_FLOAT},',
    ]
    assert '{"scale", 0, scale_parameters, 4}, demo_kernel_at};' in text
    assert "SILO_FFI_SYMBOL(__tvm_ffi_scale, scale_function)" in text


def test_a_schema_says_what_is_written_and_what_may_be_left_out():
    found = schema(
        operation(
            argument("x", OperationArgument.TENSOR),
            argument("out", OperationArgument.TENSOR, writes=True),
            argument("bias", OperationArgument.TENSOR, optional=True),
            argument("mean", OperationArgument.TENSOR, optional=True, writes=True),
            argument("n", OperationArgument.INTEGER, default=3),
            argument("kind", OperationArgument.DTYPE),
            argument("eps", OperationArgument.REAL, default=1),
            argument("causal", OperationArgument.BOOLEAN, default=False),
            argument("act", OperationArgument.TEXT, optional=True, default=None),
        )
    )
    assert found == (
        "scale(Tensor x, Tensor(a!) out, Tensor? bias, Tensor(b!)? mean, SymInt n, ScalarType kind, float eps=1.0, "
        "bool causal=False, str? act=None, *, SymInt[]? grid=None) -> ()"
    )


def test_a_descriptor_has_a_block_of_its_own():
    found = schema(operation(argument("x", OperationArgument.DESCRIPTOR, block="x_block")))
    assert found == "scale(Tensor x, *, SymInt[]? x_block=None, SymInt[]? grid=None) -> ()"


@pytest.mark.parametrize("default", [NO_DEFAULT, float("nan"), 'a"b', "a\nb"])
def test_defaults_that_a_schema_cannot_say_are_left_out(default):
    given = OperationArgument.REAL if isinstance(default, float) else OperationArgument.TEXT
    assert schema(operation(argument("x", given, default=default))).startswith(f"scale({_plain(given)} x, *")


def _plain(given):
    return {OperationArgument.REAL: "float", OperationArgument.TEXT: "str"}[given]


def test_a_constant_of_several_types_is_no_operator_of_torch():
    with pytest.raises(
        BundleError, match=r"kernel scale cannot be an operator of torch.*several types of D.*--kernels"
    ):
        schema(operation(argument("D", OperationArgument.ANY)))


def test_memory_that_is_written_has_a_name_each():
    many = [argument(f"p{at}", OperationArgument.TENSOR, writes=True) for at in range(28)]
    text = schema(operation(*many))
    assert "Tensor(z!) p25, Tensor(a1!) p26, Tensor(b1!) p27" in text


def test_operators_are_for_cpus_and_gpus():
    text = torch_source("demo", operations_of([scale("float32")]))
    assert "STABLE_TORCH_LIBRARY_IMPL(demo, CPU, m)" in text
    assert "STABLE_TORCH_LIBRARY_IMPL(demo, CUDA, m)" in text
    assert '{"out", 1, given::tensor, false, true},' in text

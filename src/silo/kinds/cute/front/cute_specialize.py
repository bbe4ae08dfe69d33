"""Specialization of one call of a CuTe kernel, its fingerprint, and the DSL's numeric types for Silo's dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast

from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.signature import NO_DEFAULT, NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTYPES, JSON, DType, DTypeKind, FunctionValue, Value, digest, dtype
from silo.errors import ArgumentError, SourceError
from silo.frozen import replace
from silo.kinds.cute.front.cute_installation import dsl_module
from silo.sources import reached_code, written_values
from silo.sources.reached_code import ReachedObjects, reached_by
from silo.sources.written_values import NOT_SPECIAL, NotSpecial, remember

__all__ = [
    "ALIGNMENT",
    "constant_value",
    "dsl_type",
    "dtype_named",
    "dtype_of",
    "plain_function",
    "reached_from",
    "specialize",
]

_OTHERWISE = {
    "bool": "Boolean",
    "bfloat16": "BFloat16",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e4m3b11fnuz": "Float8E4M3B11FNUZ",
    "float8_e5m2": "Float8E5M2",
}
_WITHOUT = ("float8_e4m3fnuz", "float8_e5m2fnuz")
_NAMES = {
    one.name: _OTHERWISE.get(one.name, one.name.capitalize()) for one in DTYPES if one.name not in _WITHOUT
}  # the DSL's name of each dtype: Int32 for int32
_BY_NAME = {name: dtype(own) for own, name in _NAMES.items()}


def dtype_named(name: str) -> DType | None:
    """Returns the dtype of the DSL's type name; None if Silo has no such dtype.

    >>> dtype_named("BFloat16"), dtype_named("Tensor")
    (DType(name='bfloat16', short='bf16', kind=<DTypeKind.FLOAT: 'float'>, bits=16, code=4), None)
    """
    return _BY_NAME.get(name)


def dtype_of(value: object) -> DType | None:
    """Returns the dtype of a numeric type of the DSL; None for any other object."""
    if isinstance(value, type) and value.__module__.partition(".")[0] == "cutlass":
        return dtype_named(value.__name__)
    return None


def dsl_type(element: DType) -> Any:  # noqa: ANN401  # a class of the DSL
    """Returns ``cutlass.Float32`` for float32. Raises SourceError if the DSL lacks the type."""
    if element.name not in _NAMES:
        raise SourceError(f"the CuTe DSL has no type for {element}")
    return getattr(dsl_module("cutlass"), _NAMES[element.name])


# ---- Specialization of one call: the typed signature, and the facts that the code may assume ----

ALIGNMENT = 16
"""The alignment in bytes of an aligned array's address; other arrays are only aligned to the size of an element."""

_I32 = range(-(1 << 31), 1 << 31)
_I64 = range(-(1 << 63), 1 << 63)
_KINDS = {bool: ParameterKind.BOOL, int: ParameterKind.INTEGER, float: ParameterKind.FLOAT}


def specialize(
    kernel: str, signature: Signature, arguments: Mapping[str, ArgumentFacts]
) -> tuple[Signature, Specialization]:
    """Returns the typed signature and the specialization of one call.

    A scalar has its declared width; without one, 32 bits if the value fits, else 64. Its value is not compiled in.

    >>> untyped = Signature((Parameter("x", ParameterKind.POINTER), Parameter("n")))
    >>> typed, facts = specialize("scale", untyped, {"x": ArgumentFacts.array("float16", 64), "n": ArgumentFacts(1)})
    >>> [str(one.dtype) for one in typed.parameters], facts.assumptions
    (['float16', 'int32'], ('x aligned16',))

    Raises:
        ArgumentError: an argument is missing, unknown, or of a kind that its parameter cannot take.
    """
    if unknown := [name for name in arguments if name not in signature.names]:
        raise ArgumentError(f"{kernel} has no parameter {', '.join(unknown)}; it takes {', '.join(signature.names)}")
    parameters: list[Parameter] = []
    facts: list[tuple[str, Fact]] = []
    constants: list[tuple[str, Value]] = []
    for parameter in signature.parameters:
        argument = arguments.get(parameter.name)
        if parameter.kind is ParameterKind.CONSTEXPR:
            if argument is not None:
                constants.append((parameter.name, _constant(kernel, parameter, argument)))
            parameters.append(parameter)
            continue
        if argument is None:
            if isinstance(parameter.default, NoDefault):
                raise ArgumentError(f"{kernel}: the argument {parameter.name} is missing")
            argument = ArgumentFacts(parameter.default)
        if argument.is_pointer:
            parameters.append(_array(kernel, parameter, argument))
            if argument.address % ALIGNMENT == 0:
                facts.append((parameter.name, Fact.ALIGNED_16))
        elif argument.value is None:
            if parameter.kind not in (ParameterKind.ANY, ParameterKind.POINTER):
                raise ArgumentError(f"{kernel}: {parameter.name} is {parameter.dtype}; it cannot be None")
            parameters.append(replace(parameter, kind=ParameterKind.POINTER))
            facts.append((parameter.name, Fact.NONE))
        else:
            parameters.append(_scalar(kernel, parameter, argument.value))
    return Signature(tuple(parameters)), Specialization(tuple(facts), tuple(constants))


def _constant(kernel: str, parameter: Parameter, facts: ArgumentFacts) -> Value:
    if facts.is_pointer:
        raise ArgumentError(
            f"{kernel}: {parameter.name} is a Constexpr, so it takes a value, not an array: annotate it as cute.Tensor"
        )
    return facts.value


def _array(kernel: str, parameter: Parameter, facts: ArgumentFacts) -> Parameter:
    if parameter.kind not in (ParameterKind.ANY, ParameterKind.POINTER):
        raise ArgumentError(f"{kernel}: {parameter.name} is {parameter.dtype}; it takes a number, not an array")
    if facts.block_shape:
        raise ArgumentError(f"{kernel}: {parameter.name} takes an array, not a tensor descriptor")
    element = parameter.dtype or facts.dtype
    if element is None:
        raise ArgumentError(f"{kernel}: the dtype of the array {parameter.name} is not known")
    if facts.address % element.itemsize:
        raise ArgumentError(
            f"{kernel}: the array {parameter.name} begins at an address that is not a multiple of the "
            f"{element.itemsize} bytes of its elements, which no GPU reads: copy it first"
        )
    default = parameter.default if parameter.default is None else NO_DEFAULT
    return replace(parameter, kind=ParameterKind.POINTER, dtype=element, default=default)


def _scalar(kernel: str, parameter: Parameter, value: Value) -> Parameter:
    name = parameter.name
    if parameter.kind is ParameterKind.POINTER:
        raise ArgumentError(f"{kernel}: {name} takes an array, not {describe(value)}")
    if not isinstance(value, bool | int | float):
        raise ArgumentError(
            f"{kernel}: {name} got {describe(value)}, a {type(value).__name__}: a kernel takes arrays and numbers; "
            "annotate it as Constexpr to pass anything else"
        )
    if parameter.kind is ParameterKind.ANY:
        element = "bool" if isinstance(value, bool) else "float32" if isinstance(value, float) else "int32"
        if element == "int32" and value not in _I32:
            element = "int64"
        if element == "int64" and value not in _I64:
            raise ArgumentError(f"{kernel}: {name} = {value} does not fit in 64 bits; declare it, say Uint64")
        return replace(parameter, kind=_KINDS[type(value)], dtype=dtype(element))
    assert parameter.dtype is not None  # an annotation gives kind and dtype together
    if parameter.kind is ParameterKind.INTEGER:
        bits = parameter.dtype.bits
        low = 0 if parameter.dtype.kind is DTypeKind.UINT else -(1 << (bits - 1))
        if not isinstance(value, int):
            raise ArgumentError(f"{kernel}: {name} is {parameter.dtype}; {describe(value)} is not an integer")
        if not low <= value < low + (1 << bits):
            raise ArgumentError(f"{kernel}: {name} is {parameter.dtype}; {value} does not fit")
    return parameter


# ---- The fingerprint of a CuTe kernel, and the values of its constants ----


def reached_from(function: Any) -> JSON:  # noqa: ANN401
    """Returns, as data, all code and values that a function, an object or a class of the author reaches.

    Raises:
        SourceError: a source is not available, or a value that is read lacks a canonical form.
    """
    return reached_by(_Reached(), function)


def constant_value(candidate: Any) -> Value:  # noqa: ANN401
    """Returns the value of a constant: a plain value, a dtype of the DSL, or a function.

    Raises TypeError for other objects.
    """

    def special(value: Any) -> Value | NotSpecial:  # noqa: ANN401
        if (element := dtype_of(value)) is not None:
            return element
        if isinstance(plain_function(value), FunctionType | BuiltinFunctionType):
            return _function_value(value)
        return NOT_SPECIAL

    return written_values.to_value(candidate, special)


def _function_value(function: Any) -> FunctionValue:  # noqa: ANN401
    plain = plain_function(function)
    name = plain.__qualname__.replace("<locals>.", "")
    return remember(FunctionValue(name, digest("cute-function/1", reached_from(function))), function)


def plain_function(function: Any) -> Any:  # noqa: ANN401
    """Returns the author's function inside wrappers of the DSL or ``functools``; any other object unchanged."""
    return reached_code.plain_function(function, _Reached.libraries)


class _Reached(ReachedObjects):
    """Describes the objects that an author's code reaches, including functions that the DSL wraps."""

    libraries = ("cutlass", "cuda", *ReachedObjects.libraries)
    constant_word = "a Constexpr"

    def special(self, value: Any) -> Value | NotSpecial:  # noqa: ANN401
        return dtype_of(value) or NOT_SPECIAL

    def refuse(self, value: Any, name: str) -> None:  # noqa: ANN401
        kind = cast("type[object]", type(value))
        # even turning such an object into text may need an MLIR context that was deleted
        if kind.__module__.startswith("cutlass._mlir"):
            raise SourceError(f"the kernel reads {name}, a value of an earlier trace ({kind.__name__}): make it anew")

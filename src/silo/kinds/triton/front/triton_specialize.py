"""Specializes a call by Triton's rules: constants, the typed signature, and the facts about the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from silo.core.argument_facts import ArgumentFacts, describe
from silo.core.signature import NO_DEFAULT, NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import DType, DTypeKind, FunctionValue, Value, dtype
from silo.errors import ArgumentError, SourceError
from silo.frozen import replace
from silo.kinds.triton.front.adapter.gluon import block_extents, is_aggregate, layout_value
from silo.kinds.triton.front.adapter.triton_objects import is_constexpr, is_function
from silo.kinds.triton.front.ssa import Module, Type
from silo.sources import written_values
from silo.sources.written_values import NOT_SPECIAL, NotSpecial, dtype_value

__all__ = ["ModuleArgument", "module_arguments", "specialize", "to_value"]

# ---- Specialization of one call by Triton's rules: the typed signature, and the facts that a compiler may use ----

_I32 = range(-(1 << 31), 1 << 31)
_I64 = range(-(1 << 63), 1 << 63)
_U64 = range(1 << 64)
_ALIGNMENT = 16


def specialize(signature: Signature, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
    """The typed signature and the specialization of one call.

    Constexpr parameters that are not among the arguments stay open: a config or their default sets them later.

    >>> untyped = Signature((Parameter("x"), Parameter("n"), Parameter("BLOCK", ParameterKind.CONSTEXPR)))
    >>> typed, facts = specialize(untyped, {"x": ArgumentFacts.array("float32", 4096), "n": ArgumentFacts(48)})
    >>> [(parameter.name, str(parameter.dtype)) for parameter in typed.parameters]
    [('x', 'float32'), ('n', 'int32'), ('BLOCK', 'None')]
    >>> [(name, fact.value) for name, fact in facts.facts]
    [('n', 'divisible16'), ('x', 'aligned16')]

    Raises:
        ArgumentError: an argument is missing, unknown, or of a kind that its parameter cannot take.
    """
    unknown = [name for name in arguments if name not in signature.names]
    if unknown:
        raise ArgumentError(
            f"no parameter is called {', '.join(unknown)}; the kernel takes {', '.join(signature.names)}"
        )
    parameters: list[Parameter] = []
    facts: list[tuple[str, Fact]] = []
    constants: list[tuple[str, Value]] = []
    for parameter in signature.parameters:
        argument = arguments.get(parameter.name)
        if parameter.kind is ParameterKind.CONSTEXPR:
            if argument is not None:
                constants.append((parameter.name, _constant(parameter, argument)))
            parameters.append(parameter)
            continue
        if argument is None:
            if isinstance(parameter.default, NoDefault):
                raise ArgumentError(f"the argument {parameter.name} is missing")
            argument = ArgumentFacts(parameter.default)
        typed, parameter_facts = _typed(parameter, argument)
        if isinstance(argument.value, FunctionValue):
            constants.append((parameter.name, argument.value))
        elif argument.block_shape:
            layout = () if argument.block_layout is None else (argument.block_layout,)
            constants.append((parameter.name, (*argument.block_shape, *layout)))
        parameters.append(typed)
        facts.extend((parameter.name, fact) for fact in parameter_facts)
    return Signature(tuple(parameters)), Specialization(tuple(facts), tuple(constants))


def _constant(parameter: Parameter, argument: ArgumentFacts) -> Value:
    if argument.is_pointer:
        raise ArgumentError(f"{parameter.name} is a tl.constexpr, so it takes a value, not an array")
    return argument.value


def _typed(parameter: Parameter, argument: ArgumentFacts) -> tuple[Parameter, list[Fact]]:
    if argument.is_pointer:
        return _pointer(parameter, argument)
    value = argument.value
    if value is None:
        if parameter.kind not in (ParameterKind.ANY, ParameterKind.POINTER):
            raise ArgumentError(f"{parameter.name} is annotated as {parameter.dtype}; it cannot be None")
        return replace(_required(parameter), kind=ParameterKind.POINTER), [Fact.NONE]
    if isinstance(value, FunctionValue):
        return replace(parameter, kind=ParameterKind.CONSTEXPR), []
    if parameter.kind is ParameterKind.POINTER:
        raise ArgumentError(f"{parameter.name} is annotated as a pointer; it takes an array, not {describe(value)}")
    if parameter.kind is not ParameterKind.ANY:
        return _annotated(parameter, value)
    if isinstance(value, bool):
        return replace(parameter, kind=ParameterKind.BOOL, dtype=dtype("bool")), []
    if isinstance(value, int):
        typed = replace(parameter, kind=ParameterKind.INTEGER, dtype=_integer_dtype(parameter.name, value))
        if parameter.specialize and value == 1:
            return typed, [Fact.EQUAL_1]
        return typed, _divisible(parameter, value)
    if isinstance(value, float):
        return replace(parameter, kind=ParameterKind.FLOAT, dtype=dtype("float32")), []
    raise ArgumentError(
        f"{parameter.name} got {describe(value)}, a {type(value).__name__}: a kernel takes arrays, numbers, "
        "bools and None; annotate the parameter as tl.constexpr to pass anything else"
    )


def _required(parameter: Parameter) -> Parameter:
    """The parameter of an array argument without its default.

    The default is a number, which code for an array could not take. A default of None stays.
    """
    return parameter if parameter.default is None else replace(parameter, default=NO_DEFAULT)


def _pointer(parameter: Parameter, argument: ArgumentFacts) -> tuple[Parameter, list[Fact]]:
    if argument.block_shape:
        if parameter.kind not in (ParameterKind.ANY, ParameterKind.DESCRIPTOR):
            raise ArgumentError(f"{parameter.name} is annotated as {parameter.dtype}; it takes no tensor descriptor")
        return replace(_required(parameter), kind=ParameterKind.DESCRIPTOR, dtype=argument.dtype), []
    if parameter.kind not in (ParameterKind.ANY, ParameterKind.POINTER):
        raise ArgumentError(f"{parameter.name} is annotated as {parameter.dtype}; it takes a number, not an array")
    element = parameter.dtype or argument.dtype
    if element is None:
        raise ArgumentError(f"the dtype of the array {parameter.name} is not known")
    parameter = _required(parameter)
    facts: list[Fact] = []
    if parameter.specialize and parameter.align and argument.address % _ALIGNMENT == 0:
        facts.append(Fact.ALIGNED_16)
    if parameter.specialize and argument.range32:
        facts.append(Fact.POINTER_RANGE_32)
    return replace(parameter, kind=ParameterKind.POINTER, dtype=element), facts


def _annotated(parameter: Parameter, value: Value) -> tuple[Parameter, list[Fact]]:
    """A scalar parameter whose type the author annotated, and the facts about its value.

    The parameter has this type for every value, and the value 1 does not become a constant of the code.
    """
    if parameter.kind is ParameterKind.INTEGER:
        if not isinstance(value, int):
            raise ArgumentError(
                f"{parameter.name} is annotated as {parameter.dtype}; {describe(value)} is not an integer"
            )
        assert parameter.dtype is not None  # an annotation defines kind and dtype together
        if value not in _range_of(parameter.dtype):
            raise ArgumentError(f"{parameter.name} is annotated as {parameter.dtype}; {value} does not fit")
        folded = value == 1 or isinstance(value, bool)
        return parameter, [] if folded else _divisible(parameter, value)
    if not isinstance(value, bool | int | float):
        raise ArgumentError(f"{parameter.name} is annotated as {parameter.dtype}; {describe(value)} is not a number")
    return parameter, []


def _divisible(parameter: Parameter, value: int) -> list[Fact]:
    holds = parameter.specialize and parameter.align and value % _ALIGNMENT == 0
    return [Fact.DIVISIBLE_16] if holds else []


def _integer_dtype(name: str, value: int) -> DType:
    if value in _I32:
        return dtype("int32")
    if value in _I64:
        return dtype("int64")
    if value in _U64:
        return dtype("uint64")
    raise ArgumentError(f"{name} = {value} does not fit in 64 bits")


def _range_of(element: DType) -> range:
    if element.kind is DTypeKind.UINT:
        return range(1 << element.bits)
    return range(-(1 << (element.bits - 1)), 1 << (element.bits - 1))


# ---- The kernel parameter for each argument of a lowered module ----


@dataclass(frozen=True, slots=True)
class ModuleArgument:
    """One argument of the kernel function.

    ``part`` is "" for a pointer, a scalar or the descriptor itself (its base pointer if descriptors were rewritten to
    pointers). The other parts of a descriptor are ``shape.0``, ``stride.0``, ..., ``nan`` (pad with NaN) and ``tf32``
    (round loaded values to tf32). If descriptors were rewritten, shape and strides occur twice.
    """

    parameter: str
    part: str
    type: Type


def module_arguments(
    signature: Signature, specialization: Specialization, module: Module
) -> tuple[ModuleArgument, ...]:
    """The kernel's arguments in order. Parameters that are folded into the code have no argument.

    Raises:
        SourceError: the module was not lowered from this signature and specialization.
    """
    types = [argument.type for argument in module.entry.regions[0].blocks[0].arguments]
    arguments: list[ModuleArgument] = []
    for parameter in signature.parameters:
        facts = specialization.facts_of(parameter.name)
        if parameter.kind is ParameterKind.CONSTEXPR or facts & {Fact.EQUAL_1, Fact.NONE}:
            continue
        for part in _parts(parameter, specialization, types[len(arguments) :]):
            if len(arguments) == len(types):
                break
            arguments.append(ModuleArgument(parameter.name, part, types[len(arguments)]))
    if len(arguments) != len(types):
        raise SourceError(
            f"the module's kernel {module.kernel} takes {len(types)} arguments, "
            f"its signature makes {len(arguments)} with this specialization"
        )
    return tuple(arguments)


def _parts(parameter: Parameter, specialization: Specialization, remaining_types: list[Type]) -> Iterator[str]:
    yield ""
    if parameter.kind is not ParameterKind.DESCRIPTOR:
        return
    rank = len(block_extents(specialization.constant_values.get(parameter.name)))
    sizes = [*(f"shape.{axis}" for axis in range(rank)), *(f"stride.{axis}" for axis in range(rank))]
    if (
        remaining_types and remaining_types[0].pointer
    ):  # a rewritten descriptor has 64-bit sizes and flags before Triton's usual ones
        yield from sizes
        flags = remaining_types[1 + len(sizes) : 3 + len(sizes)]
        yield from (name for name, kind in zip(("nan", "tf32"), flags, strict=False) if kind.element == "i1")
    yield from sizes


# ---- Conversion between Triton's constexpr objects and values that can be part of a key ----


def to_value(candidate: Any, functions: Callable[[Any], FunctionValue] | None) -> Value:  # noqa: ANN401
    """Converts a constexpr to a value; ``functions`` converts a Triton function.

    Raises:
        TypeError: the object lacks a canonical form.
    """

    def special(value: Any) -> Value | NotSpecial:  # noqa: ANN401
        kind: type[object] = value.__class__
        if is_constexpr(value):
            return to_value(value.value, functions)
        if kind.__module__.startswith("triton.") and kind.__name__ == "dtype":
            return dtype_value(value.name)
        if functions is not None and (is_function(value) or is_aggregate(value)):
            return functions(value)
        layout = layout_value(value, lambda part: to_value(part, functions))
        if layout is not None:
            return layout
        return NOT_SPECIAL

    return written_values.to_value(candidate, special)

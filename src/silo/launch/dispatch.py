"""The choice among compiled variants for a call, with the reason for each rejection. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar, cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.dtypes import DType, DTypeKind
from silo.core.signature import NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import Value, identity_of
from silo.core.variant import Variant
from silo.errors import NoVariantError
from silo.frozen import frozen
from silo.launch.arguments import Argument, Call, ValueKind, describe_call

__all__ = ["Choice", "accepts", "choose", "label", "may_accept", "specificity"]

T = TypeVar("T")
Constant = Callable[[object], Value]


@frozen
class Choice(Generic[T]):
    """What may serve a call, most specialised first, and the decision on every candidate in the order given."""

    accepted: tuple[T, ...]
    decisions: tuple[tuple[T, Decision], ...]


def choose(
    call: Call,
    candidates: Iterable[T],
    *,
    variant_of: Callable[[T], Variant],
    constant: Constant = lambda value: cast("Value", value),
) -> Choice[T]:
    """All candidates a call may use, those that assume most of it first; equal ones stay in the order given.

    Raises:
        NoVariantError: none; lists each candidate with the reason.
    """
    decisions = tuple((one, accepts(variant_of(one), call, constant=constant)) for one in candidates)
    accepted = [one for one, decision in decisions if decision]
    if not accepted:
        lines = [f"{label(variant_of(one))}: {cast('Rejected', decision).reason}" for one, decision in decisions]
        what = "none of its variants fits" if lines else "there is no variant at all"
        raise NoVariantError(f"{describe_call(call)}: {what}", lines)
    accepted.sort(key=lambda one: specificity(variant_of(one)), reverse=True)
    return Choice(tuple(accepted), decisions)


def specificity(variant: Variant) -> tuple[int, int]:
    """How much a variant assumes: the number of facts and constants, then how narrow its integers are."""
    widths = sum(
        64 - one.dtype.bits
        for one in variant.signature.parameters
        if one.kind is ParameterKind.INTEGER and one.dtype is not None
    )
    return len(variant.specialization.facts) + len(variant.specialization.constants), widths


def accepts(variant: Variant, call: Call, *, constant: Constant = lambda value: cast("Value", value)) -> Decision:
    """Whether everything the variant assumes holds for the call; the reason names the first thing that does not."""
    given = {argument.name: argument for argument in call.arguments}
    constants = variant.specialization.constant_values
    config = variant.config.as_dict()
    for parameter in variant.signature.parameters:
        argument = given.get(parameter.name)
        if argument is None:
            return Rejected(f"it has a parameter {parameter.name}, and the call has none")
        if _is_constant(parameter, variant.specialization):
            problem = _constant_problem(parameter, argument, {**config, **constants}, constant)
        else:
            problem = _problem(parameter, argument, variant.specialization)
        if problem is not None:
            return Rejected(f"{parameter.name} {problem}")
    if (problem := _extents_problem(variant.specialization, given)) is not None:
        return Rejected(problem)
    for name, value in call.options.items():
        if name not in config:
            return Rejected(f"{name}={_shown(value)} was asked for, and it was compiled without")
        if identity_of(config[name]) != identity_of(constant(value)):
            return Rejected(f"{name}={_shown(value)} was asked for, and it has {name}={_shown(config[name])}")
    assumed = ", ".join(variant.specialization.assumptions)
    return Accepted(f"assumes {assumed}" if assumed else "assumes nothing of the arguments")


def may_accept(signature: Signature, specialization: Specialization, call: Call) -> bool:
    """Whether :func:`accepts` may accept variants of this signature and specialization: their constants decide then."""
    given = {argument.name: argument for argument in call.arguments}
    return all(
        (argument := given.get(parameter.name)) is not None
        and (_is_constant(parameter, specialization) or _problem(parameter, argument, specialization) is None)
        for parameter in signature.parameters
    ) and (_extents_problem(specialization, given) is None)


def _extents_problem(specialization: Specialization, given: Mapping[str, Argument]) -> str | None:
    """What is wrong with the extents of a call, for code that was made for certain ones."""
    if not specialization.extents:
        return None
    from silo.core.dynamic_layout import DynamicLayout  # noqa: PLC0415  # few kernels have any
    from silo.core.extents import ExtentKind  # noqa: PLC0415

    for name, extents in specialization.extents:
        argument = given.get(name)
        if argument is None:
            return f"it was built for a shape of {name}, and the call has no such argument"
        if isinstance(extents, DynamicLayout):
            problem = extents.problem(cast("DynamicLayout | None", argument.extents(ExtentKind.DYNAMIC)))
        else:
            problem = extents.problem(argument.shape, argument.strides)
        if problem is not None:
            return f"argument {name}: {problem}"
    return None


def _is_constant(parameter: Parameter, specialization: Specialization) -> bool:
    """Whether a value is compiled in, for it is a constexpr or the code was made for one value."""
    if parameter.kind is ParameterKind.DESCRIPTOR:
        return False  # its constant is its block shape
    return parameter.kind is ParameterKind.CONSTEXPR or any(
        name == parameter.name for name, _ in specialization.constants
    )


def _shown(value: object) -> str:
    """A constant for people: an element type by its name."""
    return value.name if isinstance(value, DType) else repr(value)


def _constant_problem(
    parameter: Parameter, argument: Argument, known: dict[str, Value], constant: Constant
) -> str | None:
    name = parameter.name
    if argument.kind is ValueKind.ABSENT:
        if name in known or not isinstance(parameter.default, NoDefault):
            return None
        return "is left to the config, and its config does not have it"
    if argument.kind not in (ValueKind.CONSTANT, ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT, ValueKind.NONE):
        return "is a constexpr, and an array was given"
    scalar = argument.kind in (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)
    value = argument.number if scalar else constant(argument.value)
    if name not in known:
        if not isinstance(parameter.default, NoDefault) and identity_of(parameter.default) == identity_of(value):
            return None
        return f"is {_shown(value)}, and it was compiled for no value of it"
    if identity_of(known[name]) == identity_of(value):
        return None
    return f"is {_shown(value)}, and it was compiled for {_shown(known[name])}"


def _problem(parameter: Parameter, argument: Argument, assumed: Specialization) -> str | None:
    if parameter.kind is ParameterKind.DESCRIPTOR:
        return _descriptor_problem(parameter, argument, assumed)
    facts = assumed.facts_of(parameter.name)
    if Fact.NONE in facts:
        return None if argument.kind is ValueKind.NONE else "is given, and it was compiled for None"
    if argument.kind is ValueKind.NONE:
        return "is None, and it was compiled for a value"
    match parameter.kind:
        case ParameterKind.POINTER:
            return _pointer_problem(parameter, argument, facts)
        case ParameterKind.INTEGER:
            return _integer_problem(parameter, argument, facts)
        case ParameterKind.FLOAT:
            return None if argument.kind is ValueKind.FLOAT else f"is {_noun(argument)}, and it takes a float"
        case ParameterKind.BOOL:
            return None if argument.kind is ValueKind.BOOL else f"is {_noun(argument)}, and it takes a bool"
        case _:
            return f"is a {parameter.kind.value}, which no call can give"


def _pointer_problem(parameter: Parameter, argument: Argument, facts: frozenset[Fact]) -> str | None:
    if argument.kind not in (ValueKind.POINTER, ValueKind.ADDRESS):
        return f"is {_noun(argument)}, and it takes an array"
    if argument.kind is ValueKind.POINTER and parameter.dtype is not None and argument.dtype is not parameter.dtype:
        return f"is an array of {argument.dtype}, and it takes {parameter.dtype}"
    if argument.readonly and parameter.effect.writes:
        return "is read-only, and the kernel writes it"
    if Fact.ALIGNED_16 in facts and not argument.aligned16:
        return "is not at a multiple of 16 bytes, and it assumes that"
    if Fact.POINTER_RANGE_32 in facts and not argument.range32:
        return "is not known to lie in less than 2 GiB of memory, and it assumes that"
    return None


def _descriptor_problem(parameter: Parameter, argument: Argument, assumed: Specialization) -> str | None:
    if argument.kind is not ValueKind.DESCRIPTOR:
        return f"is {_noun(argument)}, and it takes a tensor descriptor"
    if parameter.dtype is not None and argument.dtype is not parameter.dtype:
        return f"is a tensor descriptor of {argument.dtype}, and it takes {parameter.dtype}"
    if argument.readonly and parameter.effect.writes:
        return "has a read-only base, and the kernel writes it"
    block = assumed.constant_values.get(parameter.name)
    if not isinstance(block, tuple):
        return "has a block shape, and it was compiled for none"
    if len(block) != len(argument.block_shape):
        return f"has {len(argument.block_shape)} dimensions, and it takes {len(block)}"
    if Fact.CONFIG_BLOCK not in assumed.facts_of(parameter.name) and identity_of(block) != identity_of(
        argument.block_shape
    ):
        return f"has the block shape {list(argument.block_shape)}, and it was compiled for {list(block)}"
    return None


def _integer_problem(parameter: Parameter, argument: Argument, facts: frozenset[Fact]) -> str | None:
    if argument.kind is not ValueKind.INT:
        return f"is {_noun(argument)}, and it takes an integer"
    takes, has = parameter.dtype, argument.dtype
    assert has is not None
    if takes is None:  # a file may say so; what was compiled here has a dtype
        return "is an integer, and it takes one of no known type"
    unsigned = takes.kind is DTypeKind.UINT
    fits = has.bits <= takes.bits if has.kind is takes.kind else has.bits < takes.bits and not unsigned
    if not fits:
        return f"needs {has}, and it takes {takes}"
    if Fact.EQUAL_1 in facts and not argument.equal1:
        return "is not 1, and it assumes that"
    if Fact.DIVISIBLE_16 in facts and not argument.divisible16:
        return "is not a multiple of 16, and it assumes that"
    return None


def _noun(argument: Argument) -> str:
    nouns = {
        ValueKind.POINTER: "an array",
        ValueKind.ADDRESS: "an address",
        ValueKind.INT: "an integer",
        ValueKind.BOOL: "a bool",
        ValueKind.FLOAT: "a float",
        ValueKind.CONSTANT: "a constexpr",
        ValueKind.ABSENT: "left out",
        ValueKind.NONE: "None",
        ValueKind.DESCRIPTOR: "a tensor descriptor",
    }
    return nouns[argument.kind]


def label(variant: Variant) -> str:
    """A variant in one line: kernel, target, config, types."""
    parts: Sequence[str] = (str(variant.target), str(variant.config))
    types = ", ".join(f"{one.name}: {_type(one)}" for one in variant.signature.parameters if one.dtype is not None)
    return f"{variant.kernel} for {', '.join(parts)} ({types})"


def _type(parameter: Parameter) -> str:
    return f"{'*' if parameter.kind is ParameterKind.POINTER else ''}{parameter.dtype}"

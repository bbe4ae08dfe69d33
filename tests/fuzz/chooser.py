"""A brute-force chooser: every variant of a kernel is looked at, by the rules of docs/concepts.md and choice.h.

The oracle of the fuzzer of the choice. It says which variants serve a call and which is best, and no reasons; the
values (rules, expressions, layouts) are those of ``silo.core``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from silo.building.derived_constexprs import FORBIDDEN, Derived, derive
from silo.bundle.contents import BundleKernel, BundleRules, BundleVariant, VariantGroup
from silo.core.config import Config
from silo.core.dispatch import bucket_of
from silo.core.extents import DynamicLayout, ExtentKind, HeldExtents, guard_for_grid, kind_of
from silo.core.signature import NoDefault, Parameter, ParameterKind
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTypeKind, identity_of
from silo.core.variant import Variant
from silo.errors import ArgumentError, ExpressionError
from silo.launch.arguments import CallArgument, SeenCall, ValueKind, call_grid

__all__ = ["guard_of", "ranked", "serves", "specificity"]

_SCALARS = (ParameterKind.INTEGER, ParameterKind.BOOL, ParameterKind.FLOAT)
_NUMBERS = (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)


def guard_of(head: BundleKernel, groups: Iterable[VariantGroup]) -> tuple[set[str], HeldExtents | None]:
    """The scalars whose very value decides something, and the extents that do; None without any."""
    found = Derived(head.derived).reads if head.derived else frozenset[str]()
    exact, held = set(found), HeldExtents()
    for group in groups:
        special = group.specialization
        constants = {name for name, _ in special.constants}
        exact |= {one.name for one in group.signature.parameters if one.kind in _SCALARS and one.name in constants}
        layouts = {name: kind_of(one) for name, one in special.extents}
        held = HeldExtents(held.arguments, held.grid or special.grid is not None).with_arguments(layouts)
    if not held:
        return exact, None
    held, read = guard_for_grid(held, head.grid, head.signature)
    return exact | read, held


def ranked(kernel: BundleKernel, call: SeenCall, device: Any) -> list[int]:
    """The numbers of all variants that serve a call on a device, best first."""
    found = [number for number, one in enumerate(kernel.variants) if serves(kernel, one, call, device)]
    return sorted(found, key=lambda number: _preference(kernel, number, call), reverse=True)


def _preference(kernel: BundleKernel, number: int, call: SeenCall) -> tuple[int, tuple[int, int], int]:
    artifact = kernel.variants[number].artifact
    variant = artifact.variant
    wanted = (variant.target, variant.signature.without_effects(), variant.specialization.extents)
    values = _scalars(kernel, call)
    rules = next((one for one in kernel.rules if one.key == wanted), None)
    config, compiler = (None, "") if rules is None else ruled(rules, [values[name] for name in rules.rules.key])
    fits = 0 if config != variant.config else 2 if compiler == artifact.compiler else 1
    return fits, specificity(variant), -number


def ruled(rules: BundleRules, values: list[Any]) -> tuple[Config, str]:
    """The config and the compiler that rules name for values of the key; "" without a compiler."""
    found = rules.rules.lookup(values)
    if found.rule is not None:
        buckets = [identity_of(bucket) for bucket, _ in rules.rules.rules]
        return found.config, rules.rule_compilers[buckets.index(identity_of(found.rule))]
    if rules.rules.unseen is not None and (step := rules.rules.unseen.find(_bucket(rules, values))) is not None:
        return found.config, rules.step_compilers[rules.rules.unseen.steps.index(step)]
    return found.config, rules.fallback_compiler


def _bucket(rules: BundleRules, values: list[Any]) -> dict[str, Any]:
    return dict(zip(rules.rules.key, bucket_of(values), strict=True))


def specificity(variant: Variant) -> tuple[int, int]:
    """How much a variant assumes: facts and constants, then how narrow its integers are."""
    integers = [one.dtype for one in variant.signature.parameters if one.kind is ParameterKind.INTEGER and one.dtype]
    assumed = variant.specialization
    return len(assumed.facts) + len(assumed.constants), sum(64 - one.bits for one in integers)


def serves(kernel: BundleKernel, one: BundleVariant, call: SeenCall, device: Any) -> bool:
    """Whether a variant serves a call on a device."""
    variant = one.artifact.variant
    return bool(
        device.runs(variant.target, one.artifact.blob.kind)
        and accepts(variant, call)
        and _derived_holds(kernel, variant, call, device.facts())
        and _grid_holds(kernel, variant, call, device.facts())
    )


def accepts(variant: Variant, call: SeenCall) -> bool:
    """Whether everything that a variant assumes of the arguments and options holds."""
    given = {one.name: one for one in call.arguments}
    config = variant.config.as_dict()
    return (
        all(_takes(variant, one, given.get(one.name)) for one in variant.signature.parameters)
        and all(_has_extents(given.get(name), wanted) for name, wanted in variant.specialization.extents)
        and all(name in config and _same(config[name], value) for name, value in call.options.items())
    )


def _same(left: object, right: object) -> bool:
    return identity_of(left) == identity_of(right)


def _scalars(kernel: BundleKernel, call: SeenCall) -> dict[str, Any]:
    values: dict[str, Any] = {
        one.name: one.default for one in kernel.signature.parameters if not isinstance(one.default, NoDefault)
    }
    for one in call.arguments:
        if one.kind in _NUMBERS:
            values[one.name] = one.number
        elif one.kind is ValueKind.CONSTANT:
            values[one.name] = one.value
    return values


def _takes(variant: Variant, parameter: Parameter, argument: CallArgument | None) -> bool:
    if argument is None:
        return False
    assumed = variant.specialization
    if parameter.kind is ParameterKind.DESCRIPTOR:
        return _takes_descriptor(parameter, argument, assumed)
    if parameter.kind is ParameterKind.CONSTEXPR or parameter.name in dict(assumed.constants):
        return _is_constant({**variant.config.as_dict(), **assumed.constant_values}, parameter, argument)
    facts = assumed.facts_of(parameter.name)
    if Fact.NONE in facts or argument.kind is ValueKind.NONE:
        return Fact.NONE in facts and argument.kind is ValueKind.NONE
    match parameter.kind:
        case ParameterKind.POINTER:
            return (
                argument.kind in (ValueKind.POINTER, ValueKind.ADDRESS)
                and (argument.kind is ValueKind.ADDRESS or parameter.dtype in (None, argument.dtype))
                and not (argument.readonly and parameter.effect.writes)
                and (argument.aligned16 or Fact.ALIGNED_16 not in facts)
                and (argument.range32 or Fact.POINTER_RANGE_32 not in facts)
            )
        case ParameterKind.INTEGER:
            return (
                argument.kind is ValueKind.INT
                and _fits(parameter, argument)
                and (argument.equal1 or Fact.EQUAL_1 not in facts)
                and (argument.divisible16 or Fact.DIVISIBLE_16 not in facts)
            )
        case ParameterKind.FLOAT:
            return argument.kind is ValueKind.FLOAT
        case ParameterKind.BOOL:
            return argument.kind is ValueKind.BOOL
        case _:
            return False


def _takes_descriptor(parameter: Parameter, argument: CallArgument, assumed: Specialization) -> bool:
    block = assumed.constant_values.get(parameter.name)
    return (
        argument.kind is ValueKind.DESCRIPTOR
        and parameter.dtype in (None, argument.dtype)
        and not (argument.readonly and parameter.effect.writes)
        and isinstance(block, tuple)
        and len(block) == len(argument.block_shape)
        and (Fact.CONFIG_BLOCK in assumed.facts_of(parameter.name) or _same(block, argument.block_shape))
    )


def _is_constant(known: Mapping[str, Any], parameter: Parameter, argument: CallArgument) -> bool:
    name, default = parameter.name, parameter.default
    if argument.kind is ValueKind.ABSENT:
        return name in known or not isinstance(default, NoDefault)
    if argument.kind not in (*_NUMBERS, ValueKind.CONSTANT, ValueKind.NONE):
        return False
    value = argument.number if argument.kind in _NUMBERS else argument.value
    return _same(known.get(name, default), value)


def _fits(parameter: Parameter, argument: CallArgument) -> bool:
    """Whether every value of the argument's type is one of the parameter's."""
    takes, has = parameter.dtype, argument.dtype
    if takes is None or has is None:
        return False
    if has.kind is takes.kind:
        return has.bits <= takes.bits
    return takes.kind is not DTypeKind.UINT and has.bits < takes.bits


def _has_extents(argument: CallArgument | None, wanted: Any) -> bool:
    if argument is None:
        return False
    if isinstance(wanted, DynamicLayout):
        layout: Any = argument.extents(ExtentKind.DYNAMIC)
        return wanted.problem(layout) is None
    strides = wanted.strides is None or argument.strides == wanted.strides
    return argument.shape == wanted.shape and strides


def _derived_holds(kernel: BundleKernel, variant: Variant, call: SeenCall, facts: Mapping[str, int]) -> bool:
    if not kernel.derived:
        return True
    constants = {**variant.config.as_dict(), **variant.specialization.constant_values}
    try:
        needed = derive(Derived(kernel.derived), _scalars(kernel, call), variant.config.as_dict(), facts)
    except ExpressionError:
        return False
    return all(
        value != FORBIDDEN and (name not in constants or _same(constants[name], value))
        for name, value in needed.items()
    )


def _grid_holds(kernel: BundleKernel, variant: Variant, call: SeenCall, facts: Mapping[str, int]) -> bool:
    wanted = variant.specialization.grid
    if wanted is None:
        return True
    config = {**variant.config.as_dict(), **variant.specialization.constant_values}
    try:
        return call_grid(call, kernel.grid, config, facts) == wanted
    except (ArgumentError, ExpressionError):
        return False

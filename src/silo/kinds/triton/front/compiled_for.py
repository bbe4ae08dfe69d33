"""Converts Triton's compile requests to Silo's signature, specialization and config, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from silo.core.config import Config
from silo.core.device import Target
from silo.core.plugins import is_option
from silo.core.signature import NO_DEFAULT, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTypeKind, Value, dtype
from silo.core.variant import Variant
from silo.errors import SourceError
from silo.frozen import replace
from silo.kinds.triton.front.adapter import CompileCall, compile_call, default_options, layout_in_type
from silo.kinds.triton.front.triton_source import TritonSource

__all__ = ["call_of", "config_of", "generic", "options_config", "relaxed", "target_from", "target_of", "types_of"]

_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[([0-9, ]+)\](?:,\s*(.*))?>", re.DOTALL)
_FACTS = {("tt.divisibility", 16), ("tt.pointer_range", 32)}


def types_of(call: CompileCall, source: TritonSource) -> tuple[Signature, Specialization]:
    """The typed signature and the specialization of a compile request of Triton.

    Raises:
        SourceError: an argument that Silo cannot express (a tuple, a descriptor of another form).
    """
    parameters: list[Parameter] = []
    facts: list[tuple[str, Fact]] = []
    constants: list[tuple[str, Value]] = []
    if tuple(call.types) != source.signature.names:
        raise SourceError(f"{source.name}: Triton's names of its parameters are {', '.join(call.types)}")
    for index, parameter in enumerate(source.signature.parameters):
        kind = call.types[parameter.name]
        if parameter.kind is ParameterKind.CONSTEXPR:
            constants.append((parameter.name, source.constant(call.constants.get(index))))
            parameters.append(parameter)
        elif kind == "constexpr":
            typed, fact = _folded(parameter, call.constants.get(index), source, constants)
            parameters.append(typed)
            facts += [(parameter.name, fact)] if fact is not None else []
        else:
            parameters.append(_typed(parameter, kind, source, constants))
            facts += [(parameter.name, fact) for fact in _facts(parameters[-1], call.attributes.get(index, ()), source)]
    return Signature(tuple(parameters)), Specialization(tuple(facts), tuple(constants))


def _folded(
    parameter: Parameter, value: object, source: TritonSource, constants: list[tuple[str, Value]]
) -> tuple[Parameter, Fact | None]:
    """A parameter that Triton made a constant because of its value in this call, and the fact that describes it."""
    if value is None:
        typed = parameter if parameter.default is None else replace(parameter, default=NO_DEFAULT)
        return replace(typed, kind=ParameterKind.POINTER), Fact.NONE
    if type(value) is int and value == 1:
        typed = parameter if parameter.dtype is not None else replace(parameter, dtype=dtype("int32"))
        return replace(typed, kind=ParameterKind.INTEGER), Fact.EQUAL_1
    constants.append((parameter.name, source.constant(value)))
    return replace(parameter, kind=ParameterKind.CONSTEXPR, dtype=None), None


def _typed(parameter: Parameter, kind: Any, source: TritonSource, constants: list[tuple[str, Value]]) -> Parameter:  # noqa: ANN401
    if not isinstance(kind, str):
        raise SourceError(f"{source.name}: the argument {parameter.name} is a tuple, which Silo keeps no code for")
    try:
        if kind.startswith("*"):
            element = dtype(kind[1:].removeprefix("k"))
            free = parameter if parameter.default is None else replace(parameter, default=NO_DEFAULT)
            return replace(free, kind=ParameterKind.POINTER, dtype=element)
        if (match := _DESCRIPTOR.fullmatch(kind)) is not None:
            element, block = dtype(match[1]), tuple(int(extent) for extent in match[2].split(","))
            layout = layout_in_type(match[3], block, element.bits) if match[3] else None
            constants.append((parameter.name, block if layout is None else (*block, layout)))
            return replace(parameter, kind=ParameterKind.DESCRIPTOR, dtype=element, default=NO_DEFAULT)
        element = dtype("i1" if kind == "u1" else kind)
        return replace(parameter, kind=_KINDS[element.kind], dtype=element)
    except (KeyError, ValueError):
        raise SourceError(
            f"{source.name}: the argument {parameter.name} is a {kind}, which Silo keeps no code for"
        ) from None


_KINDS = {
    DTypeKind.BOOL: ParameterKind.BOOL,
    DTypeKind.INT: ParameterKind.INTEGER,
    DTypeKind.UINT: ParameterKind.INTEGER,
    DTypeKind.FLOAT: ParameterKind.FLOAT,
}


def _facts(parameter: Parameter, attributes: tuple[tuple[str, object], ...], source: TritonSource) -> list[Fact]:
    if strange := [pair for pair in attributes if pair not in _FACTS]:
        raise SourceError(f"{source.name}: Triton says of {parameter.name} {strange}, which Silo has no word for")
    pointer = parameter.kind is ParameterKind.POINTER
    names = {name for name, _ in attributes}
    facts = [Fact.ALIGNED_16 if pointer else Fact.DIVISIBLE_16] if "tt.divisibility" in names else []
    return [*facts, Fact.POINTER_RANGE_32] if "tt.pointer_range" in names else facts


def config_of(call: CompileCall, kernel: str) -> Config:
    """The config of a compile request: its options that differ from the defaults of the request's target.

    Raises:
        SourceError: an option is set that Silo cannot express, so the code would be misidentified.
    """
    return options_config(call.options, call.target, kernel)


def options_config(given_options: Mapping[str, Any], target: Any, kernel: str) -> Config:  # noqa: ANN401  # Triton's GPUTarget
    """The config of the options in ``given_options`` that differ from the defaults of ``target``.

    The config has ``num_warps``, ``num_stages`` and ``num_ctas`` even if they equal the defaults. Raises SourceError as
    :func:`config_of` does.
    """
    usual = default_options(target)
    options: dict[str, Value] = {}
    for name, value in given_options.items():
        if name in ("num_warps", "num_stages", "num_ctas"):
            options[name] = value
        elif value != usual.get(name):
            if not is_option(name) or not (value is None or isinstance(value, bool | int | float | str)):
                raise SourceError(f"{kernel}: it is compiled with {name}={value!r}, which Silo keeps no code for")
            options[name] = value
    return Config((), tuple(options.items()))


def target_of(call: CompileCall) -> Target:
    """The target of the code; from sm_90 on the arch-specific form (``sm_90a``), for which Triton compiles."""
    return target_from(call.target)


def target_from(target: Any) -> Target:  # noqa: ANN401  # Triton's GPUTarget
    """Converts one of Triton's target objects. Raises SourceError if it names no arch."""
    kind, arch = target.backend, target.arch
    if kind == "cuda":
        return Target("cuda", f"sm_{arch}{'a' if int(arch) >= 90 else ''}")
    if not arch:
        raise SourceError(f"the target {kind} of Triton's names no arch, so nobody could say what runs the code")
    return Target(kind, str(arch))


def generic(specialization: Specialization) -> Specialization:
    """The specialization without assumptions: any alignment, any divisibility, any integer."""
    facts = tuple(pair for pair in specialization.facts if not pair[1].is_assumption)
    return replace(specialization, facts=facts)


def relaxed(call: CompileCall, signature: Signature, specialization: Specialization) -> CompileCall:
    """The request to compile for a specialization that may assume less, or a signature with wider integers.

    Returns ``call`` itself if it already matches.
    """
    types: dict[str, str] = {}
    attributes: dict[int, tuple[tuple[str, object], ...]] = {}
    for index, parameter in enumerate(signature.parameters):
        facts = specialization.facts_of(parameter.name)
        integer = parameter.kind is ParameterKind.INTEGER and Fact.EQUAL_1 not in facts
        if integer and parameter.dtype is not None and call.types[parameter.name] != parameter.dtype.short:
            types[parameter.name] = parameter.dtype.short
        if pairs := _pairs(facts):
            attributes[index] = pairs
    same = not types and attributes == {index: pairs for index, pairs in call.attributes.items() if pairs}
    return call if same else call.relaxed(types, attributes)


def call_of(function: Any, variant: Variant, constants: Mapping[str, object], options: Any, target: Any) -> CompileCall:  # noqa: ANN401
    """Triton's compile request for a variant: the inverse of :func:`types_of`.

    ``constants`` are the values of constexprs as the caller passed them.
    """
    types: dict[str, str] = {}
    constants_by_place: dict[int, object] = {}
    attributes: dict[int, tuple[tuple[str, object], ...]] = {}
    for index, parameter in enumerate(variant.signature.parameters):
        facts = variant.specialization.facts_of(parameter.name)
        if parameter.kind is ParameterKind.CONSTEXPR:
            kind, constants_by_place[index] = "constexpr", constants.get(parameter.name)
        elif facts & {Fact.NONE, Fact.EQUAL_1}:
            kind, constants_by_place[index] = "constexpr", None if Fact.NONE in facts else 1
        elif parameter.kind is ParameterKind.BOOL or parameter.dtype is None:
            kind = "u1"
        else:
            kind = f"{'*' * (parameter.kind is ParameterKind.POINTER)}{parameter.dtype.short}"
        types[parameter.name] = kind
        if pairs := _pairs(facts):
            attributes[index] = pairs
    return compile_call(function, types, constants_by_place, attributes, options, target)


def _pairs(facts: frozenset[Fact]) -> tuple[tuple[str, object], ...]:
    """Triton's attributes for the facts about an argument."""
    divisible = (("tt.divisibility", 16),) if facts & {Fact.ALIGNED_16, Fact.DIVISIBLE_16} else ()
    ranged = (("tt.pointer_range", 32),) if Fact.POINTER_RANGE_32 in facts else ()
    return (*divisible, *ranged)

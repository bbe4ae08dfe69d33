"""The signature of a compiled kernel as its author writes it: names, types, written memory, assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.dtypes import DTypeKind, dtype
from silo.core.launch_info import ABI_BYTES, AbiType, LayoutSlot, TensorMap
from silo.core.signature import Effect, NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import Value, value_to_json
from silo.errors import SourceError
from silo.sources.written_signature import written_map, written_members

__all__ = ["DeclaredParameters", "holds", "parse_assumptions", "parse_signature"]

# ---- The signature of a compiled kernel, as its author writes it: names, types, and which memory is written ----

_EFFECTS = {"in": Effect.READ, "out": Effect.WRITE, "inout": Effect.BOTH}
_HIDDEN = {"null": AbiType.PROFILE, "scratch": AbiType.SCRATCH}
_SCALARS = "bool, i8 to i64, u8 to u64, fp16, bf16, fp32, fp64"


@dataclass(frozen=True, slots=True)
class DeclaredParameters:
    """The parameters that callers pass, and the binary's parameters in its order, hidden ones included."""

    signature: Signature
    layout: tuple[LayoutSlot, ...]
    maps: tuple[TensorMap, ...] = ()


def parse_signature(kernel: str, signature: str | Mapping[str, Value]) -> DeclaredParameters:
    """Reads ``"x: in *fp32, n: i32"`` or ``{"x": "in *fp32", "n": "i32"}``.

    A type is a dtype for a scalar and ``*dtype`` for an array, with the effect ``in``, ``out`` or ``inout`` (the
    default) before it. ``null`` is a pointer that is always null and ``scratch`` a pointer to scratch memory; callers
    pass neither. ``constexpr`` is not a parameter of the binary but a value folded into it, and a value that is not
    text is a constexpr with that default. A struct by value is a mapping of its members, ``{"p": {"x": "in *fp32",
    "n": "i32"}}``: each is a parameter of its own, ``p_x`` and ``p_n``, and lies in the struct as C lays it out.
    ``in tensormap fp16 64x32 swizzle64`` is a tensor map, for which calls pass a descriptor with these blocks.

    >>> declared = parse_signature("axpy", "x: in *fp32, n: i32, scratch: null, BLOCK: constexpr")
    >>> declared.signature.names, [slot.type.value for slot in declared.layout]
    (('x', 'n', 'BLOCK'), ['ptr', 'i32', 'profile'])

    Raises:
        SourceError: a type is unknown, or a name appears twice or is invalid.
    """
    parameters: list[Parameter] = []
    layout: list[LayoutSlot] = []
    maps: list[TensorMap] = []
    for name, written in written_members(kernel, signature).items():
        if isinstance(written, Mapping):
            _take_struct(kernel, name, cast("Mapping[str, Value]", written), parameters, layout)
            continue
        if isinstance(written, str) and written.strip() in _HIDDEN:
            layout.append(LayoutSlot("", _HIDDEN[written.strip()]))
            continue
        parameter, encoding = _map_parameter(kernel, name, written)
        if encoding is not None:
            maps.append(encoding)
            layout.append(LayoutSlot(name, AbiType.TENSORMAP))
            parameters.append(parameter)
            continue
        parameter = _parameter(kernel, name, written)
        parameters.append(parameter)
        if parameter.kind is not ParameterKind.CONSTEXPR:
            layout.append(LayoutSlot(name, _abi_type(parameter)))
    return DeclaredParameters(Signature(tuple(parameters)), tuple(layout), tuple(maps))


def _map_parameter(kernel: str, name: str, written: Value) -> tuple[Parameter, TensorMap | None]:
    words = written.split() if isinstance(written, str) else []
    effect = _EFFECTS[words.pop(0)] if words and words[0] in _EFFECTS else Effect.BOTH
    encoding = written_map(kernel, name, words)
    element = dtype(words[1]) if encoding is not None else None
    made = Parameter(name, ParameterKind.DESCRIPTOR, element, effect=effect, specialize=False, align=False)
    return made, encoding


def _take_struct(
    kernel: str, name: str, members: Mapping[str, Value], parameters: list[Parameter], layout: list[LayoutSlot]
) -> None:
    """Adds the members of a struct by value. Raises SourceError."""
    made = [_parameter(kernel, f"{name}_{member}", written) for member, written in members.items()]
    if not made or any(one.kind is ParameterKind.CONSTEXPR for one in made):
        raise SourceError(f"{kernel}: the struct {name} has arrays and scalars as members, at least one")
    types = [_abi_type(one) for one in made]
    offsets: list[int] = []
    end = 0
    for kind in types:
        size = ABI_BYTES[kind]
        offsets.append(-(-end // size) * size)
        end = offsets[-1] + size
    align = max(ABI_BYTES[kind] for kind in types)
    size = -(-end // align) * align
    parameters += made
    layout += [
        LayoutSlot(one.name, kind, f"member.{offset}.{size}")
        for one, kind, offset in zip(made, types, offsets, strict=True)
    ]


def _parameter(kernel: str, name: str, written: Value) -> Parameter:
    if not isinstance(written, str):
        try:
            value_to_json(written)
        except TypeError as error:
            raise SourceError(f"{kernel}: {name} in the signature is {written!r}: {error}") from None
        return Parameter(name, ParameterKind.CONSTEXPR, default=written)
    words = written.split()
    if words == ["constexpr"]:
        return Parameter(name, ParameterKind.CONSTEXPR)
    effect = _EFFECTS[words.pop(0)] if words and words[0] in _EFFECTS else None
    spelled = "".join(words)
    try:
        element = dtype(spelled.removeprefix("*"))
    except KeyError:
        raise SourceError(
            f"{kernel}: the type of {name} is {written!r}; write *dtype for an array (such as in *fp32, out *fp16), "
            f"a dtype for a scalar ({_SCALARS}), constexpr, null or scratch"
        ) from None
    if spelled.startswith("*"):
        return Parameter(
            name, ParameterKind.POINTER, element, effect=effect or Effect.BOTH, specialize=False, align=False
        )
    if effect is not None:
        raise SourceError(f"{kernel}: {name} is {written!r}; in, out and inout are for arrays: write *{spelled}")
    if element.kind is DTypeKind.FLOAT and element.bits < 16:
        raise SourceError(f"{kernel}: {name} is a scalar of {element}, which cannot be passed by value; use {_SCALARS}")
    kinds = {DTypeKind.BOOL: ParameterKind.BOOL, DTypeKind.FLOAT: ParameterKind.FLOAT}
    return Parameter(name, kinds.get(element.kind, ParameterKind.INTEGER), element, specialize=False, align=False)


def _abi_type(parameter: Parameter) -> AbiType:
    if parameter.kind is ParameterKind.POINTER:
        return AbiType.POINTER
    assert parameter.dtype is not None  # every scalar has one
    return AbiType(parameter.dtype.short)


# ---- Assumptions of a compiled kernel about its arguments, in the notation of ``silo.binary`` ----

_FACTS = {
    ParameterKind.POINTER: (Fact.ALIGNED_16, Fact.POINTER_RANGE_32),
    ParameterKind.INTEGER: (Fact.DIVISIBLE_16,),
}
_BROKEN = {
    Fact.ALIGNED_16: "is not at a multiple of 16 bytes",
    Fact.POINTER_RANGE_32: "is not known to lie in less than 2 GiB of memory",
    Fact.DIVISIBLE_16: "is not a multiple of 16",
}


_EXACT_KINDS = (ParameterKind.BOOL, ParameterKind.INTEGER)


def parse_assumptions(kernel: str, facts: Mapping[str, Value], signature: Signature) -> Specialization:
    """Reads ``{"x": "aligned16", "n": "divisible16", "k": 4096}``; several facts of one parameter are a tuple.

    ``aligned16``: the array begins at a multiple of 16 bytes. ``range32``: its memory has less than 2 GiB, which is
    known for ROCm arrays only. ``divisible16``: the integer is a multiple of 16. A value: the integer, bool or
    constexpr equals it.

    Raises:
        SourceError: an unknown parameter, a fact that its kind cannot have, or a constexpr without a value.
    """
    found: list[tuple[str, Fact]] = []
    constants: dict[str, Value] = {
        one.name: one.default
        for one in signature.parameters
        if one.kind is ParameterKind.CONSTEXPR and not isinstance(one.default, NoDefault)
    }
    for name, written in facts.items():
        if name not in signature.names:
            raise SourceError(f"{kernel}: facts name {name!r}, and the signature has {', '.join(signature.names)}")
        parameter = signature[name]
        if parameter.kind is ParameterKind.CONSTEXPR:
            constants[name] = written
            continue
        for fact in written if isinstance(written, tuple) else (written,):
            if isinstance(fact, str):
                found.append((name, _fact(kernel, parameter, fact)))
            else:
                constants[name] = _exact(kernel, parameter, fact)
    for one in signature.parameters:
        if one.kind is ParameterKind.CONSTEXPR and one.name not in constants:
            raise SourceError(
                f"{kernel}: {one.name} is a constexpr; say which value the binary was compiled for: "
                f"facts={{{one.name!r}: 128}}"
            )
    return Specialization(tuple(dict.fromkeys(found)), tuple(constants.items()))


def _fact(kernel: str, parameter: Parameter, word: str) -> Fact:
    fitting = _FACTS.get(parameter.kind, ())
    for fact in fitting:
        if fact.value == word:
            return fact
    known = [fact.value for fact in fitting]
    if parameter.kind in _EXACT_KINDS:
        known.append("an exact value")
    raise SourceError(
        f"{kernel}: facts say {word!r} of {parameter.name}, a {parameter.kind.value}; "
        f"of that can be assumed: {', '.join(known) or 'nothing'}"
    )


def _exact(kernel: str, parameter: Parameter, value: Value) -> Value:
    kind = bool if parameter.kind is ParameterKind.BOOL else int
    if parameter.kind not in _EXACT_KINDS or type(value) is not kind:
        raise SourceError(
            f"{kernel}: facts say that {parameter.name}, a {parameter.kind.value}, is {value!r}; "
            "an integer, a bool or a constexpr can have an exact value of its own type"
        )
    return value


def holds(assumed: Specialization, given: Specialization) -> Decision:
    """Whether all assumptions are given; the reason names the first that is not."""
    values = given.constant_values
    for name, fact in assumed.facts:
        if fact not in given.facts_of(name):
            return Rejected(f"{name} {_BROKEN[fact]}, and it assumes {fact.value}")
    for name, value in assumed.constants:
        has = values.get(name)
        if name not in values or type(has) is not type(value) or has != value:
            other = "another" if name not in values else repr(has)
            return Rejected(f"it assumes {name} = {value!r}, and the call has {other}")
    words = [f"{name} {fact.value}" for name, fact in assumed.facts]
    words += [f"{name} = {cast('object', value)!r}" for name, value in assumed.constants]
    return Accepted(f"assumes {', '.join(words)}" if words else "assumes nothing of the arguments")

"""Assumptions of a compiled kernel about its arguments, in the notation of ``silo.binary``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.signature import NoDefault, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import Value
from silo.errors import SourceError

__all__ = ["holds", "parse_assumptions"]

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
    """Read ``{"x": "aligned16", "n": "divisible16", "k": 4096}``; a tuple of them for several facts of one parameter.

    ``aligned16``: the array begins at a multiple of 16 bytes. ``range32``: its memory has less than 2 GiB, which is
    known of ROCm arrays only. ``divisible16``: the integer is a multiple of 16. A value: the integer, bool or constexpr
    is exactly that.

    Raises:
        SourceError: an unknown parameter, a fact that cannot be had of it, or a constexpr without a value.
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
    """Whether everything assumed is given; the reason names the first thing that is not."""
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

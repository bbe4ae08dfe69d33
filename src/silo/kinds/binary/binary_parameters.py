"""The signature of a compiled kernel, as its author writes it: names, types, and which memory is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from silo.core.dtypes import DTypeKind, dtype
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.values import Value, value_to_json
from silo.errors import SourceError
from silo.sources.written_signature import written_members

__all__ = ["DeclaredParameters", "parse_signature"]

_EFFECTS = {"in": Effect.READ, "out": Effect.WRITE, "inout": Effect.BOTH}
_HIDDEN = {"null": AbiType.PROFILE, "scratch": AbiType.SCRATCH}
_SCALARS = "bool, i8 to i64, u8 to u64, fp16, bf16, fp32, fp64"


@dataclass(frozen=True, slots=True)
class DeclaredParameters:
    """What callers pass, and the parameters of the binary in its order: those that nobody passes are among them."""

    signature: Signature
    layout: tuple[LayoutSlot, ...]


def parse_signature(kernel: str, signature: str | Mapping[str, Value]) -> DeclaredParameters:
    """Read ``"x: in *fp32, n: i32"`` or ``{"x": "in *fp32", "n": "i32"}``.

    A type is a dtype for a scalar and ``*dtype`` for an array, with ``in``, ``out`` or ``inout`` (the default) before
    it for what the kernel does with the memory. ``null`` is a pointer that is always null and ``scratch`` one to
    scratch memory; callers pass neither. ``constexpr`` is not a parameter of the binary but a value folded into it, and
    a value that is not text is a constexpr with that default.

    >>> declared = parse_signature("axpy", "x: in *fp32, n: i32, scratch: null, BLOCK: constexpr")
    >>> declared.signature.names, [slot.type.value for slot in declared.layout]
    (('x', 'n', 'BLOCK'), ['ptr', 'i32', 'profile'])

    Raises:
        SourceError: a type is unknown, or a name is twice there or no name.
    """
    parameters: list[Parameter] = []
    layout: list[LayoutSlot] = []
    for name, written in written_members(kernel, signature).items():
        if isinstance(written, str) and written.strip() in _HIDDEN:
            layout.append(LayoutSlot("", _HIDDEN[written.strip()]))
            continue
        parameter = _parameter(kernel, name, written)
        parameters.append(parameter)
        if parameter.kind is not ParameterKind.CONSTEXPR:
            layout.append(LayoutSlot(name, _abi_type(parameter)))
    return DeclaredParameters(Signature(tuple(parameters)), tuple(layout))


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
    assert parameter.dtype is not None  # every scalar was given one
    return AbiType(parameter.dtype.short)

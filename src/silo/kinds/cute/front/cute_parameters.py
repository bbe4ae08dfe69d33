"""The parameters of an author's function, from its annotations and from ``signature=``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from silo.core.signature import NO_DEFAULT, Effect, NoDefault, Parameter, ParameterKind
from silo.core.values import DType, DTypeKind, Value, dtype
from silo.errors import SourceError
from silo.frozen import replace
from silo.kinds.cute.front.cute_specialize import constant_value, dtype_named

__all__ = ["DeclaredCuteParameters", "Passed", "declared_parameters"]

_EFFECTS = {"in": Effect.READ, "out": Effect.WRITE, "inout": Effect.BOTH}
_SCALARS = {DTypeKind.BOOL: ParameterKind.BOOL, DTypeKind.FLOAT: ParameterKind.FLOAT}
_BUILTIN = {"int": "int32", "float": "float32", "bool": "bool"}  # the DSL's types for types of Python
_STREAMS = ("CUstream", "Stream")
_CALLER_ANNOTATIONS = ("Any", "object", "Numeric")
_EXAMPLE = 'signature="x: in *fp32, out: out *fp32, n: i32"'


@dataclass(frozen=True, slots=True)
class Passed:
    """How the function takes one argument: a fact that the signature does not contain."""

    name: str
    pointer: bool = False  # whether the function takes the address of an array (cute.Pointer)
    python: bool = False  # whether the function takes a Python number (int, float, bool)
    keyword: bool = False  # whether the function takes the argument only by keyword


@dataclass(frozen=True, slots=True)
class DeclaredCuteParameters:
    """The parameters of an author's function.

    ``parameters`` are those that callers pass. ``passed`` are all parameters in the function's order, including the
    stream, whose name is ``stream``.
    """

    parameters: tuple[Parameter, ...]
    passed: tuple[Passed, ...]
    stream: str | None


def declared_parameters(
    kernel: str, function: Callable[..., Any], written: Mapping[str, Value], *, method: bool
) -> DeclaredCuteParameters:
    """Returns the parameters of a function; ``method``: its first parameter is the object and is skipped.

    ``written`` is the author's ``signature=``, by name: ``in``, ``out *fp32``, ``i32``, ``constexpr``, or a value.

    Raises:
        SourceError: a type that no call can pass, or a signature that contradicts the function.
    """
    parameters: list[Parameter] = []
    passed: list[Passed] = []
    stream: str | None = None
    listed = list(inspect.signature(function).parameters.values())[1 if method else 0 :]
    if unknown := [name for name in written if name not in [declared.name for declared in listed]]:
        raise SourceError(
            f"{kernel}: the signature names {', '.join(unknown)}; the function has "
            f"{', '.join(declared.name for declared in listed) or 'no parameters'}"
        )
    for declared in listed:
        if declared.kind in (declared.VAR_POSITIONAL, declared.VAR_KEYWORD):
            raise SourceError(f"{kernel}: its parameter *{declared.name} stands for any number of them; name each")
        annotation = _annotation(declared.annotation)
        if annotation in _STREAMS:
            stream = declared.name
            passed.append(Passed(declared.name))
            continue
        passed.append(
            Passed(
                declared.name,
                pointer=annotation == "Pointer",
                python=annotation in _BUILTIN,
                keyword=declared.kind is declared.KEYWORD_ONLY,
            )
        )
        parameter = _annotated(kernel, declared.name, annotation, written.get(declared.name))
        parameters.append(_with_default(kernel, parameter, declared.default))
    return DeclaredCuteParameters(tuple(parameters), tuple(passed), stream)


def _annotation(annotation: Any) -> str:  # noqa: ANN401
    """Returns the name of an annotated type, without modules, ``Optional`` and brackets; "" without an annotation.

    >>> [_annotation(one) for one in ("cute.Tensor", "Optional[cute.Tensor]", "cutlass.Constexpr[int]", int)]
    ['Tensor', 'Tensor', 'Constexpr', 'int']
    """
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation.__name__ if inspect.isclass(annotation) else str(annotation)
    if (inner := re.fullmatch(r"(?:\w+\.)*(?:Optional|Union)\[(.*)\]", text)) is not None:
        text = inner[1]
    parts = [part for part in re.split(r"\s*[|,]\s*", text) if part.strip() not in ("None", "NoneType")]
    return parts[0].partition("[")[0].strip().rpartition(".")[2] if parts else ""


def _annotated(kernel: str, name: str, annotation: str, written: Value) -> Parameter:
    own = _of_annotation(kernel, name, annotation)
    if written is None:
        return own
    if not isinstance(written, str):
        return _constexpr(kernel, own, annotation, written)
    words = written.split()
    if words == ["constexpr"]:
        return _constexpr(kernel, own, annotation, NO_DEFAULT)
    effect = _EFFECTS[words.pop(0)] if words and words[0] in _EFFECTS else None
    spelled = "".join(words)
    if own.kind is ParameterKind.CONSTEXPR:
        raise SourceError(
            f"{kernel}: the signature says that {name} is {written!r}, a value of each call, and the function "
            f"declares it Constexpr: annotate it with the DSL's type of a number, or write {name}: constexpr"
        )
    if not spelled:
        if own.kind not in (ParameterKind.ANY, ParameterKind.POINTER):
            raise SourceError(f"{kernel}: {name} is {written!r} in the signature; in, out and inout are for arrays")
        return replace(own, kind=ParameterKind.POINTER, effect=effect or Effect.BOTH)
    try:
        element = dtype(spelled.removeprefix("*"))
    except KeyError as error:
        raise SourceError(
            f"{kernel}: the type of {name} is {written!r} in the signature: {error.args[0]}; write for example "
            f"{_EXAMPLE}"
        ) from None
    if spelled.startswith("*"):
        if own.kind not in (ParameterKind.ANY, ParameterKind.POINTER):
            raise SourceError(f"{kernel}: {name} is an array in the signature and a {annotation} in the function")
        return Parameter(name, ParameterKind.POINTER, element, effect=effect or Effect.BOTH)
    if effect is not None:
        raise SourceError(f"{kernel}: {name} is {written!r}; in, out and inout are for arrays: write *{spelled}")
    if own.kind is ParameterKind.POINTER:
        raise SourceError(f"{kernel}: {name} is a {annotation} in the function: write *{spelled} in the signature")
    if own.dtype is not None and own.dtype != element:
        raise SourceError(f"{kernel}: {name} is {element} in the signature and {own.dtype} in the function")
    return _scalar(name, element)


def _of_annotation(kernel: str, name: str, annotation: str) -> Parameter:
    if annotation in ("Tensor", "Pointer"):
        return Parameter(name, ParameterKind.POINTER)
    if annotation == "Constexpr":
        return Parameter(name, ParameterKind.CONSTEXPR)
    element = dtype(_BUILTIN[annotation]) if annotation in _BUILTIN else dtype_named(annotation)
    if element is not None:
        return _scalar(name, element)
    if annotation and annotation not in _CALLER_ANNOTATIONS:
        raise SourceError(
            f"{kernel}: its parameter {name} is a {annotation}, which no call passes: make it a Constexpr, or give "
            "silo.cute the @cute.jit function that makes it on the host"
        )
    return Parameter(name)


def _scalar(name: str, element: DType) -> Parameter:
    kind = _SCALARS.get(element.kind, ParameterKind.INTEGER)
    return Parameter(name, kind, element, specialize=False, align=False)


def _constexpr(kernel: str, parameter: Parameter, annotation: str, value: Value | NoDefault) -> Parameter:
    if parameter.kind is ParameterKind.POINTER:
        raise SourceError(f"{kernel}: {parameter.name} is a {annotation}; an array cannot be a constexpr")
    return Parameter(parameter.name, ParameterKind.CONSTEXPR, default=value)


def _with_default(kernel: str, parameter: Parameter, default: object) -> Parameter:
    if default is inspect.Parameter.empty or not isinstance(parameter.default, NoDefault):
        return parameter
    try:
        return replace(parameter, default=constant_value(default))
    except (TypeError, ValueError) as error:
        raise SourceError(f"{kernel}: the default of {parameter.name}: {error}") from None

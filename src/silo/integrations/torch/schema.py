"""The schema of an operator, made from the arguments of its kernel and their effects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from silo.core.signature import NO_DEFAULT, NoDefault
from silo.errors import ArgumentError, SourceError
from silo.frozen import frozen

__all__ = ["OpArgument", "OperatorKind", "argument_of", "parse_name", "schema_text"]

_NAME = re.compile(r"([A-Za-z_]\w*)::([A-Za-z_]\w*)")
# Words of the schema grammar: torch refuses arguments with these names.
_RESERVED = frozenset({"self_", "Tensor", "int", "float", "bool", "str", "SymInt", "Scalar"})


class OperatorKind(Enum):
    """The type of an operator's argument; the value is the word for it in a schema."""

    TENSOR = "Tensor"
    INTEGER = "SymInt"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "str"
    INTEGERS = "SymInt[]"  # the type of a grid


_PYTHON: dict[type, OperatorKind] = {
    bool: OperatorKind.BOOL,
    int: OperatorKind.INTEGER,
    float: OperatorKind.FLOAT,
    str: OperatorKind.TEXT,
}


@frozen
class OpArgument:
    """One argument of an operator.

    If ``constant`` is True, the argument's value is part of the kernel's code, which is compiled for each value.
    """

    name: str
    kind: OperatorKind
    optional: bool = False
    writes: bool = False
    constant: bool = False
    default: object = NO_DEFAULT


def parse_name(name: str) -> tuple[str, str]:
    """Returns the namespace and the name of an operator.

    >>> parse_name("mine::add")
    ('mine', 'add')

    Raises:
        ArgumentError: the text is not of the form ``namespace::name``.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ArgumentError(f"an operator's name is namespace::name, such as 'mine::add', and not {name!r}")
    return match[1], match[2]


def argument_of(
    kernel: str,
    name: str,
    example: object,
    *,
    is_tensor: bool,
    constant: bool,
    writes: bool,
    default: object = NO_DEFAULT,
) -> OpArgument:
    """Returns the operator's argument for a kernel parameter that has the value ``example`` in an example call.

    >>> argument_of("add", "n", 16, is_tensor=False, constant=False, writes=False).kind
    <OperatorKind.INTEGER: 'SymInt'>

    Raises:
        ArgumentError: operators do not take values of this type.
    """
    if is_tensor or (example is None and not constant):
        optional = example is None or default is None
        return OpArgument(name, OperatorKind.TENSOR, optional=optional, writes=writes, default=default)
    kind = _PYTHON.get(type(example))
    if kind is None:
        cure = (
            f"set it in the kernel's space, space={{{name!r}: [...]}}"
            if constant
            else "pass a tensor, an int, a float or a bool"
        )
        raise ArgumentError(
            f"{kernel}: the argument {name} is {example!r}, a {type(example).__name__}, which no operator of torch "
            f"takes: {cure}"
        )
    return OpArgument(name, kind, constant=constant, default=default)


def schema_text(operator: str, arguments: Sequence[OpArgument], outputs: int) -> str:
    """Returns the schema in torch's syntax.

    >>> x = OpArgument("x", OperatorKind.TENSOR)
    >>> y = OpArgument("y", OperatorKind.TENSOR, writes=True)
    >>> schema_text("axpy", [x, y, OpArgument("a", OperatorKind.FLOAT, default=1.0)], 0)
    'axpy(Tensor x, Tensor(a0!) y, float a=1.0) -> ()'

    Raises:
        SourceError: a parameter has a name that schemas reserve, or has no default after a parameter with a default.
    """
    _check(operator, arguments)
    written = iter(range(len(arguments)))
    parts = [_argument_text(argument, written) for argument in arguments]
    returns = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    return f"{operator}({', '.join(parts)}) -> {returns}"


def _check(operator: str, arguments: Sequence[OpArgument]) -> None:
    had_default: OpArgument | None = None
    for argument in arguments:
        if argument.name in _RESERVED:
            raise SourceError(
                f"{operator}: the parameter {argument.name} has a name that schemas of torch reserve: "
                "rename the parameter"
            )
        if not isinstance(argument.default, NoDefault):
            had_default = argument
        elif had_default is not None:
            raise SourceError(
                f"{operator}: the parameter {argument.name} has no default and comes after {had_default.name}, which "
                "has one: operators take such arguments in the other order only"
            )


def _argument_text(argument: OpArgument, written: Iterable[int]) -> str:
    word = argument.kind.value
    if argument.writes:
        word = f"{word}(a{next(iter(written))}!)"
    text = f"{word}{'?' * argument.optional} {argument.name}"
    return text if isinstance(argument.default, NoDefault) else f"{text}={_default_text(argument.default)}"


def _default_text(value: object) -> str:
    if value is None or isinstance(value, bool | int):
        return str(value)
    return repr(value) if isinstance(value, float) else json.dumps(value)


def fill(
    arguments: Sequence[OpArgument], positional: Sequence[object], named: Mapping[str, object]
) -> tuple[object, ...]:
    """Returns the values of a call in the order of the arguments; omitted arguments have their defaults.

    Raises:
        ArgumentError: an argument is missing, unknown, or given twice.
    """
    names = [argument.name for argument in arguments]
    if len(positional) > len(names):
        raise ArgumentError(f"{len(positional)} arguments were given, and there are {len(names)}: {', '.join(names)}")
    values = dict(zip(names, positional, strict=False))
    for name, value in named.items():
        if name not in names or name in values:
            problem = "was given twice" if name in values else f"is not an argument; there are {', '.join(names)}"
            raise ArgumentError(f"{name} {problem}")
        values[name] = value
    for argument in arguments:
        if argument.name not in values:
            if isinstance(argument.default, NoDefault):
                raise ArgumentError(f"the argument {argument.name} is missing")
            values[argument.name] = argument.default
    return tuple(values[name] for name in names)

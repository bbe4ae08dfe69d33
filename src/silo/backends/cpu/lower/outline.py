"""One C function for loop nests that differ only in their buffers and in marked numbers.

A sort of 1024 elements has 55 nests of two or three shapes; the C compiler's time is by nest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from silo.backends.cpu.loop_ir import Assign, Call, Define, For, Function, Parameter, Statement
from silo.backends.cpu.lower.scope import Scope

__all__ = ["emit_shared", "marked"]

_TOKEN = re.compile(r"@\d+@|\b[a-z]+\d+\b")


def marked(number: int) -> str:
    """A number as C text that :func:`emit_shared` may turn into a parameter."""
    return f"@{number}@"


def emit_shared(scope: Scope, statements: list[Statement]) -> None:
    """Emit a nest over buffers alone as the call of a function that equal nests share; any other as it is."""
    statements = _without_unused(statements)
    types = {buffer.name: buffer.ctype for buffer in scope.lifetimes.spans}
    defined = set(_defined(statements))
    found = [token for token in dict.fromkeys(_tokens(statements)) if not token.startswith("@")]
    if any(token not in defined and token not in types for token in found):
        for statement in _renamed(statements, {}, None):
            scope.emit(statement)
        return
    names = {token: f"x{place}" for place, token in enumerate(found)}
    arguments = [token for token in found if token in types]
    parameters = [Parameter(f"{types[token]} *", names[token]) for token in arguments]
    numbers: list[str] = []
    body = _renamed(statements, names, numbers)
    parameters += [Parameter("int32_t", f"number{place}") for place in range(len(numbers))]
    key = (repr(body), tuple(parameters))
    function = scope.shared.get(key)
    if function is None:
        function = Function(scope.name("nest"), parameters, [], body, inline=False, surroundings=False)
        scope.shared[key] = function
    else:
        function.callers += 1
    scope.emit(Call(f"{function.name}({', '.join([*arguments, *numbers])})"))


def _texts(statement: Statement) -> tuple[str, ...]:
    match statement:
        case Define(_, name, value):
            return (name, value or "")
        case Assign(target, value, condition):
            return (target, value, condition)
        case For():
            return (statement.variable, statement.start, statement.end, statement.step)
        case _:
            raise AssertionError(statement)  # nests are made of these


def _walk(statements: list[Statement]) -> Iterator[Statement]:
    for statement in statements:
        yield statement
        if isinstance(statement, For):
            yield from _walk(statement.body)


def _tokens(statements: list[Statement]) -> Iterator[str]:
    for statement in _walk(statements):
        for text in _texts(statement):
            yield from _TOKEN.findall(text)


def _defined(statements: list[Statement]) -> Iterator[str]:
    for statement in _walk(statements):
        if isinstance(statement, Define):
            yield statement.name
        elif isinstance(statement, For):
            yield statement.variable


def _without_unused(statements: list[Statement]) -> list[Statement]:
    """Without definitions that nothing reads: not every index along an axis is used."""
    while True:
        used: set[str] = set()
        for statement in _walk(statements):
            texts = _texts(statement)
            for text in texts[1:] if isinstance(statement, Define) else texts:
                used.update(_TOKEN.findall(text))
        kept = _keep(statements, used)
        if sum(1 for _ in _walk(kept)) == sum(1 for _ in _walk(statements)):
            return kept
        statements = kept


def _keep(statements: list[Statement], used: set[str]) -> list[Statement]:
    kept: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Define) and statement.name not in used:
            continue
        if isinstance(statement, For):
            statement = _with_body(statement, _keep(statement.body, used))  # noqa: PLW2901
        kept.append(statement)
    return kept


def _with_body(loop: For, body: list[Statement]) -> For:
    return For(
        loop.variable, loop.start, loop.end, body, loop.step, loop.ctype, simd=loop.simd, reductions=loop.reductions
    )


def _renamed(statements: list[Statement], names: dict[str, str], numbers: list[str] | None) -> list[Statement]:
    """With other names, and marked numbers as parameters, collected in ``numbers``, or as themselves."""

    def exchange(match: re.Match[str]) -> str:
        token = match.group()
        if not token.startswith("@"):
            return names.get(token, token)
        if numbers is None:
            return token.strip("@")
        numbers.append(token.strip("@"))
        return f"number{len(numbers) - 1}"

    def text(before: str) -> str:
        return _TOKEN.sub(exchange, before)

    made: list[Statement] = []
    for statement in statements:
        match statement:
            case Define(ctype, name, value, mutable):
                made.append(Define(ctype, text(name), None if value is None else text(value), mutable))
            case Assign(target, value, condition):
                made.append(Assign(text(target), text(value), text(condition)))
            case For():
                loop = For(text(statement.variable), text(statement.start), text(statement.end), [])
                loop.body = _renamed(statement.body, names, numbers)
                loop.step, loop.ctype, loop.simd = text(statement.step), statement.ctype, statement.simd
                made.append(loop)
            case _:
                raise AssertionError(statement)
    return made

"""Casts that take ``const`` from a parameter: the kernel may write that array, against its declaration."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from silo.kinds.metal.front.tokens import Token, tokens_of

__all__ = ["written_by_cast"]

_CASTS = frozenset({"const_cast", "reinterpret_cast", "static_cast"})
_BEFORE_A_NAME = frozenset({"(", "&"})


def written_by_cast(body: str, names: Collection[str]) -> frozenset[str]:
    """Return the ``names`` that a kernel's body casts to a pointer or a reference without ``const``.

    C's casts and C++'s are found if the name is the first word of the operand. A cast within a function that the
    kernel calls, or to a type by another name, is not found: such a parameter is to be declared without ``const``.

    >>> sorted(written_by_cast("((device float*)x)[i] = *(device const float*)z;", ["x", "z"]))
    ['x']
    >>> sorted(written_by_cast("const_cast<device float &>(x[i]) = 1;", ["x"]))
    ['x']
    """
    tokens = tokens_of(body)
    found: set[str] = set()
    for place, token in enumerate(tokens):
        if token.text == "(":
            end = _end(tokens, place, "(", ")")
        elif token.text in _CASTS and place + 1 < len(tokens) and tokens[place + 1].text == "<":
            end = _end(tokens, place + 1, "<", ">")
        else:
            continue
        kind = [one.text for one in tokens[place + 1 : end]]
        if not kind or kind[-1] not in ("*", "&") or "const" in kind:
            continue
        end += 1
        while end < len(tokens) and tokens[end].text in _BEFORE_A_NAME:
            end += 1
        if end < len(tokens) and tokens[end].text in names:
            found.add(tokens[end].text)
    return frozenset(found)


def _end(tokens: Sequence[Token], place: int, opening: str, closing: str) -> int:
    """Where the bracket at ``place`` is closed; the end of the tokens if nowhere."""
    depth = 0
    for at in range(place, len(tokens)):
        depth += (tokens[at].text == opening) - (tokens[at].text == closing)
        if depth == 0:
            return at
    return len(tokens)

"""Translates a text in Metal's language to C++ where the headers cannot give it the same meaning.

Line numbers stay the same, so that clang's messages name the lines of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from silo.kinds.metal.front.parser import Token, TokenKind, tokens_of

__all__ = ["may_wait", "rewritten"]

_BEFORE_STATEMENT = frozenset({"{", "}", ";", ")"})
_ENDS_DECLARATOR = frozenset({"[", ",", ";", "=", "(", "{"})
# How many brackets a sign opens; negative if it closes them.
_OPENED = {"[": 1, "(": 1, "{": 1, "[[": 2, "]": -1, ")": -1, "}": -1, "]]": -2}


class _Edit(NamedTuple):
    """The text that replaces the text between two places."""

    begin: int
    end: int
    text: str


def rewritten(text: str) -> str:
    """Returns a text in Metal's language, whose function constants have their values, as C++."""
    words = tokens_of(text)
    edits: list[_Edit] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word.text == "[[":
            end = _balanced(words, at)
            edits.append(_blank(text, word.begin, words[end - 1].end))
            at = end
            continue
        if word.kind is TokenKind.NUMBER and word.text[-2:] in ("bf", "BF") and word.text[:2].lower() != "0x":
            edits.append(_Edit(word.begin, word.end, f"bfloat({word.text[:-2]}f)"))
        elif word.text == "threadgroup" and at > 0 and words[at - 1].text in _BEFORE_STATEMENT:
            found = _threadgroup_declaration(text, words, at)
            if found is not None:
                edit, at = found
                edits.append(edit)
                continue
        at += 1
    return _applied(text, sorted(edits))


def may_wait(text: str) -> bool:
    """Whether the threads of a group may wait for each other, judged by the names in the text.

    >>> may_wait("kernel void f(device float *x) { x[0] = 1; threadgroup_barrier(mem_flags::mem_none); }")
    True
    >>> may_wait("kernel void f(device float *x, uint i [[thread_position_in_threadgroup]]) { x[i] = 1; }")
    False
    """
    words = tokens_of(text)
    at = 0
    while at < len(words):
        word = words[at]
        if word.text == "[[":
            at = _balanced(words, at)
            continue
        if word.kind is TokenKind.WORD and word.text.startswith(
            ("threadgroup", "simd", "quad_", "matmul2d", "cooperative")
        ):
            return True
        at += 1
    return False


def _blank(text: str, begin: int, end: int) -> _Edit:
    return _Edit(begin, end, " " + "\n" * text.count("\n", begin, end))


def _balanced(words: Sequence[Token], at: int) -> int:
    """Returns the index after the bracket that closes the one at ``at``."""
    depth = 0
    while at < len(words):
        sign = words[at].text
        depth += _OPENED.get(sign, 0)
        at += 1
        if depth <= 0:
            break
    return at


def _threadgroup_declaration(text: str, words: Sequence[Token], at: int) -> tuple[_Edit, int] | None:
    """Translates the declaration of threadgroup variables at ``at``; with the index after it. None for a pointer."""
    first = at + 1
    angle = 0
    end = first
    while end < len(words):
        sign = words[end].text
        angle += (sign == "<") - (sign == ">")
        if angle == 0 and sign in _ENDS_DECLARATOR:
            break
        if angle == 0 and sign in ("*", "&", ")"):
            return None
        end += 1
    if end - 1 <= first or end == len(words):
        return None
    kind = text[words[first].begin : words[end - 2].end]
    made: list[str] = []
    name = end - 1
    while True:
        at = name + 1
        while at < len(words) and words[at].text == "[":
            at = _balanced(words, at)
        dimensions = text[words[name].end : words[at - 1].end] if at > name + 1 else ""
        made.append(_declared(words[name].text, " ".join(kind.split()), " ".join(dimensions.split())))
        if at >= len(words) or words[at].text not in (",", ";"):
            return None  # clang will report the error
        if words[at].text == ";":
            break
        name = at + 1
    begin, end = words[first - 1].begin, words[at].begin
    return _Edit(begin, end, "; ".join(made) + "\n" * text.count("\n", begin, end)), at


def _declared(name: str, kind: str, dimensions: str) -> str:
    array = f"silo_metal::threadgroup_array<metal::type_identity_t<{kind} {dimensions}>>"
    return f'auto &{name} = {array}("{name}", [] {{}}, silo_metal::Place::here())'


def _applied(text: str, edits: Sequence[_Edit]) -> str:
    parts: list[str] = []
    at = 0
    for edit in edits:
        parts += [text[at : edit.begin], edit.text]
        at = edit.end
    return "".join((*parts, text[at:]))

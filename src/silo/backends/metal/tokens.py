"""The words of a text in Metal's language, as far as its rewriting needs them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["Kind", "Token", "tokens"]

_PAIRS = frozenset({"::", "->", "<<", "&&", "||", "==", "!=", "<=", ">=", "++", "--", "[[", "+=", "-=", "*=", "/="})


class Kind(Enum):
    """What a token is."""

    NAME = "name"
    NUMBER = "number"
    TEXT = "text"  # a string or a character
    SIGN = "sign"  # one or two characters; `>>` and `]]` are two tokens
    DIRECTIVE = "directive"  # a line of the preprocessor, with those it goes on in


class Token(NamedTuple):
    """One token: its text and where it begins and ends."""

    kind: Kind
    text: str
    begin: int
    end: int


def _end_of_directive(text: str, at: int) -> int:
    while at < len(text) and text[at] != "\n":
        at += 2 if text.startswith("\\\n", at) else 1
    return min(at, len(text))


def _end_of_text(text: str, at: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text) and text[at] not in (quote, "\n"):
        at += 2 if text[at] == "\\" else 1
    return min(at + 1, len(text))


def _end_of_number(text: str, at: int) -> int:
    while at < len(text) and (text[at].isalnum() or text[at] in "._'" or (text[at] in "+-" and text[at - 1] in "eEpP")):
        at += 1
    return at


def tokens(text: str) -> list[Token]:
    """Every token in order; comments and spaces are between them.

    >>> [one.text for one in tokens("device float *x [[buffer(0)]]; // the first")]
    ['device', 'float', '*', 'x', '[[', 'buffer', '(', '0', ')', ']', ']', ';']
    """
    found: list[Token] = []
    at = 0
    begins_line = True
    while at < len(text):
        c = text[at]
        if c == "\n" or c.isspace():
            begins_line = begins_line or c == "\n"
            at += 1
            continue
        if text.startswith("//", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        if text.startswith("/*", at):
            end = text.find("*/", at + 2)
            at = len(text) if end < 0 else end + 2
            continue
        begin = at
        if c == "#" and begins_line:
            kind, at = Kind.DIRECTIVE, _end_of_directive(text, at)
        elif c.isalpha() or c == "_":
            kind = Kind.NAME
            while at < len(text) and (text[at].isalnum() or text[at] == "_"):
                at += 1
        elif c.isdigit() or (c == "." and text[at + 1 : at + 2].isdigit()):
            kind, at = Kind.NUMBER, _end_of_number(text, at)
        elif c in "\"'":
            kind, at = Kind.TEXT, _end_of_text(text, at)
        else:
            kind = Kind.SIGN
            at += 2 if text[at : at + 2] in _PAIRS else 1
        begins_line = False
        found.append(Token(kind, text[begin:at], begin, at))
    return found

"""Metal's text as tokens: words, numbers, strings, signs, and lines of the preprocessor. Comments are none."""

from __future__ import annotations

from enum import Enum

from silo.frozen import frozen

__all__ = ["Token", "TokenKind", "tokens_of"]

_WORD_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_DIGITS = frozenset("0123456789")
_WORD = _WORD_START | _DIGITS
_JOINED = frozenset(
    {"::", "[[", "]]", "->", "<<", "&&", "||", "==", "!=", "<=", ">=", "++", "--", "+=", "-=", "*=", "/="}
)


class TokenKind(Enum):
    """What a token is."""

    WORD = "word"
    NUMBER = "number"
    TEXT = "text"  # a string or a character
    SIGN = "sign"  # one or two characters; `>>` is two tokens, and `]]` one only where a `[[` is open
    DIRECTIVE = "directive"  # a line of the preprocessor, with those it goes on in


@frozen
class Token:
    """A token and where it is: from ``begin`` up to ``end`` of the text, on ``line``, counted from 1."""

    kind: TokenKind
    text: str
    begin: int
    end: int
    line: int

    @property
    def is_word(self) -> bool:
        """Whether it is a name or a keyword."""
        return self.kind is TokenKind.WORD


def tokens_of(text: str) -> tuple[Token, ...]:
    """The tokens of a text, whatever it is: what cannot be read is a sign of one character.

    >>> [one.text for one in tokens_of("device float *x [[buffer(0)]] // the input")]
    ['device', 'float', '*', 'x', '[[', 'buffer', '(', '0', ')', ']]']
    """
    found: list[Token] = []
    at, line, fresh, attributes = 0, 1, True, 0
    while at < len(text):
        kind, end = _piece(text, at, attributes, fresh=fresh)
        piece = text[at:end]
        if kind is not None:
            attributes += (piece == "[[") - (piece == "]]")
            found.append(Token(kind, piece, at, end, line))
        fresh = piece.endswith("\n") or (fresh and kind in (None, TokenKind.DIRECTIVE))
        line += piece.count("\n")
        at = end
    return tuple(found)


def _piece(text: str, at: int, attributes: int, *, fresh: bool) -> tuple[TokenKind | None, int]:
    """What begins at ``at``, None for blanks, and where it ends. ``fresh``: only blanks are before it on its line."""
    first, two = text[at], text[at : at + 2]
    if first.isspace():
        return None, at + 1
    if two == "//":
        return None, _line_end(text, at)
    if two == "/*":
        close = text.find("*/", at + 2)
        return None, len(text) if close < 0 else close + 2
    if fresh and first == "#":
        return TokenKind.DIRECTIVE, _line_end(text, at)
    if first in "\"'":
        return TokenKind.TEXT, _string_end(text, at)
    if first in _WORD_START:
        return TokenKind.WORD, _while(text, at, _WORD)
    if first in _DIGITS or (first == "." and two[1:] in _DIGITS and len(two) == 2):
        return TokenKind.NUMBER, _number_end(text, at)
    return TokenKind.SIGN, at + (2 if two in _JOINED and (two != "]]" or attributes > 0) else 1)


def _while(text: str, at: int, kept: frozenset[str]) -> int:
    while at < len(text) and text[at] in kept:
        at += 1
    return at


def _line_end(text: str, at: int) -> int:
    """The end of a line, which goes on after a backslash."""
    while True:
        close = text.find("\n", at)
        if close < 0:
            return len(text)
        if not text[:close].endswith("\\"):
            return close
        at = close + 1


def _string_end(text: str, at: int) -> int:
    quote, place = text[at], at + 1
    while place < len(text) and text[place] not in (quote, "\n"):
        place += 2 if text[place] == "\\" else 1
    return min(place + 1, len(text))


def _number_end(text: str, at: int) -> int:
    hexadecimal = text[at : at + 2] in ("0x", "0X")
    while at < len(text):
        signed = text[at] in "+-" and text[at - 1] in ("pP" if hexadecimal else "eE")
        if not (signed or text[at] in _WORD or text[at] in ".'"):
            break
        at += 1
    return at

"""Metal's text as tokens: words, numbers, strings, punctuation. Comments and lines of the preprocessor are none."""

from __future__ import annotations

from silo.frozen import frozen

__all__ = ["Token", "tokens_of"]

_WORD_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_DIGITS = frozenset("0123456789")
_WORD = _WORD_START | _DIGITS
_JOINED = ("::", "[[", "]]", "->", "<<", "&&", "||", "==", "!=", "<=", ">=")


@frozen
class Token:
    """A token and where it is: from ``begin`` up to ``end`` of the text, on ``line``, counted from 1.

    ``]]`` is one token only where a ``[[`` is open; ``>>`` is always two.
    """

    text: str
    begin: int
    end: int
    line: int

    @property
    def is_word(self) -> bool:
        """Whether it is a name or a keyword."""
        return self.text[0] in _WORD_START


def tokens_of(text: str) -> tuple[Token, ...]:
    """The tokens of a text, whatever it is: what cannot be read is a token of one character.

    >>> [one.text for one in tokens_of("device float *x [[buffer(0)]] // the input")]
    ['device', 'float', '*', 'x', '[[', 'buffer', '(', '0', ')', ']]']
    """
    found: list[Token] = []
    at, line, fresh, attributes = 0, 1, True, 0
    while at < len(text):
        end = _end(text, at, attributes, fresh=fresh)
        piece = text[at:end]
        blank = piece.isspace() or piece.startswith(("//", "/*")) or (fresh and piece.startswith("#"))
        if not blank:
            attributes += (piece == "[[") - (piece == "]]")
            found.append(Token(piece, at, end, line))
        fresh = piece.endswith("\n") or (fresh and blank)
        line += piece.count("\n")
        at = end
    return tuple(found)


def _end(text: str, at: int, attributes: int, *, fresh: bool) -> int:
    """Where the piece that begins at ``at`` ends. ``fresh``: nothing but blanks is before it on its line."""
    first, two = text[at], text[at : at + 2]
    if first.isspace():
        return at + 1
    if two == "//" or (fresh and first == "#"):
        return _line_end(text, at)
    if two == "/*":
        close = text.find("*/", at + 2)
        return len(text) if close < 0 else close + 2
    if first in "\"'":
        return _string_end(text, at)
    if first in _WORD_START:
        return _while(text, at, _WORD)
    if first in _DIGITS or (first == "." and two[1:] in _DIGITS and len(two) == 2):
        return _number_end(text, at)
    return at + (2 if two in _JOINED and (two != "]]" or attributes > 0) else 1)


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
        if (
            text[at] in _WORD
            or text[at] == "."
            or (text[at] in "+-" and text[at - 1] in ("pP" if hexadecimal else "eE"))
        ):
            at += 1
        else:
            break
    return at

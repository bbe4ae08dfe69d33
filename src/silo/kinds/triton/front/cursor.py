"""A position in MLIR text, with errors that name the line and what was expected there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from silo.errors import SourceError

__all__ = ["Cursor"]

# Every token begins with it: the pattern matches the empty string, so that there always is a match.
_after_blanks = cast("Callable[[str, int], re.Match[str]]", re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*").match)
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"'}
_MAX_DEPTH = 64
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class Cursor:
    """Reads one text from left to right. Blanks and comments before a token are skipped by every method.

    A text has tens of thousands of tokens, so the methods call each other as little as they can.
    """

    __slots__ = ("depth", "position", "text", "what")

    def __init__(self, text: str, what: str = "TTIR", position: int = 0) -> None:
        self.text = text
        self.what = what
        self.position = position
        self.depth = 0

    def enter(self) -> None:
        """Begin a part that may hold parts of its own kind; pair with :meth:`leave`. Bounds the recursion."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error("less deeply nested text")

    def leave(self) -> None:
        """End what the last :meth:`enter` began."""
        self.depth -= 1

    def error(self, expected: str, position: int | None = None) -> SourceError:
        """The error to raise: line, what was expected, what is there."""
        at = self.position if position is None else position
        line = self.text.count("\n", 0, at) + 1
        found = self.text[at : at + 40].split("\n", 1)[0].strip()
        return SourceError(f"{self.what}, line {line}: expected {expected}, found {found or 'the end of the line'!r}")

    def skip(self) -> int:
        """Go past blanks and comments; the new position."""
        self.position = position = _after_blanks(self.text, self.position).end()
        return position

    def at(self, literal: str) -> bool:
        """Whether ``literal`` comes next."""
        self.position = position = _after_blanks(self.text, self.position).end()
        return self.text.startswith(literal, position)

    def take(self, literal: str) -> bool:
        """Go past ``literal`` if it comes next."""
        position = _after_blanks(self.text, self.position).end()
        is_next = self.text.startswith(literal, position)
        self.position = position + len(literal) if is_next else position
        return is_next

    def need(self, literal: str) -> None:
        """Go past ``literal`` or fail."""
        self.position = position = _after_blanks(self.text, self.position).end()
        if not self.text.startswith(literal, position):
            raise self.error(repr(literal))
        self.position = position + len(literal)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Go past ``pattern`` if it matches here."""
        self.position = position = _after_blanks(self.text, self.position).end()
        found = pattern.match(self.text, position)
        if found is not None:
            self.position = found.end()
        return found

    def need_match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Go past ``pattern`` or fail; the text it matched."""
        self.position = position = _after_blanks(self.text, self.position).end()
        found = pattern.match(self.text, position)
        if found is None:
            raise self.error(expected)
        self.position = found.end()
        return found.group()

    def string(self) -> str:
        """A quoted string, unescaped."""
        found = self.match(_STRING)
        if found is None:
            raise self.error("a string")
        body = found.group(1)
        return _ESCAPE.sub(_unescape, body) if "\\" in body else body

    def balanced(self) -> str:
        """The bracketed text that starts here, brackets included. ``->`` closes nothing; strings are opaque."""
        start = self.skip()
        text, at, pending = self.text, start, list[str]()
        while at < len(text):
            character = text[at]
            if character == '"':
                string = _STRING.match(text, at)
                if string is None:
                    raise self.error("the end of a string", at)
                at = string.end()
                continue
            if character in _CLOSING:
                pending.append(_CLOSING[character])
            elif text.startswith("->", at):
                at += 2
                continue
            elif pending and character == pending[-1]:
                pending.pop()
                if not pending:
                    self.position = at + 1
                    return text[start : at + 1]
            elif character in ")]}>":
                raise self.error(f"{pending[-1]!r}" if pending else "an opening bracket", at)
            at += 1
            if not pending:
                break
        raise self.error(f"a closing {pending[-1]!r}" if pending else "an opening bracket", start)


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code is not None else _ESCAPES.get(character, character)

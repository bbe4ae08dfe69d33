"""Finds the lines of a Python file from which a kernel's text comes, for errors about the text."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from silo.frozen import frozen

__all__ = ["LiteralPlaces", "literal_places"]


@frozen
class LiteralPlaces:
    """The parts of a text that are string literals of a Python file.

    Each part: its first line in the text, the number of its lines, and its first line in the file.
    """

    file: str
    parts: tuple[tuple[int, int, int], ...]

    def line(self, number: int) -> int:
        """Returns the line of the Python file for a line of the text; 0 if it is unknown."""
        return next((at + number - first for first, count, at in self.parts if first <= number < first + count), 0)

    def renamed(self, message: str, name: str) -> str:
        r"""Returns a compiler's message with lines of the Python file; ``name`` is the text's name in the message.

        >>> LiteralPlaces("k.py", ((1, 3, 10),)).renamed("k.cu:2: error\nk.cu(9): error", "k.cu")
        'k.py:11: error\nk.cu(9): error'
        """

        def place(match: re.Match[str]) -> str:
            line = self.line(int(match[1] or match[2]))
            return match.group() if not line else f"{self.file}:{line}" if match[1] else f"{self.file}({line})"

        return re.sub(rf"(?<![\w/.]){re.escape(name)}(?::(\d+)|\((\d+)\))", place, message)


def literal_places(path: str, text: str) -> LiteralPlaces:
    """Returns where a Python file defines a text; empty if the file cannot be read or the place is ambiguous.

    A string literal counts if each of its lines is one line of the file, and if the text contains the literal only
    once.
    """
    places: list[tuple[int, int, int]] = []
    for value, line in _literals("".join(linecache.getlines(path))):
        if text.count(value) == 1:
            begin = text.count("\n", 0, text.index(value)) + 1
            places.append((begin, value.count("\n") + 1, line))
    lines = [first + offset for first, count, _ in places for offset in range(1, count - 1)]
    return LiteralPlaces(Path(path).name, tuple(sorted(places)) if len(lines) == len(set(lines)) else ())


@lru_cache(maxsize=8)
def _literals(source: str) -> tuple[tuple[str, int], ...]:
    """Returns the multi-line string literals of a Python file, each once, with their first lines."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    first_lines: dict[str, list[int]] = {}
    for constant in _constants(tree):
        value = str(constant.value)
        if (
            "\n" in value
            and constant.end_lineno is not None
            and constant.end_lineno - constant.lineno == value.count("\n")
        ):
            first_lines.setdefault(value, []).append(constant.lineno)
    return tuple((value, lines[0]) for value, lines in first_lines.items() if len(lines) == 1)


def _constants(tree: ast.AST) -> Iterable[ast.Constant]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))

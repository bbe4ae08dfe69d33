"""Finds the body of a kernel in its text, and barriers of the whole grid in the body."""

from __future__ import annotations

import re

__all__ = ["body_of", "waits_for_grid"]

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_GRID = re.compile(r"\b(?:grid_group|auto)\s+(?P<name>[A-Za-z_]\w*)\s*[=({]\s*(?:\w+\s*::\s*)?this_grid\s*\(")


def body_of(text: str, expression: str) -> tuple[str, int] | None:
    r"""Returns the body of a kernel without comments and strings, and its first line; None if it is not in the text.

    >>> body_of("__global__ void k(int *x) {\n  x[0] = 1; /* one */\n}", "k")
    ('{\n  x[0] = 1; \n}', 1)
    """
    plain = _COMMENTS.sub(lambda found: "\n" * found.group().count("\n"), text)
    name = re.escape(expression.partition("<")[0].strip().rpartition("::")[2])
    for match in re.finditer(rf"\b{name}\s*\(", plain):
        opened = _index_after(plain, match.end() - 1, "()")
        body = re.match(r"\s*\{", plain[opened:])
        if body is not None:
            begin = opened + body.end() - 1
            return plain[begin : _index_after(plain, begin, "{}")], plain.count("\n", 0, begin) + 1
    return None


def waits_for_grid(text: str, expression: str) -> int:
    r"""Returns the line in a kernel's body that waits for all blocks of the grid; 0 if no line does.

    The result is 0 too if the body calls ``is_valid``, because such a kernel may wait only in cooperative launches.

    >>> waits_for_grid("__global__ void k() {\n  auto g = cg::this_grid();\n  g.sync();\n}", "k")
    3
    """
    if "this_grid" not in text or (kernel_body := body_of(text, expression)) is None:
        return 0
    body, line = kernel_body
    if "is_valid" in body:
        return 0
    grid = "|".join([r"this_grid\s*\(\s*\)", *(match["name"] for match in _GRID.finditer(body))])
    waits = re.search(rf"\b(?:{grid})\s*\.\s*sync\s*\(|\bsync\s*\(\s*(?:\w+\s*::\s*)?(?:{grid})\s*\)", body)
    return 0 if waits is None else line + body.count("\n", 0, waits.start())


def _index_after(text: str, at: int, brackets: str) -> int:
    """Returns the index after the bracket that closes the bracket at ``at``."""
    depth = 0
    for index in range(at, len(text)):
        depth += (text[index] == brackets[0]) - (text[index] == brackets[1])
        if depth == 0:
            return index + 1
    return len(text)

"""Parses Python texts, safely also while several threads parse."""

from __future__ import annotations

import ast

from silo.forks import Mutex

__all__ = ["parse_python"]

_MISMATCH = "AST constructor recursion depth mismatch"
_ATTEMPTS = 20
_lock = Mutex()


def parse_python(text: str | bytes) -> ast.Module:
    """Returns the syntax tree of a text, as ``ast.parse`` does.

    CPython 3.11 and 3.12 count the depth of a tree under construction for the whole interpreter. If a callback of the
    garbage collector lets another thread parse meanwhile, ``ast.parse`` raises ``SystemError`` for a correct text. So
    Silo parses on one thread at a time, and parses again after a ``SystemError`` caused by another library's thread.

    Raises:
        SyntaxError: the text is not Python.

    >>> ast.dump(parse_python("x").body[0])
    "Expr(value=Name(id='x', ctx=Load()))"
    """
    with _lock:
        for _ in range(_ATTEMPTS):
            try:
                return ast.parse(text)
            except SystemError as error:
                if _MISMATCH not in str(error):
                    raise
        return ast.parse(text)

r"""Text that came from elsewhere, made fit for a terminal, or for the name of a file.

A bundle's names, reasons and messages are its maker's words. A terminal would take escape sequences in them for orders
(new titles, a changed screen, text put on the clipboard), a carriage return hides what stood before it, and marks of
direction show a text in another order than it has. So whatever is shown passes one of these functions, which write such
characters as Python does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

__all__ = ["file_name", "one_line", "printable", "printable_json"]

# Besides those that Python calls printable: tabs, and blanks of every width.
_BLANKS = "\t\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def printable(text: str) -> str:
    r"""The text with every character written out that is not a letter, mark, number, sign, blank, tab or end of a line.

    >>> printable("\x1b]0;title\x07 x\ry\u202ez\ttab\r\nnext")
    '\\x1b]0;title\\x07 x\\ry\\u202ez\ttab\nnext'
    """
    return _each_line(text.replace("\r\n", "\n"), _as_python)


def one_line(text: str) -> str:
    r""":func:`printable`, with ends of lines written out too: for names and what else is a part of a line.

    >>> one_line("add\nevery byte verified")
    'add\\nevery byte verified'
    """
    return printable(text).replace("\n", "\\n")


def printable_json(text: str) -> str:
    r"""JSON with such characters as the escapes that JSON has: the same data, byte for byte in ASCII where it matters.

    >>> print(printable_json('["\x7f\u202e\U000e0001\ud800"]'))
    ["\u007f\u202e\udb40\udc01\ud800"]
    """
    return _each_line(text, _as_json)


def _each_line(text: str, write: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    # Line by line, because a listing has many lines and next to none need a change.
    return "\n".join(
        line if line.replace("\t", "").isprintable() else "".join(_shown(one, write) for one in line)
        for line in text.split("\n")
    )


def _shown(character: str, write: Callable[[str], str]) -> str:
    return character if character.isprintable() or character in _BLANKS else write(character)


def _as_python(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _as_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_MOST_BYTES = 200  # file systems take 255, and an ending comes after it
_CUT = 150


def file_name(name: str, *, both_cases: bool = False) -> str:
    r"""The name of a file for ``name``: one plain part of a path, and another one for every other name.

    It is percent-encoded UTF-8, as in addresses: ``urllib.parse.unquote`` gives the name back. Capitals are encoded
    too, because some file systems take ``Add`` and ``add`` for one file; ``both_cases`` is for files that cannot meet.
    What would be longer than 200 bytes is cut, and ends in a part of the name's sha256. An empty name is a single
    ``%``.

    >>> file_name("add_rms"), file_name("Norm.forward")
    ('add_rms', '%4eorm.forward')
    >>> file_name("../../etc/x"), file_name(".."), file_name("/x\x1b")
    ('%2e.%2f..%2fetc%2fx', '%2e%2e', '%2fx%1b')
    """
    parts = (_encoded(one, both_cases=both_cases) for one in name)
    text = "".join(parts) or "%"
    if text.startswith("."):
        text = f"%2e{text[1:]}"
    if text.endswith("."):  # some systems drop it
        text = f"{text[:-1]}%2e"
    if len(text) <= _MOST_BYTES:
        return text
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    # No other name contains '~'.
    return f"{re.sub('%.?$', '', text[:_CUT])}~{digest[:32]}"


def _encoded(character: str, *, both_cases: bool) -> str:
    if character in _PLAIN or character == "." or (both_cases and "A" <= character <= "Z"):
        return character
    return "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))

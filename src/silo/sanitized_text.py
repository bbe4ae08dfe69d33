r"""Makes text from untrusted sources safe to print on a terminal or to use as a file name.

The author of a bundle chooses the names, reasons and messages in it. A terminal would execute escape sequences in them
(a new window title, a changed screen, text put on the clipboard), a carriage return hides the text before it, and
bidirectional control characters change the order in which text is displayed. So all displayed text passes one of these
functions, which escape such characters as Python's ``repr`` does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

__all__ = ["file_name", "one_line", "printable", "printable_json"]

# Characters that printable() keeps although str.isprintable() is false for them: tabs, and blanks of every width.
_BLANKS = "\t\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def printable(text: str) -> str:
    r"""Returns the text with every character escaped that is not a letter, mark, number, sign, blank, tab or line end.

    >>> printable("\x1b]0;title\x07 x\ry\u202ez\ttab\r\nnext")
    '\\x1b]0;title\\x07 x\\ry\\u202ez\ttab\nnext'
    """
    return _each_line(text.replace("\r\n", "\n"), _as_python)


def one_line(text: str) -> str:
    r"""Returns :func:`printable` text with line ends escaped too: for names and other texts that are parts of a line.

    >>> one_line("add\nevery byte verified")
    'add\\nevery byte verified'
    """
    return printable(text).replace("\n", "\\n")


def printable_json(text: str) -> str:
    r"""Returns JSON in which characters that :func:`printable` escapes are JSON escapes. It parses to the same data.

    >>> print(printable_json('["\x7f\u202e\U000e0001\ud800"]'))
    ["\u007f\u202e\udb40\udc01\ud800"]
    """
    return _each_line(text, _as_json)


def _each_line(text: str, write: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    # Test whole lines first: a listing has many lines, and almost none of them need a change.
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
_MOST_BYTES = 200  # file systems allow 255 bytes, and callers append an ending
_CUT = 150


def file_name(name: str, *, both_cases: bool = False) -> str:
    r"""Returns a file name for ``name``: a single path component, different for every name.

    It is percent-encoded UTF-8, as in URLs: ``urllib.parse.unquote`` returns the name. Capitals are encoded too,
    because some file systems treat ``Add`` and ``add`` as one file; ``both_cases`` keeps capitals, for names that
    cannot differ in case alone. A file name that would be longer than 200 bytes is cut and ends in a part of the name's
    sha256. An empty name becomes a single ``%``.

    >>> file_name("add_rms"), file_name("Norm.forward")
    ('add_rms', '%4eorm.forward')
    >>> file_name("../../etc/x"), file_name(".."), file_name("/x\x1b")
    ('%2e.%2f..%2fetc%2fx', '%2e%2e', '%2fx%1b')
    """
    parts = (_encoded(one, both_cases=both_cases) for one in name)
    text = "".join(parts) or "%"
    if text.startswith("."):
        text = f"%2e{text[1:]}"
    if text.endswith("."):  # some file systems drop a final dot
        text = f"{text[:-1]}%2e"
    if len(text) <= _MOST_BYTES:
        return text
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    # The character '~' marks a cut name. In all other names a '~' is percent-encoded.
    return f"{re.sub('%.?$', '', text[:_CUT])}~{digest[:32]}"


def _encoded(character: str, *, both_cases: bool) -> str:
    if character in _PLAIN or character == "." or (both_cases and "A" <= character <= "Z"):
        return character
    return "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))

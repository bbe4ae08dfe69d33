"""File names made of kernel names, encoded, because the author of a bundle may name a kernel anything."""

from __future__ import annotations

import hashlib
import re

__all__ = ["file_name"]

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

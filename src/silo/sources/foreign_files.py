"""Directives of C texts that would put files into the code which the author of the text does not name in an include."""

from __future__ import annotations

import re

from silo.errors import SourceError

__all__ = ["refuse_foreign_files"]

_CONTINUED = re.compile(r"\\[ \t]*\n")
_GAP = r"(?:[ \t\f\v]|/\*.*?\*/)*"
_READS = re.compile(rf"^(?:\s|/\*.*?\*/)*(?:\#|%:){_GAP}(embed|import|include_next)\b", re.MULTILINE | re.DOTALL)


def refuse_foreign_files(text: str, shown: str) -> None:
    r"""Raises SourceError if a text has ``#embed``, ``#import`` or ``#include_next``.

    clang reads any file for these, and compilers for GPUs know none of them. ``#include`` is each kind's own: a kind
    follows it in the folders that its users name. In doubt (a directive in a comment) the text is refused.

    >>> refuse_foreign_files("#include <metal_stdlib>\n", "add.metal")
    >>> refuse_foreign_files("\n# em\\\nbed \"/etc/passwd\"\n", "add.metal")
    Traceback (most recent call last):
    silo.errors.SourceError: add.metal:2: #embed is not followed: it would read any file. Write the content in the text

    Args:
        text: the text of a file.
        shown: its name in the message.
    """
    pieces = _CONTINUED.split(text.replace("\r\n", "\n").replace("\r", "\n"))
    joined = "".join(pieces)
    found = _READS.search(joined)
    if found is None:
        return
    at, line = 0, 1
    for piece in pieces:  # lines of the text: each continuation ended one
        if at + len(piece) >= found.start(1):
            break
        at += len(piece)
        line += piece.count("\n") + 1
    line += joined.count("\n", at, found.start(1))
    raise SourceError(
        f"{shown}:{line}: #{found[1]} is not followed: it would read any file. Write the content in the text"
    )

"""Directives of C texts that would put files into the code which the author of the text does not name in an include."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from silo.errors import SourceError

__all__ = ["plain_lines", "refuse_foreign_files"]

_CONTINUED = re.compile(r"\\[ \t]*\n")
_GAP = r"(?:[ \t\f\v]|/\*.*?\*/)*"
_INCLUDE = re.compile(
    rf"^(?:\s|/\*.*?\*/)*(?:\#|%:){_GAP}(include)\b{_GAP}(?:<(?P<name>[^>\n]*)>)?", re.MULTILINE | re.DOTALL
)
_READS = re.compile(
    rf"^(?:\s|/\*.*?\*/)*(?:\#|%:){_GAP}(embed|import|include_next|(?:define|undef){_GAP}__?asm(?:__)?\b|(?:define|undef){_GAP}asm)\b",
    re.MULTILINE | re.DOTALL,
)


def plain_lines(text: str) -> str:
    """Returns a text whose lines end with LF alone: some compilers take a lone CR for an end of a line, too."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def refuse_foreign_files(
    text: str, shown: str, library: Collection[str] | None = None, folders: Sequence[str] = ()
) -> None:
    r"""Raises SourceError if a text has ``#embed``, ``#import`` or ``#include_next``, or an include of another file.

    clang reads any file for these, and compilers for GPUs know none of them. A kind follows ``#include`` in the folders
    that its users name, before it calls this. In doubt (a directive in a comment) the text is refused.

    >>> refuse_foreign_files("#include <metal_stdlib>\n", "add.metal")
    >>> refuse_foreign_files("\n# em\\\nbed \"/etc/passwd\"\n", "add.metal")
    Traceback (most recent call last):
    silo.errors.SourceError: add.metal:2: #embed is not followed: it would read any file. Write the content in the text

    Args:
        text: the text of a file.
        shown: its name in the message.
        library: the headers that a text may include, in angle brackets; None: the kind has checked the includes.
        folders: beginnings of further names that it may include, such as ``c10/metal/``.
    """
    pieces = _CONTINUED.split(plain_lines(text))
    joined = "".join(pieces)
    found = _READS.search(joined)
    if found is not None:
        place = f"{shown}:{_line(pieces, found.start(1))}"
        if found[1].endswith("asm") or found[1].endswith("asm__"):
            raise SourceError(f"{place}: asm is a word of the language: no macro may have its name")
        raise SourceError(
            f"{place}: #{found[1]} is not followed: it would read any file. Write the content in the text"
        )
    for one in _INCLUDE.finditer(joined) if library is not None else ():
        name = one["name"] or ""
        if name not in (library or ()) and (".." in name.split("/") or not name.startswith((*folders, "\0"))):
            wanted = "a file" if one["name"] is None else f"<{one['name']}>"
            raise SourceError(
                f"{shown}:{_line(pieces, one.start(1))}: #include of {wanted}, which is none of the language's own "
                f"headers ({', '.join(sorted(library or ()))}): name the folder of a file in include="
            )


def _line(pieces: Sequence[str], place: int) -> int:
    """The line of a text whose continued lines were joined: each continuation ended one."""
    at, line = 0, 1
    for piece in pieces:
        if at + len(piece) >= place:
            return line + piece.count("\n", 0, place - at)
        at += len(piece)
        line += piece.count("\n") + 1
    return line

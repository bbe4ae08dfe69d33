"""Refuses C texts whose directives would read files that no ``#include`` of the text names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from silo.errors import SourceError

__all__ = ["GAP", "plain_lines", "refuse_foreign_files", "refuse_joined_words"]

_CONTINUED = re.compile(r"\\[ \t]*\n")
# The pattern matches up to the first end of a comment and never backtracks beyond it. Otherwise each comment at the
# start of a line would double the time of a search.
_COMMENT = r"/\*(?:[^*]|\*(?!/))*+\*/"
GAP = rf"(?:[^\S\n]|[\u180e\u200b\ufeff]|{_COMMENT})*+"
"""A pattern for the space within a directive and before its ``#``; clang accepts some Unicode spaces, too."""

_INCLUDE = re.compile(rf"^{GAP}(?:\#|%:){GAP}(include)\b{GAP}(?:<(?P<name>[^>\n]*)>)?", re.MULTILINE | re.DOTALL)
_READS = re.compile(
    rf"^{GAP}(?:\#|%:){GAP}(embed|import|include_next|(?:define|undef){GAP}__?asm(?:__)?\b|(?:define|undef){GAP}asm)\b",
    re.MULTILINE | re.DOTALL,
)


# Characters that may hide a directive: the C++14 trigraphs for ``#`` and for the backslash of a continued line, and
# NUL, which clang treats as a space.
_HIDES = re.compile(r"\?\?[=/]|\0")
# Tests whether a header exists. The answer may differ from machine to machine, so tests are allowed only for headers in
# the text's folders and for headers of the language.
_ASKS = re.compile(r"(?<![\w$])(__has_(?:include|include_next|embed))\b")
_PLAIN_QUESTION = re.compile(rf"__has_include{GAP}\({GAP}(?:\"([^\"\n]*)\"|<([^>\n]*)>){GAP}\)")
_DEFINED = re.compile(rf"(?:defined{GAP}\(?|ifn?def|elifn?def){GAP}\Z", re.DOTALL)


# A pragma that makes a compile fail depending on the date of a file of the machine.
_DEPENDS = re.compile(rf"\bGCC(?:[^\S\n]|{_COMMENT}|\\[ntv])*+dependency\b", re.DOTALL)

# Words that a text must not make by joining tokens, because they depend on the machine's files or on the time.
_JOINED = ("__has_include", "__has_include_next", "__has_embed", "__DATE__", "__TIME__", "__TIMESTAMP__")
_JOINS = re.compile(r"##|%:%:|\b(?:_CCCL|_LIBCUDACXX|CUB|THRUST)_\w*CAT")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MOST_PARTS = 4


def plain_lines(text: str) -> str:
    """Returns a text with LF line ends, with spaces for form feeds and vertical tabs, and without a byte order mark.

    Some compilers also treat a lone CR as a line end, and continue a line after a backslash and any space.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\f", " ").replace("\v", " ")


def refuse_foreign_files(
    text: str, shown: str, library: Collection[str] | None = None, folders: Sequence[str] = ()
) -> None:
    r"""Raises SourceError if a text has ``#embed``, ``#import`` or ``#include_next``, or includes a forbidden file.

    clang reads any file for these directives, and GPU compilers do not support them. A kind of kernel first replaces
    each ``#include`` of a file in the folders that its users name, and then calls this function. If it is unclear
    whether a piece of text is a directive (for example, within a comment), the text is refused.

    >>> refuse_foreign_files("#include <metal_stdlib>\n", "add.metal")
    >>> refuse_foreign_files("\n# em\\\nbed \"/etc/passwd\"\n", "add.metal")
    Traceback (most recent call last):
    silo.errors.SourceError: add.metal:2: #embed is not followed: it would read any file. Write the content in the text

    Args:
        text: the text of a file.
        shown: the file's name in the message.
        library: the headers that a text may include, in angle brackets; None if the kind has checked the includes.
        folders: prefixes of further names that it may include, for example ``c10/metal/``.
    """
    pieces = _CONTINUED.split(plain_lines(text))
    joined = "".join(pieces)
    directive = _READS.search(joined)
    if directive is not None:
        location = f"{shown}:{_line(pieces, directive.start(1))}"
        if directive[1].endswith("asm") or directive[1].endswith("asm__"):
            raise SourceError(f"{location}: asm is a word of the language: no macro may have its name")
        raise SourceError(
            f"{location}: #{directive[1]} is not followed: it would read any file. Write the content in the text"
        )
    depends = _DEPENDS.search(joined)
    if depends is not None:
        raise SourceError(
            f"{shown}:{_line(pieces, depends.start())}: the pragma GCC dependency is refused: machines differ in the "
            "files that they have"
        )
    hidden = _HIDES.search(joined)
    if hidden is not None:
        sign = "a zero byte" if hidden.group() == "\0" else f"the trigraph {hidden.group()}"
        raise SourceError(
            f"{shown}:{_line(pieces, hidden.start())}: {sign} is refused: it may hide a directive that reads a file"
        )
    for hit in _ASKS.finditer(joined):
        plain = _PLAIN_QUESTION.match(joined, hit.start())
        name = "/" if plain is None else plain[1] or plain[2] or "/"
        leads_out = name.startswith(("/", "~", "\\")) or ".." in name.split("/") or name[1:2] == ":"
        if leads_out and not _DEFINED.search(joined[max(hit.start() - 200, 0) : hit.start()]):
            raise SourceError(
                f"{shown}:{_line(pieces, hit.start())}: {hit[1]} is followed for a name in quotes or angle brackets "
                "that does not lead out of the text's folders: machines differ in the files that they have"
            )
    for hit in _INCLUDE.finditer(joined) if library is not None else ():
        name = hit["name"] or ""
        if name not in (library or ()) and (".." in name.split("/") or not name.startswith((*folders, "\0"))):
            file_text = "a file" if hit["name"] is None else f"<{hit['name']}>"
            raise SourceError(
                f"{shown}:{_line(pieces, hit.start(1))}: #include of {file_text}, which is none of the language's own "
                f"headers ({', '.join(sorted(library or ()))}): name the folder of a file in include="
            )


def refuse_joined_words(texts: Sequence[str], shown: str) -> None:
    r"""Raises SourceError if ``##`` could join tokens of the texts to a word that depends on the machine or the time.

    >>> refuse_joined_words(["#define J(a, b) a##b\nint n = J(__TI, ME__)[0];"], "a.cu")
    Traceback (most recent call last):
    silo.errors.SourceError: a.cu: __TI and ME__ may be joined to __TIME__, which differs by machine or time: rename one
    """
    joined = [_CONTINUED.sub("", plain_lines(text)) for text in texts]
    if not any(_JOINS.search(text) for text in joined):
        return
    names = {name for text in joined for name in _NAME.findall(text)}
    for word in _JOINED:
        parts = _parts(word, names)
        if parts:
            raise SourceError(
                f"{shown}: {' and '.join(parts)} may be joined to {word}, which differs by machine or time: rename one"
            )


def _parts(word: str, names: Collection[str]) -> tuple[str, ...]:
    """Returns the fewest names, two to four, whose concatenation is ``word``; else ().

    More names are not considered, because many texts contain single letters and ``_`` as names.
    """
    shortest: dict[int, tuple[str, ...]] = {0: ()}
    for end in range(1, len(word) + 1):
        for start in range(end):
            part = word[start:end]
            if start not in shortest or part not in names or part == word:
                continue
            if end not in shortest or len(shortest[start]) + 1 < len(shortest[end]):
                shortest[end] = (*shortest[start], part)
    cut = shortest.get(len(word), ())
    return cut if len(cut) <= _MOST_PARTS else ()


def _line(pieces: Sequence[str], offset: int) -> int:
    """Returns the line number of a position in a text whose continued lines were joined from ``pieces``."""
    at, line = 0, 1
    for piece in pieces:
        if at + len(piece) >= offset:
            return line + piece.count("\n", 0, offset - at)
        at += len(piece)
        line += piece.count("\n") + 1
    return line

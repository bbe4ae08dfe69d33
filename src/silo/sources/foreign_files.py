"""Directives of C texts that would put files into the code which the author of the text does not name in an include."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from silo.errors import SourceError

__all__ = ["GAP", "plain_lines", "refuse_foreign_files", "refuse_joined_words"]

_CONTINUED = re.compile(r"\\[ \t]*\n")
# A comment ends at its first end: otherwise the time of a search would double with each comment at the start of a line.
_COMMENT = r"/\*(?:[^*]|\*(?!/))*+\*/"
GAP = rf"(?:[^\S\n]|[\u180e\u200b\ufeff]|{_COMMENT})*+"
"""A pattern for the space between the words of a directive, and before its sign; clang also takes spaces of Unicode."""

_INCLUDE = re.compile(rf"^{GAP}(?:\#|%:){GAP}(include)\b{GAP}(?:<(?P<name>[^>\n]*)>)?", re.MULTILINE | re.DOTALL)
_READS = re.compile(
    rf"^{GAP}(?:\#|%:){GAP}(embed|import|include_next|(?:define|undef){GAP}__?asm(?:__)?\b|(?:define|undef){GAP}asm)\b",
    re.MULTILINE | re.DOTALL,
)


# Trigraphs of C++14 for the sign and for the line that goes on, and a zero, which clang takes for a space.
_HIDES = re.compile(r"\?\?[=/]|\0")
# Whether a file is there, which differs from machine to machine: a header of the text's folders or of the language.
_ASKS = re.compile(r"(?<![\w$])(__has_(?:include|include_next|embed))\b")
_PLAIN_QUESTION = re.compile(rf"__has_include{GAP}\({GAP}(?:\"([^\"\n]*)\"|<([^>\n]*)>){GAP}\)")
_DEFINED = re.compile(rf"(?:defined{GAP}\(?|ifn?def|elifn?def){GAP}\Z", re.DOTALL)


# A pragma by which a compile fails or not with a file of the machine.
_DEPENDS = re.compile(rf"\bGCC(?:[^\S\n]|{_COMMENT}|\\[ntv])*+dependency\b", re.DOTALL)

# Words that the texts may not make by joining tokens: they depend on the machine's files, or on the time.
_JOINED = ("__has_include", "__has_include_next", "__has_embed", "__DATE__", "__TIME__", "__TIMESTAMP__")
_JOINS = re.compile(r"##|%:%:|\b(?:_CCCL|_LIBCUDACXX|CUB|THRUST)_\w*CAT")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MOST_PARTS = 4


def plain_lines(text: str) -> str:
    """Returns a text whose lines end with LF alone, with spaces for form feeds and vertical tabs, and without a mark.

    Some compilers take a lone CR for an end of a line, too, and go on with a line after a backslash and any space.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\f", " ").replace("\v", " ")


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
    for one in _ASKS.finditer(joined):
        plain = _PLAIN_QUESTION.match(joined, one.start())
        name = "/" if plain is None else plain[1] or plain[2] or "/"
        leads_out = name.startswith(("/", "~", "\\")) or ".." in name.split("/") or name[1:2] == ":"
        if leads_out and not _DEFINED.search(joined[max(one.start() - 200, 0) : one.start()]):
            raise SourceError(
                f"{shown}:{_line(pieces, one.start())}: {one[1]} is followed for a name in quotes or angle brackets "
                "that does not lead out of the text's folders: machines differ in the files that they have"
            )
    for one in _INCLUDE.finditer(joined) if library is not None else ():
        name = one["name"] or ""
        if name not in (library or ()) and (".." in name.split("/") or not name.startswith((*folders, "\0"))):
            wanted = "a file" if one["name"] is None else f"<{one['name']}>"
            raise SourceError(
                f"{shown}:{_line(pieces, one.start(1))}: #include of {wanted}, which is none of the language's own "
                f"headers ({', '.join(sorted(library or ()))}): name the folder of a file in include="
            )


def refuse_joined_words(texts: Sequence[str], shown: str) -> None:
    r"""Raises SourceError if the tokens of texts, joined by ``##``, may be a word for the machine's files or the time.

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
    """Returns the fewest names, two or more, that make a word; () if none do, or only more than four.

    Many short names are not looked for: single letters and ``_`` are names in many texts.
    """
    found: dict[int, tuple[str, ...]] = {0: ()}
    for end in range(1, len(word) + 1):
        for start in range(end):
            part = word[start:end]
            if start not in found or part not in names or part == word:
                continue
            if end not in found or len(found[start]) + 1 < len(found[end]):
                found[end] = (*found[start], part)
    made = found.get(len(word), ())
    return made if len(made) <= _MOST_PARTS else ()


def _line(pieces: Sequence[str], place: int) -> int:
    """The line of a text whose continued lines were joined: each continuation ended one."""
    at, line = 0, 1
    for piece in pieces:
        if at + len(piece) >= place:
            return line + piece.count("\n", 0, place - at)
        at += len(piece)
        line += piece.count("\n") + 1
    return line

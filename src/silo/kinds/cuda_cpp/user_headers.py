"""The user's headers of a text: read from the folders that the user names, and stored with the text.

The compiler gets none of the user's folders, so the key of the code covers every text that the code depends on. An
include that leads out of these folders, or whose name is a macro, is refused: the compiler would open a file that was
not read here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from silo.errors import SourceError
from silo.frozen import frozen, replace
from silo.kinds.cuda_cpp.compile_log import explained
from silo.kinds.cuda_cpp.cuda_text import TokenKind, includes_of, tokens_of
from silo.kinds.cuda_cpp.cuda_unit import CudaText, CudaUnit
from silo.kinds.cuda_cpp.device_extraction import device_texts
from silo.kinds.cuda_cpp.host_headers import ALWAYS, FIRST, LEFT_OUT, first_text, replacement
from silo.plain_files import read_plain
from silo.sources.foreign_files import plain_lines, refuse_foreign_files, refuse_joined_words

__all__ = ["HeaderFolders", "Wanted", "cause_of", "closed_text", "decoded", "explained_text"]

_CLOCK = re.compile(r"\b__(?:DATE|TIME|TIMESTAMP)__\b")
_MOST_HEADERS = 2000
_MOST_BYTES = 64 << 20


@frozen
class HeaderFolders:
    """The places from which headers are read: the folder of the text, further folders, and headers given as texts."""

    own: str | None
    folders: tuple[str, ...]
    texts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, include: Sequence[str | os.PathLike[str]] | Mapping[str, str], own: Path | None) -> HeaderFolders:
        """Returns the folders and texts that ``include=`` names, and the folder of the file ``own``.

        Raises SourceError if a path in ``include`` is not a folder.
        """
        beside = None if own is None else str(own.resolve())
        if isinstance(include, Mapping):
            return cls(beside, (), tuple(sorted(include.items())))
        folders = (include,) if isinstance(include, str | os.PathLike) else include
        for folder in folders:
            if not Path(folder).is_dir():
                raise SourceError(f"include={folder!r} is not a folder")
        return cls(beside, tuple(str(Path(folder).resolve()) for folder in folders))


@frozen
class Wanted:
    """The parts of a text that are needed with ``device_only``: the kernel's name, and the words of its constants."""

    entry: str
    words: tuple[str, ...] = ()


def closed_text(text: CudaText, folders: HeaderFolders, shown: str, device_only: Wanted | None = None) -> CudaText:
    """Returns the text with every header of the user's that it may include. ``shown`` names the text in messages.

    With ``device_only`` the texts lose their host code and everything that the entry does not need, and missing host
    headers are replaced by short texts or left out.

    Raises:
        SourceError: a header's name leads out of its folder or is a macro, or two files have one name.
    """
    text = replace(text, text=plain_lines(text.text))
    given_texts = dict(folders.texts)
    headers_found: dict[str, tuple[str, str]] = {}  # the text and the path of each header, by its name in includes
    waiting: list[tuple[str, str, str | None]] = [(text.text, shown, folders.own)]
    missing: set[str] = set()  # headers that are not among the user's
    total = 0
    while waiting:
        own, label, beside = waiting.pop()
        refuse_foreign_files(own, label)
        _refuse_clocks(own, label)
        for include in includes_of(own):
            location = f"{label}:{include.line}"
            if not include.name:
                raise SourceError(f"{location}: an #include whose file a macro names is not followed: write the name")
            _check_name(include.name, location)
            header = _header(include.name, location, given_texts, folders, beside if include.quoted else None)
            if header is None:
                missing.add(include.name)
                continue
            content, path = plain_lines(header[0]), header[1]
            cached_header = headers_found.get(include.name)
            if cached_header is not None:
                if cached_header[1] != path and cached_header[0] != content:
                    raise SourceError(
                        f"{location}: {include.name!r} names two files, {cached_header[1]} and {path}: rename one"
                    )
                continue
            headers_found[include.name] = (content, path)
            total += len(content)
            if len(headers_found) > _MOST_HEADERS or total > _MOST_BYTES:
                raise SourceError(f"{shown}: its headers are more than {_MOST_HEADERS}, or {_MOST_BYTES >> 20} MiB")
            waiting.append((content, include.name, str(Path(path).parent) if path else None))
    headers = {name: content for name, (content, _) in headers_found.items()}
    refuse_joined_words((text.text, *headers.values()), shown)
    if device_only is None:
        for name in missing & ALWAYS:
            headers[name] = replacement(name, (text.text, *headers.values())) or ""
        return replace(text, headers=tuple(sorted(headers.items())))
    own, headers = device_texts(text.text, headers, device_only.words, device_only.entry)
    for name in missing - headers.keys():
        instead = replacement(name, (own, *headers.values()))
        if instead is not None:
            headers[name] = instead
    headers[FIRST] = first_text((own, *headers.values()))
    first = f'#include "{FIRST}"\n#line 1 "{text.file}"\n'
    return replace(text, text=first + own, headers=tuple(sorted(headers.items())))


def cause_of(log: str, label: str, unit: CudaUnit) -> str:
    """Returns a compiler's messages about one variant, explained for users; ``label`` names the kernel."""
    return explained_text(log, label, unit.expression, unit.text)


def explained_text(log: str, label: str, entry: str, text: CudaText) -> str:
    """Returns a compiler's messages about a text, explained by :func:`~silo.kinds.cuda_cpp.compile_log.explained`."""
    left_out = [name for name, content in text.headers if content == LEFT_OUT]
    device_only = any(name == FIRST for name, _ in text.headers)
    return explained(log, label, entry, device_only=device_only, left_out=left_out)


def decoded(data: bytes) -> str:
    """Returns the text of a file: UTF-8, or Latin-1 if only comments have other bytes. Raises UnicodeDecodeError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        if any(not token.text.isascii() for token in tokens_of(text)):
            raise
        return text


def _refuse_clocks(text: str, shown: str) -> None:
    """Raises SourceError if a text uses the time of its compile, because its code would differ from run to run."""
    if _CLOCK.search(text) is None:
        return
    for token in tokens_of(text):
        if token.kind in (TokenKind.WORD, TokenKind.DIRECTIVE) and (match := _CLOCK.search(token.text)) is not None:
            line = text.count("\n", 0, token.begin + match.start()) + 1
            raise SourceError(f"{shown}:{line}: {match.group()} differs from compile to compile: leave it out")


def _check_name(name: str, location: str) -> None:
    if name.startswith(("/", "\\", "~")) or "\0" in name or (len(name) > 1 and name[1] == ":"):
        raise SourceError(f"{location}: {name!r} is an absolute path: name its folder in include= and write the rest")


def _header(
    name: str, location: str, texts: Mapping[str, str], folders: HeaderFolders, including_folder: str | None
) -> tuple[str, str] | None:
    """Returns a header's text and path; None if the user's folders and texts lack the header.

    The path is "" if the header was given as a text.
    """
    if name in texts:
        return texts[name], ""
    roots = [Path(folder) for folder in (folders.own, *folders.folders) if folder is not None]
    for base in dict.fromkeys(
        (*([Path(including_folder)] if including_folder is not None else ()), *map(Path, folders.folders))
    ):
        path = Path(os.path.normpath(base / name))
        inside = any(path.is_relative_to(root) for root in roots)
        if inside and path.is_file():
            real = path.resolve()
            if not any(real.is_relative_to(root) for root in roots):
                raise SourceError(f"{location}: {name!r} is a link that leads out of {base}")
            try:
                return decoded(read_plain(real)), str(real)
            except (OSError, UnicodeDecodeError) as error:
                raise SourceError(f"{location}: the header {name!r} cannot be read: {error}") from error
    if ".." in PurePosixPath(name).parts:
        raise SourceError(f"{location}: {name!r} leads out of the folders of headers: name its folder in include=")
    return None

"""Digests of code that were computed before, by the bytes that they depend on.

They are in two files: the first comes with a wheel, the second is in the folder where Python keeps the byte code of
this package. Everybody who may write there decides which code Python runs, so the second file is trusted like the byte
code. An entry counts for the very bytes of the files, so it cannot be out of date.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import cache_from_source
from itertools import islice
from pathlib import Path

from silo.core.json_reader import read_bool, read_list, read_mapping, read_object, read_text
from silo.core.values import canonical_json, parse_json

__all__ = ["SHIPPED", "KnownDigest", "decode_table", "encode_table", "known_digest", "remember"]

SHIPPED = "code_digests.json"  # beside this module, in a wheel
_SCHEMA = "code-digests/1"
_MOST = 64  # entries: compilers times the states of the code that ran lately
_DIGEST = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class KnownDigest:
    """A digest of code, and for each dotted name that decided it whether a module has that name."""

    digest: str
    names: Mapping[str, bool]


def known_digest(content: str, exists: Callable[[str], bool]) -> KnownDigest | None:
    """The digest for files of these bytes, or None. ``exists`` returns whether one of its names is a module today."""
    for path in (_shipped_file(), _cache_file()):
        found = _read(path).get(content)
        if found is not None and all(exists(name) == there for name, there in found.names.items()):
            return found
    return None


def remember(content: str, known: KnownDigest) -> None:
    """Keep a digest beside the byte code, unless Python does not write byte code or may not write there."""
    if sys.dont_write_bytecode:
        return
    path = _cache_file()
    others = {other: entry for other, entry in _read(path).items() if other != content}
    newest = dict(islice(others.items(), max(len(others) - _MOST + 1, 0), None))
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(encode_table({**newest, content: known}))
        beside.replace(path)
    except OSError:  # nothing is kept, as when Python cannot write byte code
        with contextlib.suppress(OSError):
            beside.unlink()


def encode_table(entries: Mapping[str, KnownDigest]) -> bytes:
    """The bytes of a file of digests by content, in this order."""
    lines = (
        canonical_json([content, {"digest": known.digest, "names": dict(known.names)}])
        for content, known in entries.items()
    )
    return b"".join(line + b"\n" for line in (canonical_json(_SCHEMA), *lines))


def decode_table(data: bytes) -> dict[str, KnownDigest]:
    """The inverse of :func:`encode_table`; ``ValueError`` on anything else."""
    what = "a table of code digests"
    head, *lines = data.splitlines()
    if parse_json(head) != _SCHEMA:
        raise ValueError(f"not {what} of schema {_SCHEMA}")
    found: dict[str, KnownDigest] = {}
    for line in lines:
        content, entry = read_list(parse_json(line), what, 2)
        members = read_object(entry, ("digest", "names"), what)
        digest = read_text(members["digest"], what)
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{what} with no digest: {digest!r}")
        names = read_mapping(members["names"], what)
        found[read_text(content, what)] = KnownDigest(
            digest, {name: read_bool(there, what) for name, there in names.items()}
        )
    return found


def _shipped_file() -> Path:
    return Path(__file__).with_name(SHIPPED)


def _cache_file() -> Path:
    return Path(cache_from_source(__file__)).with_name(SHIPPED)


def _read(path: Path) -> dict[str, KnownDigest]:
    """The entries of a file; empty if the file is missing or damaged: then the digest is computed."""
    try:
        return decode_table(path.read_bytes())
    except (OSError, ValueError):
        return {}

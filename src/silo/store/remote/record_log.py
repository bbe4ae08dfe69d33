"""Lines: records as they travel, each alone under its sha256, or many of one list folded into one object.

A fold holds the very lines that would be objects of their own, so that a list is the union of all lines wherever they
are, and a repeated line counts once. A fold never changes and replaces nothing: its name is the sha256 of its bytes and
how many lines it holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from silo.core.values import JSON
from silo.errors import StoreError
from silo.store.records import decode_line, encode_line
from silo.store.remote.object_protocol import MOST_LINE_BYTES

__all__ = ["MOST_FOLDED", "digest_of", "fold_of", "is_fold", "line_of", "verified_fold", "verified_line"]

# Bytes of a fold, which is as long as one line may be.
MOST_FOLDED = MOST_LINE_BYTES

_FOLD = re.compile(r"[0-9a-f]{64}\.[1-9][0-9]{0,5}")


def line_of(key: str, record: JSON) -> bytes:
    """The line of a record, as it is kept and sent."""
    return encode_line(f"record/{key}", record)


def digest_of(line: bytes) -> str:
    """The name of a line."""
    return hashlib.sha256(line).hexdigest()


def fold_of(lines: Sequence[bytes]) -> tuple[str, bytes]:
    r"""Lines of one list as one object: the last part of its name, and its bytes.

    >>> fold_of([b"a\n", b"b\n"])[0][-4:]
    'a2.2'
    """
    data = b"".join(lines)
    return f"{hashlib.sha256(data).hexdigest()}.{len(lines)}", data


def is_fold(name: str) -> bool:
    """Whether the last part of a name can be a fold's."""
    return _FOLD.fullmatch(name) is not None


def verified_line(key: str, digest: str, line: bytes) -> JSON:
    """The record on a line that somebody sent; ``ValueError`` if it is torn, of another key or of another name."""
    if digest_of(line) != digest:
        raise ValueError("its sha256 differs")
    if not line.endswith(b"\n"):
        raise ValueError("it is torn")
    record = decode_line(f"record/{key}", line[:-1])
    try:
        same = line_of(key, record) == line
    except (StoreError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not same:
        raise ValueError("it is not in canonical form")
    return record


def verified_fold(key: str, name: str, data: bytes) -> dict[str, JSON]:
    """The records of a fold by the names of their lines; raises ``ValueError`` if a line contradicts its name."""
    lines = [line + b"\n" for line in data.removesuffix(b"\n").split(b"\n")]  # canonical JSON never contains a newline
    if f"{digest_of(data)}.{len(lines)}" != name or not data.endswith(b"\n"):
        raise ValueError("its sha256 or its number of lines differs")
    return {digest: verified_line(key, digest, line) for line in lines for digest in (digest_of(line),)}

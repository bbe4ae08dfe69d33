"""The protocol of every remote store, its limits, and the names of a store's objects there.

An object never changes: blobs and trials are named by their SHA-256, and equal keys have equal meaning. So getting,
adding absent objects and listing are enough, and a service that can do these is a correct store. Only pruning removes
objects (:mod:`silo.store.remote.remote_pruning`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from silo.store.records import check_key
from silo.store.stored_objects import check_sha256

__all__ = [
    "LIMIT_S",
    "LISTING_S",
    "MOST_BLOB_BYTES",
    "MOST_LINE_BYTES",
    "MOST_NAMES",
    "PARTS",
    "Objects",
    "blob_name",
    "entry_name",
    "is_record_digest",
    "limit_s",
    "record_name",
    "records_of",
]

# The most seconds that connecting, or waiting for the next bytes, may take.
LIMIT_S = 2.0
# The most seconds for a page of a listing of a service that has answered before. A long page takes a while.
LISTING_S = 5.0
_BYTES_A_SECOND = 1 << 20  # a service that transfers fewer bytes in a second counts as broken
MOST_LINE_BYTES = 256 << 10
MOST_BLOB_BYTES = 64 << 20
# The most names that are read from a listing.
MOST_NAMES = 200_000

PARTS = ("blobs", "artifacts", "jobs", "records")

_LAST_PART = re.compile(r"[0-9a-f]{64}")


class Objects(Protocol):
    """The objects of a remote store. Any thread may call the methods, which raise ``RemoteError`` if they fail.

    ``deadline`` is a moment of ``time.monotonic``; a method gives up soon after it.
    """

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a store that the service can keep: :data:`PARTS`, or fewer. May send a request to find out."""
        ...

    def get(self, name: str, most: int, deadline: float) -> bytes | None:
        """Returns the bytes of an object; None if it is absent. Takes at most ``most`` bytes into memory."""
        ...

    def put(self, name: str, data: bytes, deadline: float) -> None:
        """Adds an object with this name; an existing object stays, or is replaced by bytes of equal meaning."""
        ...

    def remove(self, name: str, deadline: float) -> None:
        """Removes an object. Does nothing if it is absent."""
        ...

    def list(self, folder: str, deadline: float) -> Iterator[list[str]]:
        """Yields the names of all objects below a folder (``records/KEY``), relative to it, in pages as they arrive."""
        ...


def limit_s(most: int) -> float:
    """Returns the most seconds that getting or adding this many bytes may take."""
    return LIMIT_S + most / _BYTES_A_SECOND


def blob_name(sha256: str) -> str:
    """Returns the name of a blob.

    >>> blob_name("ab" * 32)[:12]
    'blobs/ab/aba'
    """
    return f"blobs/{check_sha256(sha256)[:2]}/{sha256}"


def entry_name(part: str, key: str) -> str:
    """Returns the name of an artifact, or of the outcome of a job."""
    return f"{part}/{check_sha256(key)[:2]}/{key}.json"


def records_of(key: str) -> str:
    """Returns the folder of a list of records."""
    return f"records/{check_key(key)}"


def record_name(key: str, sha256: str) -> str:
    """Returns the name of one record, given the SHA-256 of its line."""
    return f"{records_of(key)}/{check_sha256(sha256)}"


def is_record_digest(name: str) -> bool:
    """Returns whether a name in a listing can be the name of a record."""
    return _LAST_PART.fullmatch(name) is not None

"""Objects: the one protocol of every remote store, its limits, and the names of a store's parts there.

An object never changes: blobs and trials are named by their sha256, and equal keys have equal meaning. So
getting, putting absent objects and listing are enough, and a service that can do these is a correct store.
Removing serves pruning alone (:mod:`silo.store.remote.remote_pruning`).
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

# The longest a connection may take, or wait for the next bytes.
LIMIT_S = 2.0
# The same for a page of a listing, if the service has answered before: a long page takes a while.
LISTING_S = 5.0
_BYTES_A_SECOND = 1 << 20  # a service that transfers less counts as broken
MOST_LINE_BYTES = 256 << 10
MOST_BLOB_BYTES = 64 << 20
# The most names that are read from a listing.
MOST_NAMES = 200_000

PARTS = ("blobs", "artifacts", "jobs", "records")

_LAST_PART = re.compile(r"[0-9a-f]{64}")


class Objects(Protocol):
    """A remote store, as any of several threads uses it. Every method raises ``RemoteError`` if it fails.

    ``deadline`` is a moment of ``time.monotonic``; a method gives up soon after it.
    """

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that the service can keep: :data:`PARTS`, or fewer of them. It may send a request to find out."""
        ...

    def get(self, name: str, most: int, deadline: float) -> bytes | None:
        """The bytes of an object, None where it is absent. At most ``most`` bytes are held in memory."""
        ...

    def put(self, name: str, data: bytes, deadline: float) -> None:
        """Make an object of this name; an existing object stays, or is replaced by bytes of equal meaning."""
        ...

    def remove(self, name: str, deadline: float) -> None:
        """Remove an object; one that is absent is no error."""
        ...

    def list(self, folder: str, deadline: float) -> Iterator[list[str]]:
        """The names of all objects below a folder (``records/KEY``), from there on, page by page as they arrive."""
        ...


def limit_s(most: int) -> float:
    """The most seconds that getting or putting this many bytes may take."""
    return LIMIT_S + most / _BYTES_A_SECOND


def blob_name(sha256: str) -> str:
    """The name of a blob.

    >>> blob_name("ab" * 32)[:12]
    'blobs/ab/aba'
    """
    return f"blobs/{check_sha256(sha256)[:2]}/{sha256}"


def entry_name(part: str, key: str) -> str:
    """The name of an artifact or of the outcome of a job."""
    return f"{part}/{check_sha256(key)[:2]}/{key}.json"


def records_of(key: str) -> str:
    """The folder of a list of records."""
    return f"records/{check_key(key)}"


def record_name(key: str, sha256: str) -> str:
    """The name of one record, by the sha256 of its line."""
    return f"{records_of(key)}/{check_sha256(sha256)}"


def is_record_digest(name: str) -> bool:
    """Whether a name of a listing can be a record's name."""
    return _LAST_PART.fullmatch(name) is not None

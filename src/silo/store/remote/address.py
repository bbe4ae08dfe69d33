"""The address of a remote store (``SILO_REMOTE``), and the one protocol of the objects at each address.

An object never changes: blobs and trials are named by their sha256, and equal keys have equal meaning. So
getting, putting absent objects and listing are enough, and a service that can do these is a correct store.
Removing serves pruning alone (:mod:`silo.store.remote.remote_pruning`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from silo.errors import SettingsError
from silo.frozen import field, frozen
from silo.store.blobs import check_sha256
from silo.store.records import check_key
from silo.variables import REMOTE_SCHEMES

__all__ = [
    "LIMIT_S",
    "LISTING_S",
    "MOST_BLOB_BYTES",
    "MOST_LINE_BYTES",
    "MOST_NAMES",
    "PARTS",
    "Objects",
    "RemoteAddress",
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
# A listing is taken so far and no further.
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


_FORMS = "it begins with file:, https://, s3://, gs://, az://, redis:// or rediss://"


@frozen
class RemoteAddress:
    """The address of a remote store. ``name`` is the address as it is shown and trusted: without user and password."""

    name: str
    address: str = field(repr=False)

    @classmethod
    def parse(cls, address: str) -> RemoteAddress:
        """Read an address; ``SettingsError`` names its fault.

        >>> RemoteAddress.parse("https://me:secret@cache.example/silo/").name
        'https://cache.example/silo'
        >>> RemoteAddress.parse("file:///mnt/share").name
        'file:/mnt/share'
        """
        address = address.strip()
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in address):
            raise SettingsError("SILO_REMOTE has a control character in it")
        scheme, _, rest = address.partition(":")
        if scheme.lower() not in REMOTE_SCHEMES:
            raise SettingsError(f"no remote store has an address like {address[:40]!r}; {_FORMS}")
        if scheme.lower() == "file":
            return cls(f"file:{_absolute(rest)}", address)
        try:
            split = urlsplit(address)
            _ = split.port
        except ValueError as error:
            raise SettingsError(f"SILO_REMOTE is no address: {error}") from None
        if " " in address:
            raise SettingsError("SILO_REMOTE has a space in it; write %20")
        if split.fragment or split.query:
            raise SettingsError("SILO_REMOTE has no part after '?' or '#'")
        path = split.path.rstrip("/")
        if not split.hostname:
            raise SettingsError(f"SILO_REMOTE={split.scheme}:// needs a host or a bucket behind it")
        host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
        port = "" if split.port is None else f":{split.port}"
        return cls(f"{split.scheme}://{host}{port}{path}", address)

    @property
    def split(self) -> SplitResult:
        """The whole address in its parts."""
        return urlsplit(self.address)

    @property
    def scheme(self) -> str:
        """``file``, ``https``, ..."""
        return self.name.partition(":")[0]

    @property
    def folder(self) -> Path:
        """The folder of ``file:``."""
        return Path(self.name.removeprefix("file:"))

    @property
    def forks(self) -> bool:
        """Whether a child made by fork may continue with a connection of its own if the parent had one."""
        return self.scheme not in ("s3", "gs", "az")  # the threads of that library stay with the parent

    def open(self) -> Objects:
        """The client for it; nothing is sent yet. ``RemoteError`` if a package is missing."""
        scheme = self.scheme
        if scheme == "file":
            from silo.store.remote.folder_objects import FolderObjects  # noqa: PLC0415  # each kind imports other things

            return FolderObjects(self.folder)
        if scheme in ("http", "https"):
            from silo.store.remote.web import WebObjects  # noqa: PLC0415

            return WebObjects(self.split)
        if scheme in ("redis", "rediss"):
            from silo.store.remote.redis_server import RedisObjects  # noqa: PLC0415

            return RedisObjects(self.split)
        from silo.store.remote.cloud import CloudObjects  # noqa: PLC0415

        return CloudObjects(self.address)


def _absolute(rest: str) -> str:
    """The path of ``file:``, taken as it is written, with two slashes before it or none."""
    path = rest.removeprefix("//localhost").removeprefix("//") if rest.startswith("//") else rest
    if not path.startswith("/"):
        raise SettingsError(
            "SILO_REMOTE=file: is followed by an absolute path (file:/mnt/share/silo); a folder of another machine "
            "must be mounted here"
        )
    return path.rstrip("/") or "/"

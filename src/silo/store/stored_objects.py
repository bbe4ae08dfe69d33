"""Objects of a store, on disk or in memory: blobs named by their SHA-256, and JSON documents by key."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import StoreError
from silo.forks import Notices
from silo.store.atomic_files import disk_bytes, publish
from silo.store.privacy import NotPrivateError, open_private, private_size, read_private
from silo.store.records import DiskWrite, decode_line, encode_line

__all__ = [
    "DiskBlobs",
    "DiskEntries",
    "Entries",
    "FallbackBlobs",
    "FallbackEntries",
    "MemoryBlobs",
    "MemoryEntries",
    "check_sha256",
]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DAY_S = 86400


def check_sha256(sha256: str) -> str:
    """Returns ``sha256``.

    Raises ``StoreError`` unless it is a lower-case hex SHA-256 (which is safe as a file name).
    """
    if not _SHA256.fullmatch(sha256):
        raise StoreError(f"not a sha256 in lower-case hex: {sha256!r}")
    return sha256


class MemoryBlobs:
    """Blobs that only this process has.

    >>> blobs = MemoryBlobs()
    >>> blobs.get(blobs.put(b"code"))
    b'code'
    """

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """Stores ``data``; returns its SHA-256 in hex."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._data[sha256] = bytes(data)
        return sha256

    def get(self, sha256: str) -> bytes | None:
        """Returns the bytes of a blob, or None."""
        return self._data.get(check_sha256(sha256))

    def map(self, sha256: str) -> memoryview | None:
        """Returns a read-only view of the bytes of a blob, or None."""
        data = self.get(sha256)
        return None if data is None else memoryview(data)

    def holds(self, sha256: str, size: int) -> bool:
        """Returns whether a blob of this name and size is here."""
        data = self.get(sha256)
        return data is not None and len(data) == size


class DiskBlobs:
    """Blobs under ``root/blobs``. Damaged ones are moved to ``root/damaged`` and count as absent.

    Many processes may use the folder at once: a blob is published by an atomic rename, and two writers of one name
    write the same bytes.
    """

    def __init__(self, root: Path, notices: Notices) -> None:
        self._root = root
        self._notices = notices

    def _path(self, sha256: str) -> Path:
        return self._root / "blobs" / check_sha256(sha256)[:2] / sha256

    def put(self, data: bytes) -> str:
        """Stores ``data`` durably; returns its SHA-256 in hex.

        Raises ``OSError`` if the disk refuses; stored blobs stay.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._path(sha256)
        try:
            present = private_size(path) == len(data) and read_private(path) == data
        except OSError:
            present = False
        if present:
            # A new time protects the blob from pruning until the caller has published the entry that refers to it.
            with contextlib.suppress(OSError):
                os.utime(path)
        else:
            publish(path, data)
        return sha256

    def get(self, sha256: str) -> bytes | None:
        """Returns the verified bytes of a blob; None if it is absent or damaged."""
        path = self._path(sha256)
        try:
            data = read_private(path)
        except OSError as error:
            self._unreadable(sha256, error)
            return None
        if not self._verified(sha256, data):
            return None
        with contextlib.suppress(OSError):
            self._note_use(path, path.stat().st_mtime)
        return data

    def map(self, sha256: str) -> memoryview | None:
        """Returns the verified bytes of a blob as a read-only view of the file's pages; None if absent or damaged.

        The view stays valid after the blob was pruned: files are replaced and unlinked, never written in place.
        """
        try:
            descriptor = open_private(self._path(sha256))
        except OSError as error:
            self._unreadable(sha256, error)
            return None
        try:
            status = os.fstat(descriptor)
            size = status.st_size
            # POSIX cannot map empty files
            view = memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)) if size else memoryview(b"")
        finally:
            os.close(descriptor)
        if not self._verified(sha256, view):
            return None
        self._note_use(self._path(sha256), status.st_mtime)
        return view

    @staticmethod
    def _note_use(path: Path, modified_s: float) -> None:
        """Sets the time of a blob's file to now, at most once a day: pruning removes the longest unused blobs first."""
        if time.time() - modified_s > _DAY_S:
            with contextlib.suppress(OSError):  # the store may be read-only
                os.utime(path)

    def holds(self, sha256: str, size: int) -> bool:
        """Returns whether this store has a file for a blob of this name and size; does not read the file.

        Another process may remove the file at any time.
        """
        return private_size(self._path(sha256)) == size

    def _unreadable(self, sha256: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            where = f" ({error.filename})" if isinstance(error, NotPrivateError) else ""
            self._notices.once(
                f"read {sha256}", f"blob {sha256} cannot be read: {error.strerror}{where}; taken as absent"
            )

    def _verified(self, sha256: str, data: bytes | memoryview) -> bool:
        if hashlib.sha256(data).hexdigest() == sha256:
            return True
        aside = set_aside(self._root, self._path(sha256))
        self._notices.once(
            f"damaged {sha256}",
            f"blob {sha256} in the store {self._root} is damaged (its sha256 differs); {aside}; it will be made again",
        )
        return False


def set_aside(root: Path, path: Path) -> str:
    """Moves a damaged file to ``root/damaged``; returns text for people about the result."""
    try:
        (root / "damaged").mkdir(mode=0o700, exist_ok=True)
        path.replace(root / "damaged" / path.name)
    except FileNotFoundError:
        return "another process has moved it already"
    except OSError as error:
        return f"it stays where it is ({error.strerror})"
    return "moved to damaged/"


class FallbackBlobs:
    """Blobs on disk, or in memory if the disk refuses. ``wrote`` is called with the bytes that a stored blob takes."""

    def __init__(self, write: DiskWrite, disk: DiskBlobs, wrote: Callable[[int], None] = lambda _: None) -> None:
        self._write = write
        self._disk = disk
        self._wrote = wrote
        self._memory = MemoryBlobs()

    def put(self, data: bytes) -> str:
        """Stores ``data``; returns its SHA-256 in hex."""
        sha256 = ""

        def action() -> None:
            nonlocal sha256
            sha256 = self._disk.put(data)

        if not self._write(action):
            return self._memory.put(data)
        self._wrote(disk_bytes(len(data)))
        return sha256

    def get(self, sha256: str) -> bytes | None:
        """Returns the verified bytes of a blob; None if it is absent or damaged."""
        data = self._memory.get(sha256)
        return self._disk.get(sha256) if data is None else data

    def map(self, sha256: str) -> memoryview | None:
        """Returns a read-only view of the verified bytes of a blob; None if it is absent or damaged."""
        view = self._memory.map(sha256)
        return self._disk.map(sha256) if view is None else view

    def holds(self, sha256: str, size: int) -> bool:
        """Returns whether the store seems to have a blob of this name and size; does not read the blob."""
        return self._memory.holds(sha256, size) or self._disk.holds(sha256, size)


class Entries(Protocol):
    """JSON documents by key (a SHA-256 in hex)."""

    def put(self, key: str, document: JSON) -> None:
        """Stores a document under ``key``, replacing any other."""
        ...

    def get(self, key: str) -> JSON:
        """Returns the document of a key, or None (a document itself is never None)."""
        ...

    def remove(self, key: str) -> None:
        """Removes the document of a key, if it exists."""
        ...


class MemoryEntries:
    """Entries that only this process has."""

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}

    def put(self, key: str, document: JSON) -> None:
        """Stores a document under ``key``, replacing any other."""
        self._documents[check_sha256(key)] = canonical_json(document)

    def get(self, key: str) -> JSON:
        """Returns the document of a key, or None."""
        text = self._documents.get(check_sha256(key))
        return None if text is None else parse_json(text)

    def remove(self, key: str) -> None:
        """Removes the document of a key, if it exists."""
        self._documents.pop(check_sha256(key), None)


class DiskEntries:
    """Entries in a directory of the store. A damaged one is moved to ``root/damaged`` and counts as absent.

    ``wrote`` is called with the bytes on disk of each entry that is put.
    """

    def __init__(self, root: Path, name: str, notices: Notices, wrote: Callable[[int], None] = lambda _: None) -> None:
        self._wrote = wrote
        self._root = root
        self._name = name
        self._notices = notices

    def _path(self, key: str) -> Path:
        return self._root / self._name / check_sha256(key)[:2] / f"{key}.json"

    def _scope(self, key: str) -> str:
        return f"{self._name}/{key}"

    def put(self, key: str, document: JSON) -> None:
        """Stores a document under ``key``, replacing any other. Raises ``OSError`` if the disk refuses."""
        line = encode_line(self._scope(key), document)
        publish(self._path(key), line)
        self._wrote(disk_bytes(len(line)))

    def get(self, key: str) -> JSON:
        """Returns the document of a key; None if it is absent or damaged."""
        path = self._path(key)
        try:
            data = read_private(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._notices.once(f"read {path}", f"{path} cannot be read: {error.strerror}; taken as absent")
            return None
        try:
            return decode_line(self._scope(key), data.removesuffix(b"\n"))
        except ValueError as error:
            aside = set_aside(self._root, path)
            self._notices.once(f"damaged {path}", f"{path} is damaged ({error}); {aside}; it will be made again")
            return None

    def remove(self, key: str) -> None:
        """Removes the document of a key, if it exists."""
        self._path(key).unlink(missing_ok=True)


class FallbackEntries:
    """Entries on disk, or in memory if the disk refuses."""

    def __init__(self, write: DiskWrite, disk: DiskEntries) -> None:
        self._write = write
        self._disk = disk
        self._memory = MemoryEntries()

    def put(self, key: str, document: JSON) -> None:
        """Stores a document under ``key``, replacing any other."""
        if self._write(lambda: self._disk.put(key, document)):
            self._memory.remove(key)
        else:
            self._memory.put(key, document)

    def get(self, key: str) -> JSON:
        """Returns the document of a key, or None."""
        document = self._memory.get(key)
        return self._disk.get(key) if document is None else document

    def remove(self, key: str) -> None:
        """Removes the document of a key, if it exists."""
        self._memory.remove(key)
        self._write(lambda: self._disk.remove(key))

"""Entries: one JSON document a key, replaced atomically (``<directory>/ab/<key>.json``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from silo.core.values import JSON, canonical_json, parse_json
from silo.forks import Notices
from silo.store.atomic_files import disk_bytes, publish
from silo.store.blobs import check_sha256, set_aside
from silo.store.privacy import read_private
from silo.store.records import DiskWrite, decode_line, encode_line

__all__ = ["DiskEntries", "Entries", "FallbackEntries", "MemoryEntries"]


class Entries(Protocol):
    """JSON documents by key (a sha256 in hex)."""

    def put(self, key: str, document: JSON) -> None:
        """Keep a document under ``key``, replacing any other."""
        ...

    def get(self, key: str) -> JSON:
        """The document, or None (documents themselves are never None)."""
        ...

    def remove(self, key: str) -> None:
        """Remove the document, if it exists."""
        ...


class MemoryEntries:
    """Entries of this process only."""

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}

    def put(self, key: str, document: JSON) -> None:
        """Keep a document under ``key``, replacing any other."""
        self._documents[check_sha256(key)] = canonical_json(document)

    def get(self, key: str) -> JSON:
        """The document, or None."""
        text = self._documents.get(check_sha256(key))
        return None if text is None else parse_json(text)

    def remove(self, key: str) -> None:
        """Remove the document, if it exists."""
        self._documents.pop(check_sha256(key), None)


class DiskEntries:
    """Entries in a directory of the store; a damaged one is moved to ``root/damaged`` and counts as absent.

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
        """Keep a document under ``key``, replacing any other. ``OSError`` when the disk refuses."""
        line = encode_line(self._scope(key), document)
        publish(self._path(key), line)
        self._wrote(disk_bytes(len(line)))

    def get(self, key: str) -> JSON:
        """The document, or None on a miss or a damaged entry."""
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
        """Remove the document, if it exists."""
        self._path(key).unlink(missing_ok=True)


class FallbackEntries:
    """Entries on disk, or in memory if the disk refuses."""

    def __init__(self, write: DiskWrite, disk: DiskEntries) -> None:
        self._write = write
        self._disk = disk
        self._memory = MemoryEntries()

    def put(self, key: str, document: JSON) -> None:
        """Keep a document under ``key``, replacing any other."""
        if self._write(lambda: self._disk.put(key, document)):
            self._memory.remove(key)
        else:
            self._memory.put(key, document)

    def get(self, key: str) -> JSON:
        """The document, or None."""
        document = self._memory.get(key)
        return self._disk.get(key) if document is None else document

    def remove(self, key: str) -> None:
        """Remove the document, if it exists."""
        self._memory.remove(key)
        self._write(lambda: self._disk.remove(key))

"""The fallback of a store whose disk refuses writes: results stay in memory, with one warning."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from silo.core.notices import Notices
from silo.core.values import JSON, canonical_json
from silo.store.blobs import DiskBlobs, MemoryBlobs
from silo.store.entries import DiskEntries, MemoryEntries
from silo.store.records import DiskRecords, MemoryRecords

__all__ = ["DiskGate", "FallbackBlobs", "FallbackEntries", "FallbackRecords"]


class DiskGate:
    """Lets writes through to the disk, after ``prepare``; reports the first refusal."""

    def __init__(self, root: Path, notices: Notices, prepare: Callable[[], None]) -> None:
        self._root = root
        self._notices = notices
        self._prepare = prepare

    def write(self, action: Callable[[], object]) -> bool:
        """Whether ``action`` reached the disk. A full disk is tried again next time: it may have been emptied."""
        try:
            self._prepare()
            action()
        except OSError as error:
            reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
            self._notices.once(
                "not kept",
                f"the store {self._root} cannot be written: {reason}; going on in memory, so results of this process "
                f"are lost at its end (set SILO_HOME to a writable directory, or free space with 'silo cache prune')",
            )
            return False
        return True


class FallbackBlobs:
    """Blobs on disk, or in memory where the disk refuses."""

    def __init__(self, gate: DiskGate, disk: DiskBlobs) -> None:
        self._gate = gate
        self._disk = disk
        self._memory = MemoryBlobs()

    def put(self, data: bytes) -> str:
        """Keep ``data``; its sha256 in hex."""
        sha256 = ""

        def action() -> None:
            nonlocal sha256
            sha256 = self._disk.put(data)

        return sha256 if self._gate.write(action) else self._memory.put(data)

    def get(self, sha256: str) -> bytes | None:
        """The verified bytes; None on a miss or a damaged entry."""
        data = self._memory.get(sha256)
        return self._disk.get(sha256) if data is None else data

    def map(self, sha256: str) -> memoryview | None:
        """A read-only view of the verified bytes; None on a miss or a damaged entry."""
        view = self._memory.map(sha256)
        return self._disk.map(sha256) if view is None else view

    def holds(self, sha256: str, size: int) -> bool:
        """Whether a blob of this name and size seems to be here."""
        return self._memory.holds(sha256, size) or self._disk.holds(sha256, size)


class FallbackRecords:
    """Records on disk, followed by records of this process that the disk refused."""

    def __init__(self, gate: DiskGate, disk: DiskRecords) -> None:
        self._gate = gate
        self._disk = disk
        self._memory = MemoryRecords()

    def append(self, key: str, record: JSON) -> None:
        """Add one record."""
        if not self._gate.write(lambda: self._disk.append(key, record)):
            self._memory.append(key, record)

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Add those records that the list does not hold yet."""
        if not self._gate.write(lambda: self._disk.extend(key, records)):
            here = {canonical_json(record) for record in self._disk.read(key)}
            self._memory.extend(key, [record for record in records if canonical_json(record) not in here])

    def read(self, key: str) -> Iterator[JSON]:
        """Every whole record of the key, in the order they were appended."""
        return chain(self._disk.read(key), self._memory.read(key))

    def keys(self) -> tuple[str, ...]:
        """The keys that have records, sorted."""
        return tuple(sorted({*self._disk.keys(), *self._memory.keys()}))


class FallbackEntries:
    """Entries on disk, or in memory where the disk refuses."""

    def __init__(self, gate: DiskGate, disk: DiskEntries) -> None:
        self._gate = gate
        self._disk = disk
        self._memory = MemoryEntries()

    def put(self, key: str, document: JSON) -> None:
        """Keep a document under ``key``, replacing any other."""
        if self._gate.write(lambda: self._disk.put(key, document)):
            self._memory.remove(key)
        else:
            self._memory.put(key, document)

    def get(self, key: str) -> JSON:
        """The document, or None."""
        document = self._memory.get(key)
        return self._disk.get(key) if document is None else document

    def remove(self, key: str) -> None:
        """Forget the document, if there is one."""
        self._memory.remove(key)
        self._gate.write(lambda: self._disk.remove(key))

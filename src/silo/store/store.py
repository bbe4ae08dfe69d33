"""The store: blobs, records, artifacts and trust under one directory, or in memory.

::

    silo-store.json             schema version
    blobs/ab/<sha256>           bytes by content
    artifacts/ab/<key>.json     artifact key -> artifact
    jobs/ab/<key>.json          job key -> outcome of a compile job
    records/<key>.jsonl         append-only records, one framed line each
    trust/{built,trusted}.jsonl host code that was built or trusted here
    damaged/                    what was found damaged and set aside

Nothing in the directory names its own place, so it can be moved or copied; every write is atomic, so many processes
use it at once and any of them may be killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import StoreError
from silo.forks import Mutex
from silo.store.artifacts import Artifacts, Blobs
from silo.store.blobs import DiskBlobs, MemoryBlobs
from silo.store.entries import DiskEntries, MemoryEntries
from silo.store.fallback import DiskGate, FallbackBlobs, FallbackEntries, FallbackRecords
from silo.store.files import publish
from silo.store.notices import Notices
from silo.store.records import DiskRecords, MemoryRecords
from silo.store.trust import TrustLedger

__all__ = ["SCHEMA_VERSION", "KeyedRecords", "MemoryStore", "Store", "StoreBase"]

SCHEMA_VERSION = 1
_SCHEMA_FILE = "silo-store.json"


class KeyedRecords(Protocol):
    """Append-only lists of records by key, with the keys known."""

    def append(self, key: str, record: JSON) -> None:
        """Add one record, atomically and durably."""
        ...

    def read(self, key: str) -> Iterator[JSON]:
        """Every whole record of the key, in the order they were appended."""
        ...

    def keys(self) -> tuple[str, ...]:
        """The keys that have records, sorted."""
        ...


class StoreBase:
    """What every store has: ``blobs``, ``records``, ``artifacts`` and ``trust``."""

    blobs: Blobs
    records: KeyedRecords
    artifacts: Artifacts
    trust: TrustLedger


class MemoryStore(StoreBase):
    """A store of this process only, with the interface of :class:`Store`.

    >>> store = MemoryStore()
    >>> store.blobs.get(store.blobs.put(b"code"))
    b'code'
    """

    root: Path | None = None

    def __init__(self) -> None:
        notices = Notices()
        self.blobs = MemoryBlobs()
        self.records = MemoryRecords()
        self.trust = TrustLedger(MemoryRecords(), notices)
        self.artifacts = Artifacts(MemoryEntries(), MemoryEntries(), self.blobs, self.trust, notices)


class Store(StoreBase):
    """A store in a directory, which is made at the first write.

    ``StoreError`` when the directory was written by a newer Silo. A directory that cannot be written is no error:
    what is kept there is used, new results stay in memory, and one warning says so.
    """

    def __init__(self, root: Path) -> None:
        self.root: Path | None = root.absolute()
        self._directory = root.absolute()
        self._lock = Mutex()
        self._prepared = False
        notices = Notices()
        self._check_schema()
        gate = DiskGate(self._directory, notices, self._prepare)
        self.blobs = FallbackBlobs(gate, DiskBlobs(self._directory, notices))
        self.records = FallbackRecords(gate, DiskRecords(self._directory / "records", notices))
        ledger = self._directory / "trust"
        self.trust = TrustLedger(FallbackRecords(gate, DiskRecords(ledger, notices)), notices, ledger)
        self.artifacts = Artifacts(
            FallbackEntries(gate, DiskEntries(self._directory, "artifacts", notices)),
            FallbackEntries(gate, DiskEntries(self._directory, "jobs", notices)),
            self.blobs,
            self.trust,
            notices,
        )

    def __repr__(self) -> str:
        return f"Store({str(self._directory)!r})"

    def _check_schema(self) -> bool:
        """Whether the schema file is there and known; ``StoreError`` when this Silo must not touch the store."""
        path = self._directory / _SCHEMA_FILE
        try:
            text = path.read_bytes()
        except OSError:
            return False
        try:
            document = parse_json(text)
            version = document["silo-store"] if isinstance(document, dict) else None
        except (ValueError, KeyError):
            version = None
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise StoreError(
                f"{path} is not the schema file of a store; move {self._directory} away, "
                f"or set SILO_HOME to another directory"
            )
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"the store {self._directory} was written by a newer Silo (schema {version}, this one knows up to "
                f"{SCHEMA_VERSION}); install that Silo, or set SILO_HOME to another directory"
            )
        return True

    def _prepare(self) -> None:
        with self._lock:
            if not self._prepared:
                if not self._check_schema():
                    publish(self._directory / _SCHEMA_FILE, canonical_json({"silo-store": SCHEMA_VERSION}) + b"\n")
                self._prepared = True

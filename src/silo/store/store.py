"""The store: blobs, records, artifacts and trust in one directory, or in memory.

::

    silo-store.json             schema version
    blobs/ab/<sha256>           bytes by content
    artifacts/ab/<key>.json     artifact key -> artifact
    jobs/ab/<key>.json          job key -> outcome of a compile job
    files/ab/<key>.json         files of another compiler's cache, of this machine alone
    records/<key>.jsonl         append-only records, one framed line each
    trust/{built,trusted}.jsonl host code that was built or trusted here; remotes.jsonl: remote stores
    damaged/                    damaged files that were set aside
    upkeep                      the lock of pruning processes, and the time of the last removal of losing configs' code
    size                        estimated bytes on disk: the last listing, and the bytes that processes wrote since
    counts.log                  numbers of look-ups that found code and that did not, a line for each process

No file in the directory names its path, so the directory can be moved or copied. Every write is atomic, so many
processes may use it at once and any of them may be killed. It belongs only to its user: a directory that others own or
may write is not used (:mod:`silo.store.privacy`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from silo.core.decisions import Decision, Rejected
from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import StoreError
from silo.forks import Mutex, Notices
from silo.settings import Settings
from silo.store.atomic_files import publish
from silo.store.privacy import NotPrivateError, examine, make_directory, read_private
from silo.store.records import DiskRecords, FallbackRecords, MemoryRecords
from silo.store.trust_ledger import TrustLedger

if TYPE_CHECKING:
    from silo.store.artifacts import Artifacts, Blobs, KeptFiles
    from silo.store.remote.client import RemoteClient
    from silo.store.remote.shared_parts import LocalRecords
    from silo.store.stored_objects import Entries
    from silo.store.upkeep import Counts, Upkeep

__all__ = [
    "SCHEMA_VERSION",
    "KeyedRecords",
    "MemoryStore",
    "Store",
    "StoreBase",
    "privacy_of",
    "remote_link",
    "store_of",
]

SCHEMA_VERSION = 1
_SCHEMA_FILE = "silo-store.json"
_NAMES = (_SCHEMA_FILE, "blobs", "artifacts", "jobs", "files", "records", "trust", "damaged")


class _DamagedError(OSError):
    """The schema file is damaged, so the store is neither read nor written. ``strerror`` is the remedy."""

    def __init__(self, path: Path) -> None:
        reason = (
            f"{path} is not the schema file of a store; remove that file if no newer Silo has written there, else move "
            f"{path.parent} away or set SILO_HOME to another directory"
        )
        super().__init__(errno.EINVAL, reason, str(path))


# Shared by all stores of the process: each set of settings opens a store, but a directory's fault is reported once.
_refused = Notices("silo.store")


def privacy_of(root: Path) -> Decision:
    """Decides whether a store in this directory can hold only this user's files; otherwise it must not be used."""
    return examine(root.absolute(), _NAMES)


class KeyedRecords(Protocol):
    """Append-only lists of records by key, whose keys can be listed."""

    def append(self, key: str, record: JSON) -> None:
        """Adds one record, atomically and durably."""
        ...

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Adds the record that ``judge`` returns, given all records of the key, and returns it; adds nothing for None.

        No other process adds a record in between. ``judge`` may be called more than once.
        """
        ...

    def read(self, key: str) -> Iterator[JSON]:
        """Yields every whole record of the key, in the order in which they were appended."""
        ...

    def keys(self) -> tuple[str, ...]:
        """Returns the keys that have records, sorted."""
        ...


class _Parts(NamedTuple):
    blobs: Blobs
    records: KeyedRecords
    artifacts: Artifacts
    files: KeptFiles


class StoreBase:
    """The parts that every store has: ``blobs``, ``records``, ``artifacts``, ``files`` and ``trust``.

    A program that launches from a bundle reads only ``trust``, so the other parts are made when one of them is first
    used.
    """

    trust: TrustLedger

    def __init__(self) -> None:
        self._parts: _Parts | None = None
        self._creation_lock = Mutex()

    @property
    def blobs(self) -> Blobs:
        """Bytes by content."""
        return self._opened_parts().blobs

    @property
    def records(self) -> KeyedRecords:
        """Append-only lists by key."""
        return self._opened_parts().records

    @property
    def artifacts(self) -> Artifacts:
        """Artifacts, and outcomes of compile jobs."""
        return self._opened_parts().artifacts

    @property
    def files(self) -> KeptFiles:
        """Files of another compiler's cache, of this machine alone."""
        return self._opened_parts().files

    def _opened_parts(self) -> _Parts:
        if self._parts is None:
            with self._creation_lock:
                if self._parts is None:
                    self._parts = self._make()
        return self._parts

    def _make(self) -> _Parts:
        raise NotImplementedError


def _in_memory(trust: TrustLedger, notices: Notices, link: RemoteClient | None = None) -> _Parts:
    from silo.store.stored_objects import (  # noqa: PLC0415  # programs that launch from a bundle do not need these
        MemoryBlobs,
        MemoryEntries,
    )

    entries = (MemoryEntries(), MemoryEntries(), MemoryEntries())
    return _assembled(MemoryBlobs(), MemoryRecords(), *entries, trust, notices, link)


def _assembled(
    blobs: Blobs,
    records: LocalRecords,
    artifacts: Entries,
    jobs: Entries,
    files: Entries,
    trust: TrustLedger,
    notices: Notices,
    link: RemoteClient | None,
    counts: Counts | None = None,
) -> _Parts:
    from silo.store.artifacts import Artifacts, KeptFiles  # noqa: PLC0415  # programs that launch from a bundle do not need these

    files_store = KeptFiles(files, blobs, notices)
    if link is None:
        return _Parts(blobs, records, Artifacts(artifacts, jobs, blobs, trust, notices, None, counts), files_store)
    from silo.store.remote.shared_parts import (  # noqa: PLC0415  # few programs have a remote store
        FetchedArtifacts,
        SharedBlobs,
        SharedRecords,
    )

    shared = SharedBlobs(blobs, link)
    fetched = FetchedArtifacts(link, artifacts, jobs, shared, trust)
    artifacts_store = Artifacts(artifacts, jobs, shared, trust, notices, fetched, counts)
    return _Parts(shared, SharedRecords(records, link), artifacts_store, files_store)


class MemoryStore(StoreBase):
    """A store that only this process has, with the interface of :class:`Store`.

    >>> store = MemoryStore()
    >>> store.blobs.get(store.blobs.put(b"code"))
    b'code'
    """

    root: Path | None = None

    def __init__(self) -> None:
        super().__init__()
        self.trust = TrustLedger(MemoryRecords())

    def tidy(self) -> None:
        """Does nothing, because the store ends with its process."""

    def _make(self) -> _Parts:
        return _in_memory(self.trust, Notices("silo.store"))


class Store(StoreBase):
    """A store in a directory, which is made at the first write.

    Raises ``StoreError`` if a newer Silo wrote the directory. Other faults raise nothing, but lead to a warning. If
    this user cannot write the directory, its entries are used, and new results stay in memory. If other users may write
    the directory, or its schema file is damaged, it is not read, and all results stay in memory; the warning names the
    path and the remedy. With ``link``, the client of a remote store, missing entries are fetched from that store, and
    new results are sent to it.
    """

    def __init__(self, root: Path, link: RemoteClient | None = None) -> None:
        super().__init__()
        self.root: Path | None = root.absolute()
        self.link = link
        self._directory = root.absolute()
        self._lock = Mutex()
        self._prepared = False
        self._upkeep: Upkeep | None = None
        self.unused: str = ""  # the reason why the directory is not used; "" if it is used
        self._notices = Notices("silo.store")
        self.trust = TrustLedger(MemoryRecords())
        private = privacy_of(self._directory)
        if isinstance(private, Rejected):
            self.unused = private.reason
            _refused.once(
                f"{self._directory} {private.reason}",
                f"the store {self._directory} is not used, for what it holds could be somebody else's: "
                f"{private.reason}. Going on in memory: results of this process are lost at its end",
            )
            return
        try:
            self._check_schema()
        except _DamagedError as error:
            self.unused = str(error.strerror)
            _refused.once(
                f"{self._directory} is damaged",
                f"the store {self._directory} is not used: {error.strerror}. Going on in memory: results of this "
                "process are lost at its end",
            )
            return
        ledger = self._directory / "trust"
        self.trust = TrustLedger(FallbackRecords(self._write, DiskRecords(ledger, self._notices)), ledger)

    def _make(self) -> _Parts:
        if self.unused:
            return _in_memory(self.trust, self._notices, self.link)
        from silo.store.stored_objects import DiskBlobs, DiskEntries, FallbackBlobs, FallbackEntries  # noqa: PLC0415  # programs that launch from a bundle do not need these  # noqa: PLC0415
        from silo.store.upkeep import Counts, Upkeep  # noqa: PLC0415

        write, root, notices = self._write, self._directory, self._notices
        self._upkeep = upkeep = Upkeep(root, DiskRecords(root / "records", notices), notices)
        records = FallbackRecords(write, DiskRecords(root / "records", notices, upkeep.note))
        return _assembled(
            FallbackBlobs(write, DiskBlobs(root, notices), upkeep.wrote),
            records,
            FallbackEntries(write, DiskEntries(root, "artifacts", notices, upkeep.note)),
            FallbackEntries(write, DiskEntries(root, "jobs", notices, upkeep.note)),
            FallbackEntries(write, DiskEntries(root, "files", notices, upkeep.note)),
            self.trust,
            notices,
            self.link,
            Counts(root),
        )

    def tidy(self) -> None:
        """Removes code that the store need not keep (:class:`silo.store.upkeep.Upkeep`).

        Called after a tuning session.
        """
        if self._upkeep is not None:
            self._upkeep.tidy()

    def __repr__(self) -> str:
        return f"Store({str(self._directory)!r})"

    def _check_schema(self) -> bool:
        """Returns whether the schema file exists. Raises ``StoreError`` if a newer Silo wrote the store.

        Raises:
            _DamagedError: the file is not a schema file.
        """
        path = self._directory / _SCHEMA_FILE
        try:
            text = read_private(path)
        except OSError:
            return False
        try:
            document = parse_json(text)
            version = document["silo-store"] if isinstance(document, dict) else None
        except (ValueError, KeyError):
            version = None
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise _DamagedError(path)
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"the store {self._directory} was written by a newer Silo (schema {version}, this one knows up to "
                f"{SCHEMA_VERSION}); install that Silo, or set SILO_HOME to another directory"
            )
        return True

    def _write(self, action: Callable[[], object]) -> bool:
        """Runs ``action``, which writes to the disk; returns whether it succeeded.

        Every call tries again, because a full disk may have been emptied.
        """
        try:
            self._prepare()
            action()
        except OSError as error:
            reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
            self._notices.once(
                "not kept",
                f"the store {self._directory} cannot be written: {reason}; going on in memory, so results of this "
                "process are lost at its end (set SILO_HOME to a writable directory, or free space with 'silo cache "
                "prune')",
            )
            return False
        return True

    def _prepare(self) -> None:
        with self._lock:
            if not self._prepared:
                # The directory is checked after it exists, because another process may have made it.
                make_directory(self._directory)
                private = privacy_of(self._directory)
                if isinstance(private, Rejected):
                    raise NotPrivateError(private.reason, self._directory)
                if not self._check_schema():
                    publish(self._directory / _SCHEMA_FILE, canonical_json({"silo-store": SCHEMA_VERSION}) + b"\n")
                self._prepared = True


# ---- The store of a process ----


def remote_link(current: Settings) -> RemoteClient | None:
    """Returns the client of the remote store, without connecting to it; None without a remote store.

    Settings with the same address, mode and key share one client, because a fault turns the client off for all of them.
    """
    if current.remote is None:
        return None
    from silo.store.remote.address import RemoteAddress  # noqa: PLC0415  # few programs have a remote store
    from silo.store.remote.client import RemoteClient  # noqa: PLC0415
    from silo.store.remote.signed_outcomes import Sealer  # noqa: PLC0415

    address, writes, key = RemoteAddress.parse(current.remote), current.remote_mode == "write", current.remote_key
    with _lock:
        link = _links.get((address.address, writes, key))
        if link is None:
            sealer = None if key is None else Sealer(Path(key))
            link = _links[address.address, writes, key] = RemoteClient(address, writes=writes, sealer=sealer)
        return link


_links: dict[tuple[str, bool, str | None], RemoteClient] = {}
_lock = Mutex()
_stores: dict[Settings, Store] = {}


def store_of(current: Settings) -> Store:
    """Returns the store of these settings. A process opens one store for each set of settings."""
    link = remote_link(current)
    with _lock:
        store = _stores.get(current)
        if store is None:
            store = _stores[current] = Store(current.store_folder, link)
        return store

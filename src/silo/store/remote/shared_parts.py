"""The parts of a store that several machines share: blobs, records, artifacts and outcomes of compile jobs.

Reads use only the local disk. A caller that needs other machines' records first calls :meth:`SharedRecords.catch_up`: a
tuning session does, and so does a kernel's first call without any local records.

Each object that arrives is verified and stored before it is used. Native code is treated differently, because everybody
who may write to the remote store could have it run here. So an artifact of native code is never fetched. The outcome of
its compile job is fetched if this user trusts the remote store or the key that signed the outcome. The job's key
covers the text that this process lowered, so the outcome is code for exactly that text, and this process itself
describes how the code is called.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

from silo.artifacts.artifact import Artifact, BlobRef
from silo.core.consent import HostCode
from silo.core.decisions import Rejected
from silo.core.values import JSON
from silo.errors import SiloError
from silo.forks import Mutex, in_child
from silo.frozen import replace
from silo.store.artifacts import Blobs, Outcome
from silo.store.records import decode_line, encode_line
from silo.store.remote.client import RemoteClient
from silo.store.remote.object_protocol import (
    MOST_BLOB_BYTES,
    MOST_LINE_BYTES,
    blob_name,
    entry_name,
    is_record_digest,
    record_name,
    records_of,
)
from silo.store.remote.upload_queue import MOST_FOLDED, digest_of, is_fold, line_of, verified_fold, verified_line
from silo.store.stored_objects import Entries

if TYPE_CHECKING:
    from silo.store.signatures import KeyEntry

__all__ = ["ArrivalsLedger", "FetchedArtifacts", "LocalRecords", "SharedBlobs", "SharedRecords"]

_EVERY_S = 3.0  # the least seconds between two fetches of a session
_SHARE = 40  # the pause after a fetch is at least this many times as long as the fetch took


class LocalRecords(Protocol):
    """Records on disk or in memory."""

    def append(self, key: str, record: JSON) -> None:
        """Adds one record, atomically and durably."""
        ...

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Adds the records that the list does not hold yet, atomically and durably."""
        ...

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Adds the record that ``judge`` returns, given all records of the key. If it returns None, nothing is added.

        Other processes that add a record wait meanwhile.
        """
        ...

    def read(self, key: str) -> Iterator[JSON]:
        """Yields every whole record of the key, in the order in which they were appended."""
        ...

    def keys(self) -> tuple[str, ...]:
        """Returns the keys that have records, sorted."""
        ...


class SharedRecords:
    """The records of this machine, to which the remote store's records are added on request."""

    def __init__(self, local: LocalRecords, client: RemoteClient) -> None:
        self._local = local
        self._client = client
        self._lock = Mutex()
        self._requested: set[str] = set()
        self._followed: set[str] = set()
        self._due_s = 0.0  # the time of the next fetch; infinite during a fetch
        in_child(self._in_child)
        self._joining = Mutex()  # guards the members below
        self._lines: dict[str, dict[str, None]] = {}  # by key: digests of this machine's lines, in order
        self._folds: dict[str, dict[str, frozenset[str]]] = {}  # by key and name: the lines of each fold that was read

    def _in_child(self) -> None:
        self._due_s = 0.0  # a fetch in progress belongs to the parent process, so this child may fetch at once

    def append(self, key: str, record: JSON) -> None:
        """Adds one record to this machine's list, and sends the record to the remote store."""
        self._local.append(key, record)
        self._send(key, line_of(key, record))

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Adds the record that ``judge`` returns, given this machine's records of the key, and sends the record.

        If ``judge`` returns None, nothing is added.
        """
        record = self._local.append_judged(key, judge)
        if record is not None:
            self._send(key, line_of(key, record))
        return record

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Adds the records that this machine's list does not hold yet. Sends nothing."""
        self._local.extend(key, records)

    def read(self, key: str) -> Iterator[JSON]:
        """Returns every whole record of this machine. From time to time, starts fetching other machines' records.

        Other machines' records are fetched on another thread, and only for keys that :meth:`catch_up` follows; a later
        call returns them.
        """
        if key in self._followed and time.monotonic() >= self._due_s and not self._client.off:
            self._due_s = float("inf")  # infinite until this fetch has ended
            self._client.submit(lambda: self._look_again(key))
        return self._local.read(key)

    def _look_again(self, key: str) -> None:
        begin = time.monotonic()
        try:
            self._join((key,))
        except SiloError as error:
            self._client.tell_once("look", f"is not looked at again in this process: {error}")
            self._followed.discard(key)
        finally:
            now = time.monotonic()
            self._due_s = now + max(_EVERY_S, _SHARE * (now - begin))

    def keys(self) -> tuple[str, ...]:
        """Returns the keys that have records here, sorted."""
        return self._local.keys()

    def catch_up(self, keys: Sequence[str], *, follow: bool = False) -> bool:
        """Fetches other machines' records of these keys, once per process; returns whether any were new.

        With ``follow`` the records are fetched even if this process fetched them before, and again from time to time
        when the first of the keys is read.
        Local records that the remote store lacks are sent.
        """
        with self._lock:
            new = [key for key in keys if follow or key not in self._requested]
            self._requested.update(new)
        if follow:
            self._followed.add(keys[0])
            self._due_s = time.monotonic() + _EVERY_S
        return self._join(new) if new else False

    def _join(self, keys: Sequence[str]) -> bool:
        if self._client.off or "records" not in self._client.parts:
            return False
        listings = self._client.list_each([records_of(key) for key in keys])
        added = 0
        for key in keys:
            listing = listings[records_of(key)]
            new_records, names_there = self.take_in(key, listing.names)
            added += new_records
            if listing.whole and names_there is not None:
                self._send_missing(key, names_there)
        return added > 0

    def take_in(self, key: str, names: Sequence[str]) -> tuple[int, set[str] | None]:
        """Stores the records of a key that ``names`` lists and this store lacks.

        Returns the number of new records, and the digests of the remote lines; None in place of the digests if a fold
        could not be read in time.
        """
        with self._joining:
            return self._taken_in(key, names)

    def _taken_in(self, key: str, names: Sequence[str]) -> tuple[int, set[str] | None]:
        # called first, because _digests forgets the folds if the list was emptied
        own_digests = self._digests(key).keys()
        folds = self._folds.setdefault(key, {})
        folded = [name for name in names if is_fold(name)]
        records: dict[str, JSON] = {}
        for name, data in self._fetched(
            key, [name for name in folded if name not in folds or not folds[name] <= own_digests], MOST_FOLDED
        ):
            try:
                lines = verified_fold(key, name, data)
            except ValueError as error:
                self._client.lie(f"{records_of(key)}/{name}", str(error))
                lines = {}
            folds[name] = frozenset(lines)
            records.update(lines)
        alone = {name for name in names if is_record_digest(name)}
        for name, data in self._fetched(key, sorted(alone - own_digests - records.keys()), MOST_LINE_BYTES):
            try:
                records[name] = verified_line(key, name, data)
            except ValueError as error:
                self._client.lie(record_name(key, name), str(error))
            else:
                self._client.knows(record_name(key, name))
        new = [record for digest, record in records.items() if digest not in own_digests]
        if new:
            self._local.extend(key, new)
        digests = alone.union(*(folds[name] for name in folded if name in folds))
        return len(new), digests if all(name in folds for name in folded) else None

    def _fetched(self, key: str, names: Sequence[str], most: int) -> Iterator[tuple[str, bytes]]:
        """Yields the objects of a list that arrive in time, as pairs of the last part of the name and the bytes."""
        objects = self._client.get_each([f"{records_of(key)}/{name}" for name in names], most)
        return ((name.rpartition("/")[2], data) for name, data in objects.items())

    def _digests(self, key: str) -> dict[str, None]:
        """Returns the digests of the local lines, computed only for lines that were added since the last call."""
        digests = self._lines.setdefault(key, {})
        records = list(self._local.read(key))
        if len(records) < len(digests):  # the list was emptied
            digests.clear()
            self._folds.pop(key, None)
        fresh = {digest_of(line_of(key, record)): None for record in records[len(digests) :]}
        digests.update(fresh)
        if len(digests) != len(records):  # another process added copies of lines: compute all
            digests = self._lines[key] = {digest_of(line_of(key, record)): None for record in records}
        return digests

    def _send_missing(self, key: str, present: set[str]) -> None:
        with self._joining:
            missing = self._digests(key).keys() - present
        for record in self._local.read(key) if missing and self._client.sends else ():
            line = line_of(key, record)
            if digest_of(line) in missing:
                self._send(key, line)

    def _send(self, key: str, line: bytes) -> None:
        if self._client.sends and len(line) <= MOST_LINE_BYTES:
            self._client.send(record_name(key, digest_of(line)), line)


class SharedBlobs:
    """The blobs of this machine; missing ones are fetched from the remote store."""

    def __init__(self, local: Blobs, client: RemoteClient) -> None:
        self._local = local
        self._client = client
        self._absent: set[str] = set()  # blobs that the remote store lacks too, as far as this process knows

    def put(self, data: bytes) -> str:
        """Stores ``data`` on this machine, and sends it to the remote store; returns its SHA-256 in hex."""
        sha256 = self._local.put(data)
        if len(data) <= MOST_BLOB_BYTES:
            self._client.send(blob_name(sha256), bytes(data))
        return sha256

    def get(self, sha256: str) -> bytes | None:
        """Returns the verified bytes of a blob; None if neither store has it."""
        data = self._local.get(sha256)
        if data is None and self._fetched(sha256, MOST_BLOB_BYTES):
            data = self._local.get(sha256)
        return data

    def map(self, sha256: str) -> memoryview | None:
        """Returns a read-only view of the verified bytes of a blob; None if neither store has it."""
        view = self._local.map(sha256)
        if view is None and self._fetched(sha256, MOST_BLOB_BYTES):
            view = self._local.map(sha256)
        return view

    def holds(self, sha256: str, size: int) -> bool:
        """Returns whether this machine has a blob of this name and size; fetches the blob first if it is missing."""
        return self._local.holds(sha256, size) or self._fetched(sha256, size)

    def bring(self, blobs: Iterable[tuple[str, int]]) -> None:
        """Fetches the blobs, each with its size, that are missing here, in parallel."""
        missing = [(sha256, size) for sha256, size in dict(blobs).items() if not self._local.holds(sha256, size)]
        for sha256, size in missing if len(missing) > 1 else ():
            if size <= MOST_BLOB_BYTES and sha256 not in self._absent:
                self._client.expect([blob_name(sha256)], size)
        for sha256, size in missing:
            self._fetched(sha256, size)

    def _fetched(self, sha256: str, most: int) -> bool:
        if most > MOST_BLOB_BYTES or self._client.off or sha256 in self._absent:
            return False
        name = blob_name(sha256)
        data = self._client.get(name, most)
        if data is None:
            self._absent.add(sha256)
            return False
        if hashlib.sha256(data).hexdigest() != sha256:
            self._absent.add(sha256)
            self._client.lie(name, "its sha256 differs")
            return False
        self._local.put(data)
        self._client.knows(name)
        return True


T = TypeVar("T")


class ArrivalsLedger(Protocol):
    """The part of the trust ledger that fetching artifacts uses: the trusted keys and stores, and the trusted code."""

    def trusts_remote(self, name: str) -> bool:
        """Returns whether this user trusts a remote store by ``silo trust --remote``."""
        ...

    def trusted_keys(self) -> tuple[KeyEntry, ...]:
        """Returns the keys whose signatures are trusted."""
        ...

    def note_trusted(self, codes: Iterable[tuple[HostCode, str]], origin: str) -> int:
        """Records consent to native code that came from ``origin``; returns the number of new entries."""
        ...


class FetchedArtifacts:
    """Implements :class:`silo.store.artifacts.FromAfar`: fetches artifacts and outcomes of jobs, and sends them."""

    def __init__(
        self, client: RemoteClient, artifacts: Entries, jobs: Entries, blobs: SharedBlobs, ledger: ArrivalsLedger
    ) -> None:
        self._client = client
        self._entries = {"artifacts": artifacts, "jobs": jobs}
        self._blobs = blobs
        self._ledger = ledger
        self._absent: set[str] = set()

    def expect(self, keys: Sequence[str]) -> None:
        """Begins to fetch the artifacts of these keys."""
        if not self._client.off:
            names = (entry_name("artifacts", key) for key in keys if self._entries["artifacts"].get(key) is None)
            self._client.expect([name for name in names if name not in self._absent], MOST_LINE_BYTES)

    @property
    def asks(self) -> bool:
        """Whether the remote store can be used."""
        return not self._client.off

    def has_come(self, key: str) -> bool:
        """Returns whether the object that was expected for a key has arrived. It is not verified yet."""
        return self._client.has_come(entry_name("artifacts", key))

    def submit(self, step: Callable[[], T]) -> Future[T]:
        """See :meth:`silo.store.artifacts.FromAfar.submit`."""
        return self._client.submit(step)

    def artifact(self, key: str) -> Artifact | None:
        """Fetches the artifact of a key and stores it here; None if it is missing or may not be used."""
        fetched = self._document("artifacts", key, "artifact", Artifact.from_json)
        if fetched is None:
            return None
        document, artifact = fetched
        bare = replace(artifact.variant, signature=artifact.variant.signature.without_effects())
        if key not in (artifact.variant.artifact_key(artifact.compiler), bare.artifact_key(artifact.compiler)):
            self._client.lie(entry_name("artifacts", key), "it is the artifact of another variant")
            return None
        if artifact.runs_on_host:
            return None  # artifacts of native code are never fetched, as the module's text explains
        self._entries["artifacts"].put(key, document)
        return artifact

    def outcome(self, key: str) -> Outcome | None:
        """Fetches the outcome of a compile job and stores it here; None if it is missing or may not be used."""
        fetched = self._document("jobs", key, "job", Outcome.from_json)
        if fetched is None:
            return None
        document, outcome = fetched
        if outcome.runs_on_host:
            name = self._client.place.name
            sealed = self._sealed(key)
            if sealed is not None:
                document, outcome, origin = sealed
            elif self._ledger.trusts_remote(name):
                origin = name
            else:
                self._client.tell_once(
                    "native code",
                    "has native code that is not used and compiled again, for nobody here vouched for it. If you know "
                    f"all who write there: silo trust --remote {name}; if you know who signs it: silo trust --key",
                )
                return None
            self._ledger.note_trusted([(outcome.host_code, outcome.launch.entry)], origin)
        self._entries["jobs"].put(key, document)
        return outcome

    def _sealed(self, key: str) -> tuple[JSON, Outcome, str] | None:
        """Fetches the signed outcome of a job; returns it with a note about its origin.

        Returns None if no trusted key signed the outcome.
        """
        trusted = self._ledger.trusted_keys()
        if not trusted:
            return None
        from silo.core.minisign import PublicKey  # noqa: PLC0415  # few users trust a key
        from silo.store.remote.signed_outcomes import MOST_SEAL_BYTES, opened, seal_name, sealed_origin  # noqa: PLC0415

        for public in [PublicKey.parse(entry.text) for entry in trusted]:
            name = seal_name(key, public.id)
            data = self._client.get(name, MOST_SEAL_BYTES)
            if data is None:
                continue
            line = opened(key, data, public)
            if isinstance(line, Rejected):
                self._client.lie(name, line.reason)
                continue
            try:
                document = decode_line(f"jobs/{key}", line.removesuffix(b"\n"))
                outcome = Outcome.from_json(_value(document, "job"))
            except (ValueError, KeyError, TypeError, AttributeError, SiloError) as error:
                self._client.lie(name, str(error))
                continue
            return document, outcome, sealed_origin(public.id)
        return None

    def bring(self, refs: Sequence[BlobRef]) -> None:
        """Fetches the blobs that are missing here."""
        if not self._client.off:
            self._blobs.bring((ref.sha256, ref.size) for ref in refs)

    def send(self, part: str, key: str, document: JSON) -> None:
        """Sends a document that was stored here; the outcome of a job also in its signed form."""
        if self._client.sends:
            line = encode_line(f"{part}/{key}", document)
            if len(line) <= MOST_LINE_BYTES:
                self._client.send(entry_name(part, key), line)
                if part == "jobs":
                    self._client.send_sealed(key, line)

    def _document(self, part: str, key: str, label: str, decode: Callable[[JSON], T]) -> tuple[JSON, T] | None:
        name = entry_name(part, key)
        if self._client.off or name in self._absent:
            return None
        line = self._client.get(name, MOST_LINE_BYTES)
        if line is None:
            self._absent.add(name)  # not requested again by this process, which compiles missing code itself
            return None
        try:
            document = decode_line(f"{part}/{key}", line.removesuffix(b"\n"))
            decoded = decode(_value(document, label))
        except (ValueError, KeyError, TypeError, AttributeError, SiloError) as error:
            self._absent.add(name)
            self._client.lie(name, str(error))
            return None
        self._client.knows(name)
        return document, decoded


def _value(document: JSON, label: str) -> JSON:
    if not isinstance(document, dict) or document.get("schema") != f"{label}/1":
        raise ValueError(f"its schema is not {label}/1")
    return document["value"]

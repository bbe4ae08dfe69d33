"""Records of several machines: each an immutable object named by its sha256, and a list is the union of all.

Reads use the local disk alone. To see other machines' records a caller first runs :meth:`SharedRecords.catch_up`, as
the first call without any records and a tuning session do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from silo.core.values import JSON
from silo.errors import SiloError
from silo.forks import Mutex, in_child
from silo.store.remote.client import RemoteClient
from silo.store.remote.object_protocol import MOST_LINE_BYTES, is_record_digest, record_name, records_of
from silo.store.remote.record_log import MOST_FOLDED, digest_of, is_fold, line_of, verified_fold, verified_line

__all__ = ["LocalRecords", "SharedRecords"]

_EVERY_S = 3.0  # how often a session looks again, at most
_SHARE = 40  # one request takes at most this part of the time


class LocalRecords(Protocol):
    """Records on disk or in memory."""

    def append(self, key: str, record: JSON) -> None:
        """Add one record, atomically and durably."""
        ...

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Add those records that the list does not hold yet, atomically and durably."""
        ...

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Add the record that ``judge`` returns for all records of the key, while others' additions wait.

        None adds nothing.
        """
        ...

    def read(self, key: str) -> Iterator[JSON]:
        """Every whole record of the key, in the order they were appended."""
        ...

    def keys(self) -> tuple[str, ...]:
        """The keys that have records, sorted."""
        ...


class SharedRecords:
    """The records of this machine, joined by the remote store's when they are requested."""

    def __init__(self, local: LocalRecords, client: RemoteClient) -> None:
        self._local = local
        self._client = client
        self._lock = Mutex()
        self._asked: set[str] = set()
        self._followed: set[str] = set()
        self._due_s = 0.0  # infinite while a thread reads
        in_child(self._in_child)
        self._joining = Mutex()  # guards the members below
        self._lines: dict[str, dict[str, None]] = {}  # digests of this machine's lines, in order, by key
        self._folds: dict[str, dict[str, frozenset[str]]] = {}  # the lines of each fold that was read, by key and name

    def _in_child(self) -> None:
        self._due_s = 0.0  # a request in progress belongs to the parent

    def append(self, key: str, record: JSON) -> None:
        """Add one record here, and send it."""
        self._local.append(key, record)
        self._send(key, line_of(key, record))

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Add the record that ``judge`` returns for the records of this machine, and send it; None adds nothing."""
        record = self._local.append_judged(key, judge)
        if record is not None:
            self._send(key, line_of(key, record))
        return record

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Add those records that the list does not hold yet, here alone."""
        self._local.extend(key, records)

    def read(self, key: str) -> Iterator[JSON]:
        """Every complete record of this machine; other machines' records of a followed key are added from time to time.

        They are fetched beside the reader's work, and a later read finds them.
        """
        if key in self._followed and time.monotonic() >= self._due_s and not self._client.off:
            self._due_s = float("inf")  # until this request has ended
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
        """The keys that have records here, sorted."""
        return self._local.keys()

    def catch_up(self, keys: Sequence[str], *, follow: bool = False) -> bool:
        """Take in what other machines have kept under these keys, once a process; whether anything was new.

        With ``follow`` it is taken in now, and again as the first of the keys is read. Local records that the remote
        store lacks are sent.
        """
        with self._lock:
            new = [key for key in keys if follow or key not in self._asked]
            self._asked.update(new)
        if follow:
            self._followed.add(keys[0])
            self._due_s = time.monotonic() + _EVERY_S
        return self._join(new) if new else False

    def _join(self, keys: Sequence[str]) -> bool:
        if self._client.off or "records" not in self._client.parts:
            return False
        found = self._client.list_each([records_of(key) for key in keys])
        added = 0
        for key in keys:
            listing = found[records_of(key)]
            taken, there = self.take_in(key, listing.names)
            added += taken
            if listing.whole and there is not None:
                self._send_missing(key, there)
        return added > 0

    def take_in(self, key: str, names: Sequence[str]) -> tuple[int, set[str] | None]:
        """Keep the records that a key's listing names and this store lacks.

        Returns the number of new records, and the remote lines.

        They are unknown (None) if one of the folds could not be read in time.
        """
        with self._joining:
            return self._taken_in(key, names)

    def _taken_in(self, key: str, names: Sequence[str]) -> tuple[int, set[str] | None]:
        here = self._digests(key).keys()  # comes first: it forgets the known folds if the list was emptied
        folds = self._folds.setdefault(key, {})
        folded = [name for name in names if is_fold(name)]
        records: dict[str, JSON] = {}
        for name, data in self._fetched(
            key, [name for name in folded if name not in folds or not folds[name] <= here], MOST_FOLDED
        ):
            try:
                lines = verified_fold(key, name, data)
            except ValueError as error:
                self._client.lie(f"{records_of(key)}/{name}", str(error))
                lines = {}
            folds[name] = frozenset(lines)
            records.update(lines)
        alone = {name for name in names if is_record_digest(name)}
        for name, data in self._fetched(key, sorted(alone - here - records.keys()), MOST_LINE_BYTES):
            try:
                records[name] = verified_line(key, name, data)
            except ValueError as error:
                self._client.lie(record_name(key, name), str(error))
            else:
                self._client.knows(record_name(key, name))
        new = [record for digest, record in records.items() if digest not in here]
        if new:
            self._local.extend(key, new)
        there = alone.union(*(folds[name] for name in folded if name in folds))
        return len(new), there if all(name in folds for name in folded) else None

    def _fetched(self, key: str, names: Sequence[str], most: int) -> Iterator[tuple[str, bytes]]:
        """Objects of a list by the last parts of their names, as far as they arrive in time."""
        found = self._client.get_each([f"{records_of(key)}/{name}" for name in names], most)
        return ((name.rpartition("/")[2], data) for name, data in found.items())

    def _digests(self, key: str) -> dict[str, None]:
        """The digests of the local lines; lines that were read are not read again."""
        known = self._lines.setdefault(key, {})
        records = list(self._local.read(key))
        if len(records) < len(known):  # emptied meanwhile
            known.clear()
            self._folds.pop(key, None)
        fresh = {digest_of(line_of(key, record)): None for record in records[len(known) :]}
        known.update(fresh)
        if len(known) != len(records):  # another process's copies: begin anew
            known = self._lines[key] = {digest_of(line_of(key, record)): None for record in records}
        return known

    def _send_missing(self, key: str, there: set[str]) -> None:
        with self._joining:
            missing = self._digests(key).keys() - there
        for record in self._local.read(key) if missing and self._client.sends else ():
            line = line_of(key, record)
            if digest_of(line) in missing:
                self._send(key, line)

    def _send(self, key: str, line: bytes) -> None:
        if self._client.sends and len(line) <= MOST_LINE_BYTES:
            self._client.send(record_name(key, digest_of(line)), line)

"""Pruning of a remote store, and leases, which keep other processes from pruning while one process reads many objects.

Nothing is removed while another process holds a lease: leases are checked before and between batches. A process without
a lease that finds an object missing compiles it again. Trials are never removed. Blobs that no entry names are not
removed either, because a process may be about to send the entry.

``silo tune`` and ``silo cache pull`` hold a lease, and so does a pruning. The lease of a killed process ends at the
time in its name.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from silo.artifacts.artifact import Artifact, BlobRef
from silo.errors import RemoteError, SiloError, StoreError
from silo.frozen import frozen
from silo.store.artifacts import Outcome
from silo.store.records import MemoryRecords, decode_line
from silo.store.remote.client import RemoteClient
from silo.store.remote.copying import pull_records
from silo.store.remote.object_protocol import MOST_LINE_BYTES, blob_name, entry_name
from silo.store.remote.shared_parts import SharedRecords
from silo.store.upkeep import losing_artifacts
from silo.store.usage import Pruned
from silo.tuner.ledger import dated_trials, every_study

__all__ = [
    "LEASE_S",
    "Lease",
    "LeaseHolder",
    "holding_lease",
    "leases_of",
    "plan_pruning",
    "prune_remote",
    "refuse_while_used",
    "remote_records",
]

LEASE_S = 900
_SKEW_S = 60  # the clocks of machines are assumed to differ by less than this
_NAME = re.compile(r"([0-9]{10,12})-([a-z]+)-([A-Za-z0-9.]{1,60})-([0-9a-f]{12})")


@frozen
class Lease:
    """A lease, read from its name: its end in seconds of Unix time, its purpose, the host, and the object's name."""

    until_s: int
    use: str
    host: str
    name: str

    @property
    def text(self) -> str:
        """The lease as text for messages."""
        until = time.strftime("%H:%M:%S", time.gmtime(self.until_s))
        return f"silo {self.use} on {self.host}, until {until} UTC at the latest"


class LeaseHolder:
    """A lease of this process; :meth:`keep` renews it from time to time."""

    def __init__(self, client: RemoteClient, use: str, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        host = re.sub(r"[^A-Za-z0-9.]", ".", os.uname().nodename)[:60] or "unknown"
        self._name_end = f"{use}-{host}-{secrets.token_hex(6)}"
        self._names: list[str] = []
        self._due_s = 0.0

    @property
    def rest(self) -> str:
        """The common end of the names of the lease's objects; each renewal adds a new object."""
        return self._name_end

    def begin(self) -> bool:
        """Adds the lease now. Returns False if the remote store does not accept it."""
        return self._client.put_each([self._next()]) == 1

    def keep(self) -> None:
        """Renews the lease in the background, once a third of its time has passed."""
        if self._client.sends and time.monotonic() >= self._due_s:
            self._client.send(*self._next())

    def end(self) -> None:
        """Removes the lease."""
        if self._names and self._client.sends:
            self._client.remove_each(self._names)

    def _next(self) -> tuple[str, bytes]:
        self._due_s = time.monotonic() + self._seconds / 3
        name = f"leases/{int(time.time() + self._seconds)}-{self._name_end}"
        self._names.append(name)
        return name, name.encode()


@contextmanager
def holding_lease(client: RemoteClient | None, use: str, seconds: float = LEASE_S) -> Generator[LeaseHolder | None]:
    """Holds a lease for a block. Yields None without a remote store, or with one that cannot be written or listed."""
    if client is None or not client.sends or "records" not in client.parts:
        yield None
        return
    holder = LeaseHolder(client, use, seconds)
    holder.begin()
    try:
        yield holder
    finally:
        holder.end()


def leases_of(client: RemoteClient) -> tuple[Lease, ...]:
    """Returns the leases that have not ended, sorted by the time of their end, the latest first."""
    now_s = time.time()
    leases = [Lease(int(match[1]), match[2], match[3], name) for name, match in _matches(client.list("leases").names)]
    return tuple(sorted((lease for lease in leases if lease.until_s + _SKEW_S > now_s), key=lambda one: -one.until_s))


def ended_leases(client: RemoteClient) -> list[str]:
    """Returns the names of the objects of leases that have ended. A pruning removes these objects."""
    now_s = time.time()
    return [
        f"leases/{name}" for name, match in _matches(client.list("leases").names) if int(match[1]) + _SKEW_S <= now_s
    ]


def _matches(names: Sequence[str]) -> list[tuple[str, re.Match[str]]]:
    return [(name, match) for name in names if (match := _NAME.fullmatch(name)) is not None]


def refuse_while_used(client: RemoteClient, own_lease: LeaseHolder) -> None:
    """Raises StoreError while another process holds a lease."""
    others = [lease for lease in leases_of(client) if not lease.name.endswith(own_lease.rest)]
    if others:
        raise StoreError(
            f"the remote store {client.place.name} is in use, so it is not pruned: {others[0].text}"
            + (f", and {len(others) - 1} more" if len(others) > 1 else "")
        )


_BATCH = 256


@frozen
class _RemoteEntry:
    """An artifact, or the outcome of a job; ``refs`` are its blobs that the remote store has."""

    part: str
    key: str
    size: int
    refs: tuple[BlobRef, ...]
    job: str = ""

    @property
    def name(self) -> str:
        return entry_name(self.part, self.key)


def remote_records(client: RemoteClient) -> MemoryRecords:
    """Returns all records of the remote store, verified, in memory.

    Raises:
        RemoteError: the store does not answer.
    """
    records = MemoryRecords()
    pull_records(SharedRecords(records, client), client)
    return records


def prune_remote(
    client: RemoteClient, max_bytes: int | None, *, losers_alone: bool = False, older_than_s: int | None = None
) -> Pruned:
    """Removes code of the remote store until ``max_bytes`` are left (None: all code that the other arguments select).

    ``losers_alone``: only the code of losing configs. ``older_than_s``: only code whose last trial was stored before
    this Unix time.

    Raises:
        StoreError: this process may not write to the store, or the store cannot be listed completely or is in use.
        RemoteError: the store does not answer.
    """
    if "records" not in client.parts:
        raise StoreError(f"the remote store {client.place.name} lists nothing: it removes old objects by its own rules")
    if not client.sends:
        raise StoreError(client.off or "SILO_REMOTE_MODE=read says that nothing is changed; set it to write to prune")
    lease = LeaseHolder(client, "prune", LEASE_S)
    try:
        if not lease.begin():
            raise RemoteError(client.off or f"{client.place.name} takes no lease", kind="refused")
        refuse_while_used(client, lease)
        client.remove_each(ended_leases(client))
        records = remote_records(client)
        blob_names = {name.rpartition("/")[2] for name in _listed(client, "blobs")}
        entries = [*_entries(client, "artifacts", blob_names), *_entries(client, "jobs", blob_names)]
        plan = plan_pruning(
            entries,
            losing_artifacts(records),
            _trial_times(records),
            max_bytes,
            losers_alone=losers_alone,
            older_than_s=older_than_s,
        )
        return _carry_out(client, lease, plan, _size_of(entries))
    finally:
        lease.end()


def plan_pruning(
    entries: Sequence[_RemoteEntry],
    losers: frozenset[str],
    times: Mapping[str, int],
    max_bytes: int | None,
    *,
    losers_alone: bool,
    older_than_s: int | None,
) -> tuple[tuple[str, int], ...]:
    """Returns the objects to remove, in order, each with its size. Sends no request and removes nothing.

    ``times`` are the Unix times of the last trial of artifacts, by artifact key; code of an artifact without a trial
    counts as new.
    """
    left, plan = _size_of(entries), list[tuple[str, int]]()
    artifacts = [entry for entry in entries if entry.part == "artifacts"]
    jobs = {entry.key: entry for entry in entries if entry.part == "jobs"}
    alive = {entry.name: entry for entry in entries}
    holders: dict[str, set[str]] = {}
    for entry in entries:
        for ref in entry.refs:
            holders.setdefault(ref.sha256, set()).add(entry.name)

    def is_enough() -> bool:
        return max_bytes is not None and left <= max_bytes

    def release(entry: _RemoteEntry, *, described: bool) -> None:
        """Plans the removal of the blobs that only ``entry`` refers to; unless ``described``, also of that entry."""
        nonlocal left
        if not described and alive.pop(entry.name, None) is not None:
            plan.append((entry.name, entry.size))
            left -= entry.size
        for ref in entry.refs:
            holders_of_blob = holders.get(ref.sha256, set())
            holders_of_blob.discard(entry.name)
            if not holders_of_blob and holders.pop(ref.sha256, None) is not None:
                plan.append((blob_name(ref.sha256), ref.size))
                left -= ref.size

    def is_covered(entry: _RemoteEntry) -> bool:
        return older_than_s is None or times.get(entry.key, older_than_s) < older_than_s

    used_jobs = {entry.job for entry in artifacts if entry.key not in losers}
    by_age = sorted(artifacts, key=lambda entry: (times.get(entry.key, 1 << 62), entry.key))
    chosen = [(entry, True) for entry in by_age if entry.key in losers]
    chosen += [] if losers_alone else [(entry, False) for entry in by_age if entry.key not in losers]
    for entry, is_loser in chosen:
        if is_enough():
            break
        if is_covered(entry):
            if (job := jobs.get(entry.job)) is not None and (not is_loser or entry.job not in used_jobs):
                release(job, described=False)
            release(entry, described=is_loser)
    return tuple(plan)


def _size_of(entries: Sequence[_RemoteEntry]) -> int:
    blobs = {ref.sha256: ref.size for entry in entries for ref in entry.refs}
    return sum(blobs.values()) + sum(entry.size for entry in entries)


def _carry_out(client: RemoteClient, lease: LeaseHolder, plan: Sequence[tuple[str, int]], size: int) -> Pruned:
    blobs = entries = freed = 0
    for begin in range(0, len(plan), _BATCH):
        batch = plan[begin : begin + _BATCH]
        lease.keep()
        refuse_while_used(client, lease)
        if client.remove_each([name for name, _ in batch]) < len(batch):
            reason = client.off or "it refuses to remove them, or took too long"
            raise RemoteError(f"{blobs + entries} objects were removed, and no more: {reason}", kind="fault")
        blobs += sum(name.startswith("blobs/") for name, _ in batch)
        entries += sum(not name.startswith("blobs/") for name, _ in batch)
        freed += sum(size_of_entry for _, size_of_entry in batch)
    return Pruned(blobs, entries, 0, freed, size - freed)


def _listed(client: RemoteClient, part: str) -> list[str]:
    """Returns the names of a part's objects.

    Raises StoreError if not all can be listed: pruning would then remove blobs that an unlisted entry still needs.
    """
    listing = client.list(part)
    if client.off or not listing.whole:
        reason = client.off or f"it has more than {len(listing.names)} objects in {part}"
        raise StoreError(f"the remote store {client.place.name} cannot be listed whole, so it is not pruned: {reason}")
    return listing.names


def _entries(client: RemoteClient, part: str, present: Container[str]) -> Iterator[_RemoteEntry]:
    """Yields the readable entries of a part, with their blobs that exist."""
    names = [f"{part}/{name}" for name in _listed(client, part) if name.endswith(".json")]
    for begin in range(0, len(names), _BATCH):
        batch = names[begin : begin + _BATCH]
        documents = client.get_each(batch, MOST_LINE_BYTES)
        if client.off or len(documents) < len(batch):
            raise StoreError(
                f"the remote store {client.place.name} does not give all entries, so it is not pruned: {client.off}"
            )
        for name, data in documents.items():
            key = name.rpartition("/")[2].removesuffix(".json")
            try:
                document = decode_line(f"{part}/{key}", data.removesuffix(b"\n"))
                value = document["value"] if isinstance(document, dict) else None
                read = Artifact.from_json(value) if part == "artifacts" else Outcome.from_json(value)
            except (ValueError, KeyError, TypeError, SiloError):
                continue  # the entry cannot be read, which ``silo cache check`` reports
            job = read.job if isinstance(read, Artifact) else ""
            refs = tuple(ref for ref in (read.blob, *read.sidecars) if ref.sha256 in present)
            yield _RemoteEntry(part, key, len(data), refs, job)


def _trial_times(records: MemoryRecords) -> dict[str, int]:
    times: dict[str, int] = {}
    for study in every_study(records):
        for trial, when in dated_trials(study, records):
            if trial.artifact and when is not None:
                times[trial.artifact] = max(times.get(trial.artifact, 0), when.time_s)
    return times

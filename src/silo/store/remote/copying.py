"""Copies all entries between a store and its remote store, and checks every object of the remote store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from silo.artifacts.artifact import Artifact
from silo.core.values import JSON
from silo.errors import RemoteError, SiloError
from silo.forks import Notices
from silo.frozen import frozen
from silo.store.artifacts import Artifacts, Outcome, blobs_kept_here
from silo.store.records import DiskRecords, decode_line, encode_line
from silo.store.remote.client import RemoteClient
from silo.store.remote.object_protocol import (
    MOST_BLOB_BYTES,
    MOST_LINE_BYTES,
    blob_name,
    entry_name,
    record_name,
    records_of,
)
from silo.store.remote.shared_parts import SharedRecords
from silo.store.remote.upload_queue import (
    MOST_FOLDED,
    digest_of,
    fold_of,
    is_fold,
    line_of,
    verified_fold,
    verified_line,
)
from silo.store.stored_objects import DiskBlobs, DiskEntries

__all__ = ["Checked", "CopiedObjects", "check_remote", "pull", "pull_records", "push"]

_SMALL, _LARGE = 256, 16  # the most objects in a batch: of small objects, and of large objects
_RECORDS = 1024  # the most lines of one list in a batch; large, because each batch reads all local entries

T = TypeVar("T")


@frozen
class CopiedObjects:
    """A summary of copying one part of a store.

    ``copied`` objects were copied, ``there`` existed at the destination, and ``left`` may not be copied.
    """

    part: str
    copied: int = 0
    there: int = 0
    left: int = 0


@frozen
class Checked:
    """The result of checking a part of a remote store: the number of objects, and those that contradict their names."""

    part: str
    objects: int
    bad: tuple[tuple[str, str], ...]
    whole: bool


def push(root: Path, client: RemoteClient) -> list[CopiedObjects]:
    """Sends the entries of the store at ``root`` that the remote store lacks; returns the counts for each part.

    Raises ``RemoteError`` if the remote store accepts no entry.
    """
    return [
        _push_records(root, client) if part == "records" else _push_part(root, client, part)
        for part in _parts_of(client)
    ]


def _push_part(root: Path, client: RemoteClient, part: str) -> CopiedObjects:
    remote_names = _names(client, part)
    copied = present = skipped = 0
    objects = _own_objects(root, part)
    for batch in _batches(objects, _LARGE if part == "blobs" else _SMALL):
        new = [(name, data) for name, data in batch if data is not None and name not in remote_names]
        skipped += sum(data is None for _, data in batch)
        present += len(batch) - len(new) - sum(data is None for _, data in batch)
        _send(client, part, new, copied)
        copied += len(new)
    return CopiedObjects(part, copied, present, skipped)


def _send(client: RemoteClient, part: str, new: Sequence[tuple[str, bytes]], before: int) -> None:
    if not client.sends:
        raise RemoteError(client.off or f"the remote store {client.place.name} takes nothing", kind="refused")
    sent = client.put_each(new)
    if sent < len(new):
        reason = client.off or "it refuses to take them, or took too long"
        raise RemoteError(f"{before + sent} objects of {part} were sent, and no more: {reason}", kind="fault")


def _push_records(root: Path, client: RemoteClient) -> CopiedObjects:
    """Sends the records that the remote store lacks, folded: many lines in one object."""
    own, remote_digests = DiskRecords(root / "records", Notices("silo.store")), _records_there(client)
    copied = present_count = skipped = 0
    for key in own.keys():  # noqa: SIM118  # the store of records is not a mapping
        lines = {digest_of(line): line for record in own.read(key) for line in (line_of(key, record),)}
        present = _lines_there(client, key, remote_digests.get(key, ())) & lines.keys()
        new = [line for digest, line in lines.items() if digest not in present and len(line) <= MOST_LINE_BYTES]
        for batch in _batches(_folded(key, new), _SMALL):
            _send(client, "records", batch, copied)
        copied, present_count, skipped = (
            copied + len(new),
            present_count + len(present),
            skipped + len(lines) - len(present) - len(new),
        )
    return CopiedObjects("records", copied, present_count, skipped)


def _records_there(client: RemoteClient) -> dict[str, list[str]]:
    """Returns, for the key of each list of records, the names of the remote store's objects that hold its records.

    The names are without the folder.
    """
    names_by_key: dict[str, list[str]] = {}
    for name in _names(client, "records"):
        if name.count("/") == 2:
            _, key, last = name.split("/")
            names_by_key.setdefault(key, []).append(last)
    return names_by_key


def _lines_there(client: RemoteClient, key: str, names: Sequence[str]) -> set[str]:
    """Returns the digests of the lines of a list that the remote store has, alone or in a fold.

    Fetches only the folds.
    """
    digests = {name for name in names if len(name) == 64}
    for batch in _batches((f"{records_of(key)}/{name}" for name in names if is_fold(name)), _SMALL):
        for name, data in client.get_each(batch, MOST_FOLDED).items():
            try:
                digests.update(verified_fold(key, name.rpartition("/")[2], data))
            except ValueError as error:
                client.lie(name, str(error))
        _still_there(client)
    return digests


def _folded(key: str, lines: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Packs the lines of one list into objects, each as full as allowed; yields their names and bytes."""
    pending = list(reversed(lines))
    while pending:
        fold = [pending.pop()]
        size = len(fold[0])
        while pending and size + len(pending[-1]) <= MOST_FOLDED:
            fold.append(pending.pop())
            size += len(fold[-1])
        last, data = fold_of(fold)
        yield (f"{records_of(key)}/{last}", data) if len(fold) > 1 else (record_name(key, digest_of(data)), data)


def pull(root: Path, artifacts: Artifacts, records: SharedRecords, client: RemoteClient) -> list[CopiedObjects]:
    """Fetches the entries of the remote store that may be used here; returns the counts for each part.

    Native code of an untrusted store may not be used.
    """
    copies: list[CopiedObjects] = []
    for part in _parts_of(client):
        if part == "records":
            copies.append(pull_records(records, client))
        elif part != "blobs":  # blobs are fetched with the entries that refer to them
            copies.append(_pull_entries(root, artifacts, client, part))
    return copies


def pull_records(present: SharedRecords, client: RemoteClient) -> CopiedObjects:
    """Fetches every record of the remote store, of any study."""
    copied = present_count = skipped = 0
    for key, names in sorted(_records_there(client).items()):
        before = len({digest_of(line_of(key, record)) for record in present.read(key)})
        lines: set[str] = set()
        for batch in _batches(sorted(names, key=lambda name: (not is_fold(name), name)), _RECORDS):
            added, digests = present.take_in(key, batch)
            copied += added
            lines |= digests or set()
            _still_there(client)
        own_digests = {digest_of(line_of(key, record)) for record in present.read(key)}
        present_count += len(lines & own_digests) - (len(own_digests) - before)
        skipped += len(lines - own_digests)
    return CopiedObjects("records", copied, present_count, skipped)


def _pull_entries(root: Path, artifacts: Artifacts, client: RemoteClient, part: str) -> CopiedObjects:
    keys = sorted(name.rpartition("/")[2].removesuffix(".json") for name in _names(client, part))
    keys = [key for key in keys if len(key) == 64]
    own = DiskEntries(root, part, Notices("silo.store"))
    copied = present_count = skipped = 0
    for batch in _batches(iter(keys), _SMALL):
        new = [key for key in batch if own.get(key) is None]
        present_count += len(batch) - len(new)
        if part == "artifacts":
            artifacts.expect(new)
        for key in new:
            fetched = artifacts.get(key) if part == "artifacts" else artifacts.outcome(key)
            copied, skipped = copied + (fetched is not None), skipped + (fetched is None)
        _still_there(client)
    return CopiedObjects(part, copied, present_count, skipped)


def check_remote(client: RemoteClient) -> list[Checked]:
    """Checks every object of the remote store; returns the result for each part. Nothing is stored or changed."""
    return [_check_part(client, part) for part in _parts_of(client)]


def _check_part(client: RemoteClient, part: str) -> Checked:
    listing = client.list(part)
    _still_there(client)
    bad: list[tuple[str, str]] = []
    byte_limit, size = (MOST_BLOB_BYTES, _LARGE) if part == "blobs" else (MOST_LINE_BYTES, _SMALL)
    for names in _batches((f"{part}/{name}" for name in listing.names), size):
        objects = client.get_each(names, byte_limit)
        _still_there(client)
        for name in names:
            reason = (
                "it cannot be read, or is too large" if name not in objects else _problem(part, name, objects[name])
            )
            if reason:
                bad.append((name, reason))
    return Checked(part, len(listing.names), tuple(bad), listing.whole)


def _problem(part: str, name: str, data: bytes) -> str:
    """Returns the fault of an object; "" if the object has none."""
    last = name.rpartition("/")[2]
    try:
        if part == "blobs":
            right = blob_name(last) == name and hashlib.sha256(data).hexdigest() == last
            return "" if right else "its sha256 differs"
        if part == "records":
            key = name.split("/")[1]
            if is_fold(last):
                verified_fold(key, last, data)
                return "" if f"{records_of(key)}/{last}" == name else "its name is not that of folded records"
            verified_line(key, last, data)
            return "" if record_name(key, last) == name else "its name is not a record's"
        key = last.removesuffix(".json")
        document = decode_line(f"{part}/{key}", data.removesuffix(b"\n"))
        if entry_name(part, key) != name or not isinstance(document, dict):
            return "its name is not an entry's"
        read = Artifact.from_json if part == "artifacts" else Outcome.from_json
        read(document["value"])
    except (ValueError, KeyError, TypeError, AttributeError, SiloError) as error:
        return str(error)
    return ""


def _own_objects(root: Path, part: str) -> Iterator[tuple[str, bytes | None]]:
    """Yields the names and bytes of a part's objects in the store at ``root``; None for bytes that must not be sent."""
    notices = Notices("silo.store")
    if part == "blobs":
        blobs = DiskBlobs(root, notices)
        kept_blobs = blobs_kept_here(root)
        for sha256 in _stems(root / part, ""):
            data = None if sha256 in kept_blobs else blobs.get(sha256)
            yield blob_name(sha256), data if data is not None and len(data) <= MOST_BLOB_BYTES else None
    else:
        entries = DiskEntries(root, part, notices)
        for key in _stems(root / part, ".json"):
            document = entries.get(key)
            line = encode_line(f"{part}/{key}", document)
            travels = document is not None and len(line) <= MOST_LINE_BYTES and not _stays(part, document)
            yield entry_name(part, key), line if travels else None


def _stays(part: str, document: JSON) -> bool:
    """Returns whether a document is an artifact of native code, which is not sent to the remote store.

    Other machines fetch the outcome of its compile job instead.
    """
    if part != "artifacts" or not isinstance(document, dict):
        return False
    try:
        return Artifact.from_json(document["value"]).runs_on_host
    except (ValueError, KeyError, TypeError, SiloError):
        return True


def _stems(folder: Path, suffix: str) -> Iterator[str]:
    for path in sorted(folder.glob(f"??/*{suffix}")):
        stem = path.name.removesuffix(suffix)
        if len(stem) == 64 and not set(stem) - set("0123456789abcdef"):
            yield stem


def _names(client: RemoteClient, part: str) -> set[str]:
    """Returns the full names of a part's objects in the remote store; empty if the service cannot list."""
    listing = client.list(part) if "records" in client.parts else None
    _still_there(client)
    return {f"{part}/{name}" for name in listing.names} if listing is not None else set()


def _parts_of(client: RemoteClient) -> Sequence[str]:
    parts = client.parts
    _still_there(client)
    return parts


def _still_there(client: RemoteClient) -> None:
    if client.off:
        raise RemoteError(f"the remote store {client.place.name}: {client.off}", kind="fault")


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch

"""The size of a store, and pruning it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from silo.core.notices import Notices
from silo.core.values import JSON
from silo.store.atomic_files import TEMPORARY_PREFIX, sweep_abandoned
from silo.store.entries import DiskEntries

__all__ = ["PARTS", "Pruned", "Usage", "clear", "prune", "usage"]

# What `clear` may remove. Trust is not a cache: it holds the user's word.
PARTS = ("blobs", "artifacts", "jobs", "files", "records", "damaged")
GRACE_S = 3600


@dataclass(frozen=True, slots=True)
class Usage:
    """Files and bytes by part of the store."""

    files: dict[str, int]
    size_bytes: dict[str, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(self.size_bytes.values())


@dataclass(frozen=True, slots=True)
class Pruned:
    """The files that a pruning removed and kept."""

    blobs: int
    entries: int
    temporary: int
    freed_bytes: int
    left_bytes: int


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size: int
    modified_s: float


def usage(root: Path) -> Usage:
    """Files and bytes of each part of the store at ``root``; zeros without a store."""
    found = {part: tuple(_files(root / part)) for part in PARTS}
    return Usage(
        files={part: len(files) for part, files in found.items()},
        size_bytes={part: sum(file.size for file in files) for part, files in found.items()},
    )


def prune(root: Path, *, max_bytes: int, grace_s: float = GRACE_S) -> Pruned:
    """Bring blobs, artifacts, jobs and files down to ``max_bytes``: blobs that nothing refers to first, oldest first.

    Then go the oldest artifacts, jobs and files with the blobs that only they held. Records (trials) are never pruned.
    Files younger than ``grace_s`` seconds stay: another process may be about to refer to them. A process that finds a
    blob gone makes it again.
    """
    now_s = time.time()
    temporary = freed = 0
    for directory in (root, *(path for path in root.rglob("*") if path.is_dir())):
        count, size = sweep_abandoned(directory, older_than_s=grace_s)
        temporary, freed = temporary + count, freed + size
    damaged = tuple(_files(root / "damaged"))
    for file in damaged:
        freed += _unlink(file)
    blobs = {file.path.name: file for file in _files(root / "blobs")}
    entries = sorted(_entries(root), key=lambda entry: (entry[0].modified_s, entry[0].path.name))
    holders = dict.fromkeys(blobs, 0)
    for _, refs in entries:
        for sha256 in refs:
            if sha256 in holders:
                holders[sha256] += 1
    left = sum(file.size for file in blobs.values()) + sum(file.size for file, _ in entries)
    removed_blobs = removed_entries = 0

    def drop_blobs(names: list[str]) -> None:
        nonlocal left, freed, removed_blobs
        for name in sorted(names, key=lambda name: (blobs[name].modified_s, name)):
            if left <= max_bytes or blobs[name].modified_s > now_s - grace_s:
                continue
            size = _unlink(blobs.pop(name))
            left, freed, removed_blobs = left - size, freed + size, removed_blobs + 1

    drop_blobs([name for name, count in holders.items() if count == 0])
    for file, refs in entries:
        if left <= max_bytes or file.modified_s > now_s - grace_s:
            break
        size = _unlink(file)
        left, freed, removed_entries = left - size, freed + size, removed_entries + 1
        for sha256 in refs & blobs.keys():
            holders[sha256] -= 1
        drop_blobs([sha256 for sha256 in refs & blobs.keys() if holders[sha256] == 0])
    return Pruned(removed_blobs, removed_entries, temporary, freed, left)


def clear(root: Path, parts: tuple[str, ...] = PARTS) -> int:
    """Remove whole parts of the store; the bytes freed. ``ValueError`` for a part that does not exist."""
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise ValueError(f"no such part of a store: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    freed = 0
    for part in parts:
        for file in tuple(_files(root / part)):
            freed += _unlink(file)
    return freed


def _files(directory: Path) -> Iterator[_File]:
    for path in sorted(directory.rglob("*")):
        if path.name.startswith(TEMPORARY_PREFIX):
            continue
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                yield _File(path, status.st_size, status.st_mtime)


def _unlink(file: _File) -> int:
    try:
        file.path.unlink()
    except FileNotFoundError:
        return 0
    return file.size


def _entries(root: Path) -> Iterator[tuple[_File, frozenset[str]]]:
    notices = Notices("silo.store")
    for part in ("artifacts", "jobs", "files"):
        entries = DiskEntries(root, part, notices)
        for file in _files(root / part):
            yield file, frozenset(_shas(entries.get(file.path.stem)))


def _shas(document: JSON) -> Iterator[str]:
    """Every sha256 that an entry refers to, anywhere in the document."""
    if isinstance(document, dict):
        if isinstance(sha256 := document.get("sha256"), str):
            yield sha256
        for member in document.values():
            yield from _shas(member)
    elif isinstance(document, list):
        for item in document:
            yield from _shas(item)

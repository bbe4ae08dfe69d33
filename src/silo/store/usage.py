"""The size of a store on disk, and pruning it.

The size of a file is the larger of its length and the blocks that it takes. Most files of a store are shorter than a
block, and a file system that has not placed a new file yet counts no blocks for it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from silo.core.values import JSON
from silo.forks import Notices
from silo.store.atomic_files import TEMPORARY_PREFIX, sweep_abandoned
from silo.store.stored_objects import DiskEntries

__all__ = [
    "PARTS",
    "KernelUsage",
    "PruneRule",
    "Pruned",
    "Usage",
    "clear",
    "code_bytes",
    "kernel_usage",
    "prune",
    "store_bytes",
    "usage",
]

# The parts that ``clear`` may remove. Trust is not among them: it records the user's decisions, and is no cache.
PARTS = ("blobs", "artifacts", "jobs", "files", "records", "damaged")
GRACE_S = 3600
LOSERS_GRACE_S = 60


_BLOCK = 512  # bytes in the unit of st_blocks, whatever the block size of the file system


@dataclass(frozen=True, slots=True)
class Usage:
    """Files and bytes by part of the store. ``total_bytes`` counts every file, including trust and counts."""

    files: dict[str, int]
    size_bytes: dict[str, int]
    total_bytes: int


@dataclass(frozen=True, slots=True)
class PruneRule:
    """Selects the code to remove, and the size at which removing ends.

    ``max_bytes`` is the size of the whole store at which removing ends; None: all selected code is removed. ``older_s``
    spares code that was used within this many seconds. ``losers`` are the artifact keys of losing configs
    (:mod:`silo.store.upkeep`); with ``losers_alone`` no other code is removed, and with ``every_loser`` the code of all
    losing configs is removed, even if ``max_bytes`` is reached before.
    """

    max_bytes: int | None = None
    older_s: float = 0.0
    losers: frozenset[str] = frozenset()
    losers_alone: bool = False
    every_loser: bool = False

    def __post_init__(self) -> None:
        if self.max_bytes is None and not self.older_s and not self.losers_alone:
            raise ValueError("a rule without a size, an age or losing configs would remove all code")


@dataclass(frozen=True, slots=True)
class Pruned:
    """The numbers of files that a pruning removed, and the bytes that are left, in all and in records."""

    blobs: int
    entries: int
    temporary: int
    freed_bytes: int
    left_bytes: int
    records_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size: int
    modified_s: float


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a store: an artifact, a job or files, with its blobs.

    ``job`` and ``kernel`` are "" unless the entry is an artifact.
    """

    file: _File
    part: str
    key: str
    refs: frozenset[str]
    job: str
    kernel: str


def usage(root: Path) -> Usage:
    """Returns the files and bytes of each part of the store at ``root``; zeros without a store."""
    files_by_part = {part: tuple(_files(root / part)) for part in PARTS}
    return Usage(
        files={part: len(files) for part, files in files_by_part.items()},
        size_bytes={part: sum(file.size for file in files) for part, files in files_by_part.items()},
        total_bytes=store_bytes(root),
    )


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """The code of one kernel: the number of its artifacts, the number whose code is ``present``, and bytes of code.

    ``used_s`` is the Unix time of the last use, accurate to a day. A blob that kernels share counts for the first of
    them. Code that belongs to no artifact has the kernel "".
    """

    kernel: str
    artifacts: int
    present: int
    size_bytes: int
    losing_bytes: int
    used_s: float


def kernel_usage(root: Path, losers: frozenset[str] = frozenset()) -> tuple[KernelUsage, ...]:
    """Returns the code of each kernel in the store at ``root``, the largest first."""
    contents = _Contents.of(root)
    rows: dict[str, list[float]] = {}
    unassigned = dict(contents.blobs)
    # Winners come first, so that code that they share with a losing config does not count as the loser's.
    for entry in sorted(contents.entries, key=lambda entry: (entry.part != "artifacts", entry.key in losers)):
        row = rows.setdefault(entry.kernel, [0, 0, 0, 0, 0.0])
        own = [unassigned.pop(name) for name in sorted(entry.refs) if name in unassigned]
        size = sum(file.size for file in own)
        is_complete = bool(entry.refs) and entry.refs <= contents.blobs.keys()
        row[0] += entry.part == "artifacts"
        row[1] += entry.part == "artifacts" and is_complete
        row[2] += size + entry.file.size
        row[3] += size if entry.part == "artifacts" and entry.key in losers else 0
        row[4] = max([row[4], entry.file.modified_s, *(file.modified_s for file in own)])
    if unassigned:
        row = rows.setdefault("", [0, 0, 0, 0, 0.0])
        row[2] += sum(file.size for file in unassigned.values())
        row[4] = max([row[4], *(file.modified_s for file in unassigned.values())])
    usages = [
        KernelUsage(name, int(artifacts), int(present), int(size), int(lost), used_s)
        for name, (artifacts, present, size, lost, used_s) in rows.items()
    ]
    return tuple(sorted(usages, key=lambda one: (-one.size_bytes, one.kernel)))


def code_bytes(root: Path) -> int:
    """Returns the bytes of blobs, artifacts, jobs and files, without reading them."""
    parts = ("blobs", "artifacts", "jobs", "files")
    return sum(size for part in parts for _, size, _ in _walk(root / part, temporary=False))


def store_bytes(root: Path) -> int:
    """Returns the bytes of every file of the store: code, trials, trust, counts, and unfinished files."""
    return sum(size for _, size, _ in _walk(root, temporary=True))


def prune(root: Path, rule: PruneRule, *, grace_s: float = GRACE_S) -> Pruned:
    """Removes code from the store at ``root`` until it is small enough. Records (trials) are never removed.

    Blobs that no entry refers to are removed first, then the code of losing configs, then their descriptions, then the
    oldest artifacts, jobs and files with the blobs that only they refer to. A losing config keeps its artifact's
    description while the size permits it, because a later compiler's code is compared with it. Files younger than
    ``grace_s`` seconds are kept, because another process may be about to refer to them; code of losing configs is kept
    for a minute. A process that finds a blob missing compiles it again.
    """
    now_s = time.time()
    temporary = freed = 0
    for directory in (root, *_directories(root)):
        count, size = sweep_abandoned(directory, older_than_s=grace_s)
        temporary, freed = temporary + count, freed + size
    for file in tuple(_files(root / "damaged")):
        freed += _unlink(file) or 0
    contents = _Contents.of(root)
    young = max(grace_s, rule.older_s)
    losing_young = max(min(grace_s, LOSERS_GRACE_S), rule.older_s)
    if not rule.losers_alone:
        strays = [name for name, holders in contents.holders.items() if not holders]
        contents.drop_blobs(strays, rule.max_bytes, now_s - young)
    contents.drop_losers(rule.losers, None if rule.every_loser else rule.max_bytes, now_s - losing_young)
    if not rule.losers_alone:
        losing = [entry for entry in contents.entries if entry.part == "artifacts" and entry.key in rule.losers]
        contents.drop_entries(losing, rule.max_bytes, now_s - losing_young)
        contents.drop_entries(contents.entries, rule.max_bytes, now_s - young)
    records = sum(file.size for file in _files(root / "records"))
    return Pruned(
        contents.removed_blobs, contents.removed_entries, temporary, freed + contents.freed, contents.left, records
    )


class _Contents:
    """The code in a store while it is pruned."""

    def __init__(self, blobs: dict[str, _File], entries: list[_Entry], left: int) -> None:
        self.blobs = blobs
        self.entries = entries
        self.holders = dict.fromkeys(blobs, 0)
        for entry in entries:
            for sha256 in entry.refs & blobs.keys():
                self.holders[sha256] += 1
        self.left = left  # bytes of the whole store
        self.freed = self.removed_blobs = self.removed_entries = 0
        self._gone = set[Path]()

    @classmethod
    def of(cls, root: Path) -> _Contents:
        """Reads the store at ``root``: its blobs, and its entries, the longest unused first."""
        blobs = {file.path.name: file for file in _files(root / "blobs")}

        def used_s(entry: _Entry) -> float:  # the use of a blob counts as a use of its entries
            return max([entry.file.modified_s, *(blobs[name].modified_s for name in entry.refs & blobs.keys())])

        entries = sorted(_entries(root), key=lambda entry: (used_s(entry), entry.file.path.name))
        return cls(blobs, entries, store_bytes(root))

    def drop_blobs(self, names: Iterable[str], max_bytes: int | None, before_s: float) -> None:
        """Removes blobs, oldest first, until ``max_bytes`` are left; keeps those used after ``before_s``."""
        for name in sorted(names, key=lambda name: (self.blobs[name].modified_s, name)):
            if _is_enough(self.left, max_bytes):
                return
            if (size := _unlink(self.blobs[name], before_s)) is not None:
                del self.blobs[name]
                self.left, self.freed, self.removed_blobs = self.left - size, self.freed + size, self.removed_blobs + 1

    def drop_losers(self, losers: frozenset[str], max_bytes: int | None, before_s: float) -> None:
        """Removes the blobs that only losing artifacts and their jobs refer to, and these jobs."""
        losing = [entry for entry in self.entries if entry.part == "artifacts" and entry.key in losers]
        jobs = {entry.job for entry in losing} - {
            entry.job for entry in self.entries if entry.part == "artifacts" and entry.key not in losers
        }
        of_losers = {entry.file.path for entry in losing}
        of_losers |= {entry.file.path for entry in self.entries if entry.part == "jobs" and entry.key in jobs}
        blobs_held = {name for entry in self.entries if entry.file.path not in of_losers for name in entry.refs}
        own = {entry.key: entry for entry in self.entries if entry.part == "jobs" and entry.key in jobs}
        for entry in losing:
            if _is_enough(self.left, max_bytes):
                return
            self.drop_blobs((entry.refs & self.blobs.keys()) - blobs_held, max_bytes, before_s)
            job = own.get(entry.job)
            if job is not None and not job.refs <= self.blobs.keys():
                del own[entry.job]
                self._drop_entry(job, before_s=None)

    def drop_entries(self, entries: Iterable[_Entry], max_bytes: int | None, before_s: float) -> None:
        """Removes some of the entries, in their order, with the blobs that only they refer to."""
        for entry in entries:
            if entry.file.path in self._gone:
                continue
            if _is_enough(self.left, max_bytes):
                return
            if not any(name in self.blobs and self.blobs[name].modified_s > before_s for name in entry.refs):
                self._drop_entry(entry, before_s)
            self.drop_blobs(
                [name for name in entry.refs & self.blobs.keys() if self.holders[name] == 0], max_bytes, before_s
            )

    def _drop_entry(self, entry: _Entry, before_s: float | None) -> None:
        size = _unlink(entry.file, before_s)
        if size is None:
            return
        self._gone.add(entry.file.path)
        self.left, self.freed, self.removed_entries = self.left - size, self.freed + size, self.removed_entries + 1
        for name in entry.refs & self.blobs.keys():
            self.holders[name] -= 1


def _is_enough(left: int, max_bytes: int | None) -> bool:
    return max_bytes is not None and left <= max_bytes


def clear(root: Path, parts: tuple[str, ...] = PARTS) -> int:
    """Removes whole parts of the store; returns the bytes freed. Raises ``ValueError`` for an unknown part."""
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise ValueError(f"no such part of a store: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    freed = 0
    for part in parts:
        for file in tuple(_files(root / part)):
            freed += _unlink(file) or 0
    return freed


def _files(directory: Path) -> Iterator[_File]:
    """Yields the finished plain files under a directory, in the order of their paths."""
    for path, size, modified_s in sorted(_walk(directory, temporary=False)):
        yield _File(Path(path), size, modified_s)


def _walk(directory: Path, *, temporary: bool) -> Iterator[tuple[str, int, float]]:
    """Yields the path, size and time of each plain file under a directory, unfinished ones only if ``temporary``."""
    folders = [os.fspath(directory)]  # text, because making thousands of Path objects would take long
    while folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif temporary or not entry.name.startswith(TEMPORARY_PREFIX):
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_file(follow_symlinks=False):
                            status = entry.stat(follow_symlinks=False)
                            size = max(status.st_size, status.st_blocks * _BLOCK)
                            yield entry.path, size, status.st_mtime


def _directories(root: Path) -> Iterator[Path]:
    """Yields every directory below ``root``, without following links."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
                yield from _directories(Path(entry.path))


def _unlink(file: _File, before_s: float | None = None) -> int | None:
    """Removes a file; returns its size, or 0 if it was gone.

    Returns None, and removes nothing, if the file was used after ``before_s``, even if the use came after the file was
    listed.
    """
    try:
        if before_s is not None and file.path.stat().st_mtime > before_s:
            return None
        file.path.unlink()
    except FileNotFoundError:
        return 0
    return file.size


def _entries(root: Path) -> Iterator[_Entry]:
    notices = Notices("silo.store")
    for part in ("artifacts", "jobs", "files"):
        entries = DiskEntries(root, part, notices)
        for file in _files(root / part):
            document = entries.get(file.path.stem)
            value = document.get("value") if isinstance(document, dict) else None
            members = value if part == "artifacts" and isinstance(value, dict) else {}
            job, variant = members.get("job"), members.get("variant")
            kernel = variant.get("kernel") if isinstance(variant, dict) else None
            yield _Entry(
                file,
                part,
                file.path.stem,
                frozenset(_shas(document)),
                job if isinstance(job, str) else "",
                kernel if isinstance(kernel, str) else "",
            )


def _shas(document: JSON) -> Iterator[str]:
    """Yields every SHA-256 that an entry refers to, anywhere in the document."""
    if isinstance(document, dict):
        if isinstance(sha256 := document.get("sha256"), str):
            yield sha256
        for member in document.values():
            yield from _shas(member)
    elif isinstance(document, list):
        for item in document:
            yield from _shas(item)

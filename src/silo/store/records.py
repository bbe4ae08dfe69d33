"""Records: append-only lists of JSON values by key; and the logs that hold them.

A log is one file to which many processes of a user add frames, each whole and durable. An append is one ``O_APPEND``
write and fsync under a lock. A write that a full disk cuts short is undone; a write that is cut short by a kill leaves
a torn frame, which readers skip. The layout of frames in the file is a value (:class:`LogFraming`). The users of a log
decide the contents of its frames, and the function that opens the file: :func:`silo.store.privacy.open_private` in a
store, :func:`silo.store.privacy.open_own` in any folder.

A record is a frame of one line, in ``records/<key>.jsonl`` of a store; a recording's journal has frames of its own
form.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Self, TypeAlias

from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import StoreError
from silo.forks import Notices
from silo.frozen import frozen
from silo.store.atomic_files import write_all
from silo.store.privacy import file_lock, is_file_at, make_directory, open_private, sync_directory

__all__ = [
    "LINES",
    "MAX_RECORD_BYTES",
    "AppendLog",
    "CutLogError",
    "DiskRecords",
    "DiskWrite",
    "FallbackRecords",
    "LogFile",
    "LogFraming",
    "MemoryRecords",
    "check_key",
    "decode_line",
    "encode_line",
]


_CHUNK = 1 << 20


class CutLogError(OSError):
    """A log became shorter while it was read."""


@frozen
class LogFraming:
    """The layout of frames in a log's file.

    ``heading`` returns the ``heading_bytes`` bytes that a new file begins with. ``end`` is the byte that every frame
    ends with; it is added to a torn frame before the next frame is written. ``end`` is empty if readers find the next
    frame without an end byte.
    """

    heading: Callable[[], bytes] | None = None
    heading_bytes: int = 0
    end: bytes = b""


class LogFile:
    """An open log, which is closed at the end of a ``with`` block. It is locked if its file system has locks."""

    def __init__(self, path: Path, descriptor: int, framing: LogFraming) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._framing = framing
        self._is_locked = False

    @property
    def descriptor(self) -> int:
        """The descriptor of the open file; valid only within the block."""
        assert self._descriptor is not None, "the log is closed"
        return self._descriptor

    @property
    def size(self) -> int:
        """The number of bytes in the file."""
        return os.fstat(self.descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        self._descriptor = None

    def read(self, offset: int, size: int) -> bytes:
        """Returns the ``size`` bytes from ``offset`` on.

        Raises:
            CutLogError: the file is shorter.
        """
        parts: list[bytes] = []
        while size:
            part = os.pread(self.descriptor, min(size, _CHUNK), offset)
            if not part:
                raise CutLogError("it was cut while it was read")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def read_all(self) -> bytes:
        """Returns all bytes that are in the file now."""
        parts: list[bytes] = []
        offset = 0
        while part := os.pread(self.descriptor, _CHUNK, offset):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def begin(self, *, is_locked: bool) -> bool:
        """Writes the heading if the file has none (and so no frames). Returns whether the file is new."""
        self._is_locked = is_locked
        size, framing = self.size, self._framing
        # the file is new, or its writer was killed while it wrote the heading
        if framing.heading is not None and size < framing.heading_bytes:
            os.ftruncate(self.descriptor, 0)
            write_all(self.descriptor, framing.heading())
            return True
        return size == 0

    def append(self, frames: bytes) -> None:
        """Adds whole frames, durably.

        Raises:
            OSError: the disk refuses; the earlier frames are unchanged.
        """
        size, end = self.size, self._framing.end
        if end and size and os.pread(self.descriptor, 1, size - 1) != end:
            frames = end + frames
        try:
            write_all(self.descriptor, frames)
            # The fsync is done under the lock, for which readers wait, so that they see only durable frames.
            os.fsync(self.descriptor)
        except OSError:
            if self._is_locked:  # without the lock, another process may have appended frames after these
                with contextlib.suppress(OSError):
                    os.ftruncate(self.descriptor, size)
            raise


class AppendLog:
    """The log at one path. Many threads may use it: no file stays open between calls.

    Args:
        opened: opens the file at a path with flags of ``os.open``, and refuses a file that others may have written.
    """

    def __init__(self, path: Path, framing: LogFraming, opened: Callable[[Path, int], int]) -> None:
        self.path = path
        self._framing = framing
        self._opened = opened
        self._is_named = False  # whether this process has made the file's name durable

    @contextlib.contextmanager
    def writing(self) -> Generator[LogFile]:
        """Opens the log and keeps out readers and other writers; makes the file if it is missing.

        Raises:
            HeldLockError: another process holds the lock for longer than ``SILO_LOCK_WAIT``.
            OSError: the file cannot be opened, or its name cannot be made durable.
        """
        while True:
            descriptor = self._opened(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            with (
                LogFile(self.path, descriptor, self._framing) as file,
                file_lock(descriptor, self.path, exclusive=True) as is_locked,
            ):
                # the file was removed while this process waited: make a new one
                if not is_file_at(self.path, descriptor):
                    continue
                if file.begin(is_locked=is_locked) or not self._is_named:
                    sync_directory(self.path.parent)
                    self._is_named = True
                yield file
                return

    @contextlib.contextmanager
    def reading(self) -> Generator[LogFile]:
        """Opens the log for reading and keeps out writers. Nothing is written or made.

        Raises:
            FileNotFoundError: the file does not exist.
            HeldLockError: another process holds the lock for longer than ``SILO_LOCK_WAIT``.
            OSError: the file cannot be opened.
        """
        descriptor = self._opened(self.path, os.O_RDONLY)
        with LogFile(self.path, descriptor, self._framing) as file, file_lock(descriptor, self.path, exclusive=False):
            yield file


# ---- Records as lines of JSON, in a form that shows if a line is torn, altered or from another file ----

# A line is ``LENGTH CHECKSUM PAYLOAD\n``: eight hex digits, sixteen hex digits, then canonical JSON. The checksum also
# covers a scope (the subject of the record), so a line that was copied to another file does not count.
# A payload has at most MAX_RECORD_BYTES.
MAX_RECORD_BYTES = 64 << 20
LINES = LogFraming(end=b"\n")  # the framing of a log of lines, which has no heading

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{16}) ")


def _checksum(scope: str, payload: bytes) -> bytes:
    return hashlib.sha256(scope.encode() + b"\0" + payload).hexdigest()[:16].encode()


def encode_line(scope: str, record: JSON) -> bytes:
    r"""Returns the line of one record, newline included. Raises ``StoreError`` if it is longer than 64 MiB.

    >>> encode_line("record/k", {"a": 1})
    b'00000007 6095dd3db46e8448 {"a":1}\n'
    """
    payload = canonical_json(record)
    if len(payload) > MAX_RECORD_BYTES:
        raise StoreError(f"a record of {len(payload)} bytes is longer than the {MAX_RECORD_BYTES} that the store keeps")
    return b"%08x %s %s\n" % (len(payload), _checksum(scope, payload), payload)


def decode_line(scope: str, line: bytes) -> JSON:
    """Returns the record on a line without its newline. Raises ``ValueError``, which names the fault."""
    head = _HEAD.match(line)
    if head is None:
        raise ValueError("not a record line")
    payload = line[head.end() :]
    if len(payload) != int(head[1], 16):
        raise ValueError(f"torn: {len(payload)} bytes of {int(head[1], 16)}")
    if head[2] != _checksum(scope, payload):
        raise ValueError("its checksum differs")
    return parse_json(payload)


DiskWrite: TypeAlias = Callable[[Callable[[], object]], bool]
"""Runs a function that writes to the disk of a store; returns whether it succeeded."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


def check_key(key: str) -> str:
    """Returns ``key``. Raises ``StoreError`` if it is not a valid file name on every system."""
    if not _KEY.fullmatch(key):
        raise StoreError(f"not a store key: {key!r}; letters, digits, '_', '-' and '.', at most 200, no '.' first")
    return key


class MemoryRecords:
    """Records that only this process has.

    >>> records = MemoryRecords()
    >>> records.append("k", {"a": 1})
    >>> list(records.read("k"))
    [{'a': 1}]
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}

    def append(self, key: str, record: JSON) -> None:
        """Adds one record."""
        self._lines.setdefault(check_key(key), []).append(canonical_json(record))

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Adds the records that the list does not hold yet."""
        lines = self._lines.setdefault(check_key(key), [])
        known_lines = set(lines)
        lines += [line for record in records if (line := canonical_json(record)) not in known_lines]

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Adds the record that ``judge`` returns, given all records of the key.

        If it returns None, nothing is added.
        """
        record = judge(self.read(key))
        if record is not None:
            self.append(key, record)
        return record

    def read(self, key: str) -> Iterator[JSON]:
        """Returns all records of the key, in the order in which they were appended."""
        return (parse_json(line) for line in tuple(self._lines.get(check_key(key), ())))

    def keys(self) -> tuple[str, ...]:
        """Returns the keys that have records, sorted."""
        return tuple(sorted(self._lines))


class DiskRecords:
    """Records in one directory, an :class:`~silo.store.records.AppendLog` of lines for each key.

    Readers skip a torn line, and the next writer ends it with a newline. After each append, ``wrote`` is called with
    the number of bytes.
    """

    def __init__(self, directory: Path, notices: Notices, wrote: Callable[[int], None] = lambda _: None) -> None:
        self._wrote = wrote
        self._directory = directory
        self._notices = notices
        self._logs: dict[str, AppendLog] = {}

    def _log(self, key: str) -> AppendLog:
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = AppendLog(self._directory / f"{check_key(key)}.jsonl", LINES, open_private)
        return log

    def append(self, key: str, record: JSON) -> None:
        """Adds one record, atomically and durably.

        Raises ``OSError`` if the disk refuses; earlier records are unchanged.
        """
        line = encode_line(f"record/{key}", record)
        self._write(key, lambda _: line)

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Adds the records that the list does not hold yet, all or none.

        Raises ``OSError`` if the disk refuses.
        """
        lines = dict.fromkeys(encode_line(f"record/{key}", record) for record in records)

        def missing(file: LogFile) -> bytes:
            present_lines = {line + b"\n" for line in file.read_all().split(b"\n")}
            return b"".join(line for line in lines if line not in present_lines)

        self._write(key, missing)

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Adds the record that ``judge`` returns, given all records of the key. If it returns None, nothing is added.

        No other process adds a record meanwhile. Raises ``OSError`` if the disk refuses.
        """
        added: list[JSON] = [None]

        def made(file: LogFile) -> bytes:
            added[0] = judge(self._decoded(key, file.read_all()))
            return b"" if added[0] is None else encode_line(f"record/{key}", added[0])

        self._write(key, made)
        return added[0]

    def _write(self, key: str, record_of: Callable[[LogFile], bytes]) -> None:
        """Locks the log, and appends the lines that ``record_of`` returns for it."""
        log = self._log(key)
        make_directory(self._directory)
        with log.writing() as file:
            if lines := record_of(file):
                file.append(lines)
        self._wrote(len(lines))

    def read(self, key: str) -> Iterator[JSON]:
        """Yields every whole record of the key, in the order in which they were appended.

        Damaged lines are skipped, which is logged once.
        """
        log = self._log(key)
        path = log.path
        try:
            with log.reading() as file:
                data = file.read_all()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._notices.once(f"read {path}", f"records {path.name} cannot be read: {error.strerror}; taken as absent")
            return
        yield from self._decoded(key, data)

    def _decoded(self, key: str, data: bytes) -> Iterator[JSON]:
        path = self._log(key).path
        for number, line in enumerate(data.split(b"\n"), start=1):
            if not line:
                continue
            try:
                record = decode_line(f"record/{key}", line)
            except ValueError as error:
                self._notices.once(f"damaged {path}", f"{path}: line {number} is not a whole record ({error}); skipped")
                continue
            yield record

    def keys(self) -> tuple[str, ...]:
        """Returns the keys that have records, sorted."""
        return tuple(sorted(path.stem for path in self._directory.glob("*.jsonl") if _KEY.fullmatch(path.stem)))


class FallbackRecords:
    """Records on disk, followed by the records of this process that the disk refused."""

    def __init__(self, write: DiskWrite, disk: DiskRecords) -> None:
        self._write = write
        self._disk = disk
        self._memory = MemoryRecords()

    def append(self, key: str, record: JSON) -> None:
        """Adds one record."""
        if not self._write(lambda: self._disk.append(key, record)):
            self._memory.append(key, record)

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Adds the records that the list does not hold yet."""
        if not self._write(lambda: self._disk.extend(key, records)):
            disk_lines = {canonical_json(record) for record in self._disk.read(key)}
            self._memory.extend(key, [record for record in records if canonical_json(record) not in disk_lines])

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Adds the record that ``judge`` returns, given all records of the key.

        If it returns None, nothing is added.
        """
        added: list[JSON] = []
        memory = tuple(self._memory.read(key))
        if self._write(lambda: added.append(self._disk.append_judged(key, lambda disk: judge(chain(disk, memory))))):
            return added[-1]
        record = judge(self.read(key))
        if record is not None:
            self._memory.append(key, record)
        return record

    def read(self, key: str) -> Iterator[JSON]:
        """Yields every whole record of the key, in the order in which they were appended."""
        return chain(self._disk.read(key), self._memory.read(key))

    def keys(self) -> tuple[str, ...]:
        """Returns the keys that have records, sorted."""
        return tuple(sorted({*self._disk.keys(), *self._memory.keys()}))

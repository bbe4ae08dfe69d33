"""An append-only log: one file to which many processes of a user add frames, each whole and durable.

An append is one ``O_APPEND`` write and fsync under a lock. A write that a full disk cuts short is taken back; a write
that a kill cuts short leaves a torn frame, over which readers go on. The layout of frames in the file is a value
(:class:`LogFraming`). The contents of frames are the user's, and so is the function that opens the file:
:func:`silo.store.privacy.open_private` in a store, :func:`silo.store.privacy.open_own` in any folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Self

from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import StoreError
from silo.frozen import frozen
from silo.store.atomic_files import sync_directory, write_all
from silo.store.locks import file_lock, is_file_at

__all__ = [
    "LINES",
    "MAX_RECORD_BYTES",
    "AppendLog",
    "CutLogError",
    "LogFile",
    "LogFraming",
    "decode_line",
    "encode_line",
]

_CHUNK = 1 << 20


class CutLogError(OSError):
    """A log became shorter while it was read."""


@frozen
class LogFraming:
    """The layout of frames in a log's file.

    ``heading`` makes the ``heading_bytes`` bytes that a new file begins with. ``end`` is the byte that every frame ends
    with, which is added to a torn frame before the next one; empty if readers find the next frame without it.
    """

    heading: Callable[[], bytes] | None = None
    heading_bytes: int = 0
    end: bytes = b""


class LogFile:
    """A log that is open, until the block ends; with a lock, if its file system has locks."""

    def __init__(self, path: Path, descriptor: int, framing: LogFraming) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._framing = framing
        self._is_locked = False

    @property
    def descriptor(self) -> int:
        """The open file. Only within the block."""
        assert self._descriptor is not None, "the log is closed"
        return self._descriptor

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self.descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        self._descriptor = None

    def read(self, offset: int, size: int) -> bytes:
        """The ``size`` bytes from ``offset`` on.

        Raises:
            CutLogError: the file has fewer.
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
        """Every byte that is there now."""
        parts: list[bytes] = []
        offset = 0
        while part := os.pread(self.descriptor, _CHUNK, offset):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def begin(self, *, is_locked: bool) -> bool:
        """Write the heading of a file without one (and so without frames). Returns whether it is new."""
        self._is_locked = is_locked
        size, framing = self.size, self._framing
        if framing.heading is not None and size < framing.heading_bytes:  # new, or its maker was killed meanwhile
            os.ftruncate(self.descriptor, 0)
            write_all(self.descriptor, framing.heading())
            return True
        return size == 0

    def append(self, frames: bytes) -> None:
        """Add whole frames, durably.

        Raises:
            OSError: the disk refuses; the frames that were there stay.
        """
        size, end = self.size, self._framing.end
        if end and size and os.pread(self.descriptor, 1, size - 1) != end:
            frames = end + frames
        try:
            write_all(self.descriptor, frames)
            # Under the lock too, so that whatever a reader has seen is durable.
            os.fsync(self.descriptor)
        except OSError:
            if self._is_locked:  # only then is it certain that no process has appended since
                with contextlib.suppress(OSError):
                    os.ftruncate(self.descriptor, size)
            raise


class AppendLog:
    """The log at one path. Usable from many threads: nothing is held open between calls.

    Args:
        opened: opens the file at a path with flags of ``os.open``, and refuses a file that is not this user's alone.
    """

    def __init__(self, path: Path, framing: LogFraming, opened: Callable[[Path, int], int]) -> None:
        self.path = path
        self._framing = framing
        self._opened = opened
        self._is_named = False  # whether this process has made the file's name durable

    @contextlib.contextmanager
    def writing(self) -> Generator[LogFile]:
        """Keep readers and other writers out; the file is made if it is missing.

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
                if not is_file_at(self.path, descriptor):  # it was removed while this process waited
                    continue
                if file.begin(is_locked=is_locked) or not self._is_named:
                    sync_directory(self.path.parent)
                    self._is_named = True
                yield file
                return

    @contextlib.contextmanager
    def reading(self) -> Generator[LogFile]:
        """Keep writers out while the file is read. Nothing is written or made.

        Raises:
            FileNotFoundError: the file does not exist.
            HeldLockError: another process holds the lock for longer than ``SILO_LOCK_WAIT``.
            OSError: the file cannot be opened.
        """
        descriptor = self._opened(self.path, os.O_RDONLY)
        with LogFile(self.path, descriptor, self._framing) as file, file_lock(descriptor, self.path, exclusive=False):
            yield file


# ---- Records on lines: frames of JSON that a torn, altered or foreign line is never taken for ----

# ``LENGTH CHECKSUM PAYLOAD\n``: eight hex digits, sixteen hex digits, then canonical JSON. The checksum covers a scope
# (what the record belongs to) as well, so a line copied under another name does not count either.
MAX_RECORD_BYTES = 64 << 20
LINES = LogFraming(end=b"\n")  # of a log of these lines

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{16}) ")


def _checksum(scope: str, payload: bytes) -> bytes:
    return hashlib.sha256(scope.encode() + b"\0" + payload).hexdigest()[:16].encode()


def encode_line(scope: str, record: JSON) -> bytes:
    r"""The line of one record, newline included; ``StoreError`` when it is longer than 64 MiB.

    >>> encode_line("record/k", {"a": 1})
    b'00000007 6095dd3db46e8448 {"a":1}\n'
    """
    payload = canonical_json(record)
    if len(payload) > MAX_RECORD_BYTES:
        raise StoreError(f"a record of {len(payload)} bytes is longer than the {MAX_RECORD_BYTES} that the store keeps")
    return b"%08x %s %s\n" % (len(payload), _checksum(scope, payload), payload)


def decode_line(scope: str, line: bytes) -> JSON:
    """The record on one line without its newline; ``ValueError`` names its fault."""
    head = _HEAD.match(line)
    if head is None:
        raise ValueError("not a record line")
    payload = line[head.end() :]
    if len(payload) != int(head[1], 16):
        raise ValueError(f"torn: {len(payload)} bytes of {int(head[1], 16)}")
    if head[2] != _checksum(scope, payload):
        raise ValueError("its checksum differs")
    return parse_json(payload)

"""The journal of a recording: a file beside the bundle, to which many processes append at once.

The file begins with 32 bytes that no other journal has: a folded one is removed, and the next may get its inode.
After them come records. A record is a JSON document and some bytes, in one frame::

    16 bytes  MARK, which begins every frame
     4 bytes  length of the document, little-endian
     8 bytes  length of the bytes
    32 bytes  sha256 over both
              the document (canonical JSON), the bytes

An append is one write at the end under a lock. One that was cut short, by a kill or a full disk, leaves a torn frame,
which readers pass over: they go on at the next mark. So nothing that was recorded before or after it is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import BundleError
from silo.store.files import file_lock, write_all

__all__ = ["Journal", "JournalPlace", "Record", "journal_of"]

MARK = b"SILO-JOURNAL/1\r\n"
_NAME = b"SILO-JOURNAL-ID:"
_NAMED_BYTES = len(_NAME) + 16
_HEAD = struct.Struct("<IQ32s")
_MOST_DOCUMENT = 16 << 20


@dataclass(frozen=True)
class Record:
    """One record: what it says, and its bytes."""

    document: JSON
    data: bytes


@dataclass(frozen=True)
class JournalPlace:
    """How far somebody has read: which journal, by the bytes that it begins with, and up to where."""

    identity: bytes = b""
    position: int = 0


def journal_of(bundle: Path) -> Path:
    """The journal of what is recorded into a bundle."""
    return bundle.with_name(f"{bundle.name}.journal")


class Journal:
    """The journal at one path. Nothing is held open between calls, so a child made by fork uses it, too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: tuple[int, int] | None = None  # the descriptor under lock, and the process that holds it

    @property
    def _locked(self) -> int | None:
        """The descriptor under this process's lock; one that a fork inherited is the parent's."""
        return self._held[0] if self._held is not None and self._held[1] == os.getpid() else None

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Keep other writers out, for as long as it takes; the file is made where it is missing.

        Raises:
            BundleError: it cannot be written.
        """
        if self._locked is not None:
            yield
            return
        while True:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise BundleError(
                    f"nothing can be recorded: the journal {self.path} cannot be written: {error.strerror}"
                ) from error
            try:
                with file_lock(descriptor, exclusive=True):
                    if not self._is(descriptor):  # it was folded while this process waited
                        continue
                    self._name(descriptor)
                    self._held = (descriptor, os.getpid())
                    try:
                        yield
                    finally:
                        self._held = None
                    return
            finally:
                os.close(descriptor)

    def _name(self, descriptor: int) -> None:
        """Give a new journal its first bytes; also one whose maker was killed meanwhile, which holds no record yet."""
        if os.fstat(descriptor).st_size >= _NAMED_BYTES:
            return
        try:
            os.ftruncate(descriptor, 0)
            write_all(descriptor, _NAME + os.urandom(_NAMED_BYTES - len(_NAME)))
        except OSError as error:
            raise BundleError(
                f"nothing can be recorded: the journal {self.path} cannot be written: {error.strerror}"
            ) from error

    def append(self, document: JSON, data: bytes = b"") -> None:
        """Add one record. Between ``with locked()``.

        Raises:
            BundleError: the disk refuses; what was recorded before is as it was.
        """
        assert self._locked is not None
        text = canonical_json(document)
        digest = hashlib.sha256(text + data).digest()
        frame = b"".join((MARK, _HEAD.pack(len(text), len(data), digest), text, data))
        size = os.fstat(self._locked).st_size
        try:
            write_all(self._locked, frame)
            os.fsync(self._locked)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._locked, size)
            raise BundleError(
                f"nothing more can be recorded: the journal {self.path} cannot be written: {error.strerror}"
            ) from error

    def remove(self) -> None:
        """Take the file away: all that it says lies in the bundle now. Between ``with locked()``."""
        assert self._locked is not None
        self.path.unlink(missing_ok=True)

    def read(self, since: JournalPlace = JournalPlace()) -> tuple[list[Record], JournalPlace]:  # a constant
        """The whole records after a place, in their order, and the place after them.

        Of another file than that of the place, all of them. Torn frames are passed over.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return [], JournalPlace()
        except OSError as error:
            raise BundleError(f"the journal {self.path} cannot be read: {error.strerror}") from error
        try:
            if self._locked is not None:
                return _read(descriptor, since)
            with file_lock(descriptor, exclusive=False):
                return _read(descriptor, since)
        finally:
            os.close(descriptor)

    def _is(self, descriptor: int) -> bool:
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return False
        held = os.fstat(descriptor)
        return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)


def _read(descriptor: int, since: JournalPlace) -> tuple[list[Record], JournalPlace]:
    status = os.fstat(descriptor)
    identity = os.pread(descriptor, _NAMED_BYTES, 0)
    start = since.position if identity == since.identity and since.position <= status.st_size else 0
    data = os.pread(descriptor, status.st_size - start, start)
    while len(data) < status.st_size - start:  # a read of more than 2 GiB is cut short
        more = os.pread(descriptor, status.st_size - start - len(data), start + len(data))
        if not more:
            break
        data += more
    records = list(_frames(data))
    # What is torn at the end is looked at again: it ends where the next frame begins.
    end = records[-1][0] if records else 0
    return [record for _, record in records], JournalPlace(identity, start + end)


def _frames(data: bytes) -> Iterator[tuple[int, Record]]:
    """Each whole record, with where its frame ends."""
    at = data.find(MARK)
    while at >= 0:
        found = _frame(data, at)
        if found is None:
            at = data.find(MARK, at + 1)
            continue
        yield found
        at = data.find(MARK, found[0])


def _frame(data: bytes, at: int) -> tuple[int, Record] | None:
    begin = at + len(MARK) + _HEAD.size
    if begin > len(data):
        return None
    length, size, digest = _HEAD.unpack_from(data, at + len(MARK))
    end = begin + length + size
    if length > _MOST_DOCUMENT or end > len(data):
        return None
    body = data[begin:end]
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        document = parse_json(body[:length])
    except ValueError:
        return None
    return end, Record(document, body[length:])

"""The journal of a recording: a file beside the bundle, to which many processes of one user append at once.

The file begins with 32 bytes that identify the journal, half of them random: after a journal was folded into its bundle
and removed, the next one may get the same inode. Records follow. A record is a JSON document and some bytes, in one
frame::

    16 bytes  MARK, which begins every frame
     4 bytes  length of the document as it is stored, little-endian
     8 bytes  length of the bytes as they are stored
    32 bytes  sha256 over both
              the document (canonical JSON), the bytes

The journal is an :class:`~silo.store.records.AppendLog`. Readers skip a torn frame and continue at the next mark, so no
record before or after a torn frame is lost. Stored texts never contain a mark (:func:`_stored`), so a frame with a mark
inside is torn, and the time to read a file grows only linearly with its size.

The folder may belong to anybody, so the journal is opened by :func:`silo.store.privacy.open_own`: a link, another
user's file or a file that others may write is refused. The lock is taken on the journal itself, because no other user
can open the journal.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import BundleError
from silo.settings import settings
from silo.store.privacy import NotPrivateError, open_own
from silo.store.records import AppendLog, CutLogError, LogFile, LogFraming

__all__ = ["Journal", "JournalPlace", "JournalRecord", "journal_of"]

MARK = b"SILO-JOURNAL/1\r\n"
_NAME = b"SILO-JOURNAL-ID:"
_NAMED_BYTES = len(_NAME) + 16
_HEAD = struct.Struct("<IQ32s")
_MOST_DOCUMENT = 16 << 20
_CHUNK = 1 << 20
_WORD = MARK[:-2]  # the beginning of a mark; in stored texts a zero byte follows it


def _new_name() -> bytes:
    return _NAME + os.urandom(_NAMED_BYTES - len(_NAME))


_FRAMING = LogFraming(_new_name, _NAMED_BYTES)


class JournalRecord:
    """One record: its document, and its bytes, which can be read while the journal is open."""

    def __init__(self, document: JSON, file: _File, offset: int, size: int) -> None:
        self.document = document
        self._file = file
        self._offset = offset
        self._size = size

    def read_bytes(self) -> bytes:
        """Reads the bytes, at most ``SILO_FILE_BYTES``. Raises ``BundleError`` if the file has been truncated."""
        return self._file.read(self._offset, self._size).replace(_WORD + b"\0", _WORD)


@dataclass(frozen=True)
class JournalPlace:
    """A position up to which a journal was read, with the bytes that identify the journal."""

    identity: bytes = b""
    position: int = 0


def journal_of(bundle: Path) -> Path:
    """The path of the journal for a recording into a bundle."""
    return bundle.with_name(f"{bundle.name}.journal")


class Journal:
    """The journal at one path, for one thread at a time.

    No file is open between calls, so a child made by fork can use it too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = AppendLog(path, _FRAMING, open_own)
        self._held: tuple[_File, int] | None = None  # the locked file, and the id of the process that locked it

    @property
    def _locked(self) -> _File | None:
        """The file that this process has locked, or None; a lock inherited by fork belongs to the parent."""
        return self._held[0] if self._held is not None and self._held[1] == os.getpid() else None

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Excludes other writers inside of the block; the file is created if it is missing.

        Raises:
            BundleError: the file cannot be written, other users can access it, or another process holds its lock for
                longer than ``SILO_LOCK_WAIT``.
        """
        if self._locked is not None:
            yield
            return
        with contextlib.ExitStack() as stack:
            try:
                self._held = (_File(stack.enter_context(self._log.writing())), os.getpid())
            except OSError as error:
                raise self._refusal("nothing can be recorded", error) from error
            try:
                yield
            finally:
                self._held = None

    @contextlib.contextmanager
    def shared(self) -> Generator[bool]:
        """Excludes writers inside of the block, so that the block can read; yields False if there is no journal.

        Nothing is written or created.

        Raises:
            BundleError: the journal cannot be read, other users can access it, or another process holds its lock for
                longer than ``SILO_LOCK_WAIT``.
        """
        with contextlib.ExitStack() as stack:
            exists = self._locked is not None
            if not exists:
                try:
                    file = _File(stack.enter_context(self._log.reading()))
                    self._held, exists = (file, os.getpid()), True
                    stack.callback(self._let_go)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    raise self._refusal("what was recorded cannot be read", error) from error
            yield exists

    def _let_go(self) -> None:
        self._held = None

    def _refusal(self, label: str, error: OSError) -> BundleError:
        reason = error.strerror or str(error)
        if isinstance(error, NotPrivateError):
            remedy = "if you know what it holds, mend it with chmod go-w; else " if "others may write" in reason else ""
            reason += f"; {remedy}remove it, or name a file in a folder of your own"
        return BundleError(f"{label}: the journal {self.path} cannot be used: {reason}")

    def append(self, document: JSON, data: bytes = b"") -> None:
        """Appends one record; only inside of ``with locked()``.

        Raises:
            BundleError: the record is larger than ``SILO_FILE_BYTES``, or the disk refuses; earlier records are
                unchanged.
        """
        file = self._locked
        assert file is not None
        text, stored = _stored(canonical_json(document)), _stored(data)
        if len(text) > _MOST_DOCUMENT or len(text) + len(stored) > settings().file_bytes:
            raise BundleError(
                f"a record of {len(text) + len(stored)} bytes cannot be kept in {self.path}, for readers take "
                f"{settings().file_bytes}: raise SILO_FILE_BYTES, here and wherever it is used"
            )
        digest = hashlib.sha256(text)
        digest.update(stored)
        frame = b"".join((MARK, _HEAD.pack(len(text), len(stored), digest.digest()), text, stored))
        try:
            file.log.append(frame)
        except OSError as error:
            raise BundleError(
                f"nothing more can be recorded: the journal {self.path} cannot be written: {error.strerror}"
            ) from error

    def remove(self) -> None:
        """Removes the file after all its records were written to the bundle; only inside of ``with locked()``."""
        assert self._locked is not None
        self.path.unlink(missing_ok=True)

    def read(
        self,
        take: Callable[[JournalRecord], object] = lambda _: None,
        since: JournalPlace = JournalPlace(),  # immutable, so it may be a default
    ) -> JournalPlace:
        """Calls ``take`` with each complete record after the position ``since``, in order.

        Returns the position after them.

        If ``since`` belongs to an earlier journal, all records are read. Torn frames are skipped. The bytes of a record
        can be read until this method returns; inside of ``with locked()`` or ``with shared()``, until that ends.

        Raises:
            BundleError: see :meth:`shared`.
        """
        with self.shared() as file:
            return _read(self._locked, take, since) if file and self._locked is not None else JournalPlace()


class _File:
    """An open journal file, with functions to find marks in it."""

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self._window = (0, b"")  # the position of the bytes in which marks were last searched, and these bytes

    @property
    def size(self) -> int:
        return self.log.size

    def read(self, offset: int, size: int) -> bytes:
        """Reads ``size`` bytes at ``offset``."""
        try:
            return self.log.read(offset, size)
        except CutLogError:
            raise BundleError(f"the journal {self.log.path} was cut while it was read") from None

    def find_mark(self, at: int, end: int) -> int:
        """The position of the first mark from ``at`` to ``end``; ``end`` if there is none.

        Skips holes of a sparse file.
        """
        while end - at >= len(MARK):
            start, data = self._window
            if not start <= at <= start + len(data) - len(MARK):
                at = self._next_data(at, end)
                start, data = self._window = at, self.read(at, min(_CHUNK, self.size - at))
            offset = data.find(MARK, at - start, end - start)
            if offset >= 0:
                return start + offset
            at = max(at, start + len(data) - len(MARK)) + 1
        return end

    def _next_data(self, at: int, end: int) -> int:
        """The position of the next bytes that are not in a hole of a sparse file."""
        try:
            return min(max(at, os.lseek(self.log.descriptor, at, os.SEEK_DATA)), end)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the rest of the file is a hole
                return end
            return at  # the file system does not report holes


def _read(file: _File, take: Callable[[JournalRecord], object], since: JournalPlace) -> JournalPlace:
    size = file.size
    identity = os.pread(file.log.descriptor, _NAMED_BYTES, 0)
    # A newer frame may begin inside of an incomplete frame at the end, so the incomplete frame is read again.
    end = since.position if identity == since.identity and since.position <= size else 0
    at = file.find_mark(end, size)
    while at < size:
        frame = _frame(file, at, size)
        if frame is None:
            at = file.find_mark(at + 1, size)
            continue
        record, end = frame
        take(record)
        at = file.find_mark(end, size)
    return JournalPlace(identity, end)


def _frame(file: _File, at: int, size: int) -> tuple[JournalRecord, int] | None:
    """The complete frame that begins at ``at``, and its end; None if it is torn, or larger than the limit."""
    begin = at + len(MARK) + _HEAD.size
    if begin > size:
        return None
    text_bytes, data_bytes, digest = _HEAD.unpack(file.read(at + len(MARK), _HEAD.size))
    end = begin + text_bytes + data_bytes
    if text_bytes > _MOST_DOCUMENT or end > size or end - begin > settings().file_bytes:
        return None
    if file.find_mark(at + 1, end) < end or _sha256(file, begin, end) != digest:
        return None
    try:
        document = parse_json(file.read(begin, text_bytes).replace(_WORD + b"\0", _WORD))
    except ValueError:
        return None
    return JournalRecord(document, file, begin + text_bytes, data_bytes), end


def _sha256(file: _File, begin: int, end: int) -> bytes:
    digest = hashlib.sha256()
    for offset in range(begin, end, _CHUNK):
        digest.update(file.read(offset, min(_CHUNK, end - offset)))
    return digest.digest()


def _stored(text: bytes) -> bytes:
    r"""A text as a frame stores it: a zero is inserted after each ``_WORD``, so that it contains no mark.

    >>> _stored(b"a SILO-JOURNAL/1\r\n b")
    b'a SILO-JOURNAL/1\x00\r\n b'
    """
    return text.replace(_WORD, _WORD + b"\0")

"""Records: append-only lists of JSON by key, one framed line each (``records/<key>.jsonl``)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from silo.core.notices import Notices
from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import StoreError
from silo.forks import Mutex
from silo.store.files import make_directory, sync_directory, write_all
from silo.store.framing import decode_line, encode_line
from silo.store.locks import HeldLockError, file_lock
from silo.store.privacy import open_private

__all__ = ["DiskRecords", "MemoryRecords", "check_key"]

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


def check_key(key: str) -> str:
    """``key`` itself; ``StoreError`` when it cannot be a file name everywhere."""
    if not _KEY.fullmatch(key):
        raise StoreError(f"not a store key: {key!r}; letters, digits, '_', '-' and '.', at most 200, no '.' first")
    return key


class MemoryRecords:
    """Records of this process only.

    >>> records = MemoryRecords()
    >>> records.append("k", {"a": 1})
    >>> list(records.read("k"))
    [{'a': 1}]
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}

    def append(self, key: str, record: JSON) -> None:
        """Add one record."""
        self._lines.setdefault(check_key(key), []).append(canonical_json(record))

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Add those records that the list does not hold yet."""
        lines = self._lines.setdefault(check_key(key), [])
        known = set(lines)
        lines += [line for record in records if (line := canonical_json(record)) not in known]

    def read(self, key: str) -> Iterator[JSON]:
        """Every record of the key, in the order they were appended."""
        return (parse_json(line) for line in tuple(self._lines.get(check_key(key), ())))

    def keys(self) -> tuple[str, ...]:
        """The keys that have records, sorted."""
        return tuple(sorted(self._lines))


class DiskRecords:
    """Records in one directory, appended to by many processes at once.

    An append is one ``O_APPEND`` write and fsync under a lock. A write cut short by a full disk is taken back; one
    cut short by a kill leaves a torn line, which readers skip and the next writer closes with a newline first.
    """

    def __init__(self, directory: Path, notices: Notices) -> None:
        self._directory = directory
        self._notices = notices
        self._lock = Mutex()
        self._named: set[str] = set()  # keys whose file name this process has made durable

    def _path(self, key: str) -> Path:
        return self._directory / f"{check_key(key)}.jsonl"

    def append(self, key: str, record: JSON) -> None:
        """Add one record, atomically and durably. ``OSError`` when the disk refuses; nothing kept is lost."""
        line = encode_line(f"record/{key}", record)
        self._write(key, lambda _: line)

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Add those records that the list does not hold yet, all or none. ``OSError`` when the disk refuses."""
        lines = dict.fromkeys(encode_line(f"record/{key}", record) for record in records)

        def missing(descriptor: int) -> bytes:
            with os.fdopen(os.dup(descriptor), "rb") as file:
                file.seek(0)
                known = {line + b"\n" for line in file.read().split(b"\n")}
            return b"".join(line for line in lines if line not in known)

        self._write(key, missing)

    def _write(self, key: str, made: Callable[[int], bytes]) -> None:
        """Append what ``made`` says under the lock, of the open file."""
        path = self._path(key)
        make_directory(self._directory)
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            with file_lock(descriptor, path, exclusive=True) as locked:
                if text := made(descriptor):
                    _append_text(descriptor, text, locked=locked)
        finally:
            os.close(descriptor)
        with self._lock:
            new = key not in self._named
            self._named.add(key)
        if new:
            sync_directory(self._directory)

    def read(self, key: str) -> Iterator[JSON]:
        """Every whole record of the key, in the order they were appended; damaged lines are skipped, told once."""
        path = self._path(key)
        try:
            descriptor = open_private(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._notices.once(f"read {path}", f"records {path.name} cannot be read: {error.strerror}; taken as absent")
            return
        try:
            with os.fdopen(descriptor, "rb") as file, file_lock(descriptor, path, exclusive=False):
                data = file.read()
        except HeldLockError as error:
            self._notices.once(f"read {path}", f"records {path.name} cannot be read: {error.strerror}; taken as absent")
            return
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
        """The keys that have records, sorted."""
        return tuple(sorted(path.stem for path in self._directory.glob("*.jsonl") if _KEY.fullmatch(path.stem)))


def _append_text(descriptor: int, text: bytes, *, locked: bool) -> None:
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        text = b"\n" + text
    try:
        write_all(descriptor, text)
        # Under the lock too, so that whatever a reader has seen is durable.
        os.fsync(descriptor)
    except OSError:
        # Only under the lock is it certain that nobody has appended since.
        if locked:
            os.ftruncate(descriptor, size)
        raise

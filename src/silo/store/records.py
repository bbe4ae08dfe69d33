"""Records: append-only lists of JSON by key, one framed line each (``records/<key>.jsonl``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from silo.core.notices import Notices
from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import StoreError
from silo.store.append_log import LINES, AppendLog, LogFile, decode_line, encode_line
from silo.store.atomic_files import make_directory
from silo.store.privacy import open_private

__all__ = ["DiskRecords", "DiskWrite", "FallbackRecords", "MemoryRecords", "check_key"]

DiskWrite: TypeAlias = Callable[[Callable[[], object]], bool]
"""Lets a write through to the disk of a store, and returns whether it got there."""

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

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Add the record that ``judge`` returns of all records of the key; None adds nothing."""
        record = judge(self.read(key))
        if record is not None:
            self.append(key, record)
        return record

    def read(self, key: str) -> Iterator[JSON]:
        """Every record of the key, in the order they were appended."""
        return (parse_json(line) for line in tuple(self._lines.get(check_key(key), ())))

    def keys(self) -> tuple[str, ...]:
        """The keys that have records, sorted."""
        return tuple(sorted(self._lines))


class DiskRecords:
    """Records in one directory, an :class:`~silo.store.append_log.AppendLog` of lines for each key.

    Readers skip a torn line, and the next writer closes it with a newline.
    """

    def __init__(self, directory: Path, notices: Notices) -> None:
        self._directory = directory
        self._notices = notices
        self._logs: dict[str, AppendLog] = {}

    def _log(self, key: str) -> AppendLog:
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = AppendLog(self._directory / f"{check_key(key)}.jsonl", LINES, open_private)
        return log

    def append(self, key: str, record: JSON) -> None:
        """Add one record, atomically and durably. ``OSError`` when the disk refuses; nothing kept is lost."""
        line = encode_line(f"record/{key}", record)
        self._write(key, lambda _: line)

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Add those records that the list does not hold yet, all or none. ``OSError`` when the disk refuses."""
        lines = dict.fromkeys(encode_line(f"record/{key}", record) for record in records)

        def missing(file: LogFile) -> bytes:
            known = {line + b"\n" for line in file.read_all().split(b"\n")}
            return b"".join(line for line in lines if line not in known)

        self._write(key, missing)

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Add the record that ``judge`` returns of all records of the key; None adds nothing.

        No other process adds one meanwhile. ``OSError`` when the disk refuses.
        """
        added: list[JSON] = [None]

        def made(file: LogFile) -> bytes:
            added[0] = judge(self._decoded(key, file.read_all()))
            return b"" if added[0] is None else encode_line(f"record/{key}", added[0])

        self._write(key, made)
        return added[0]

    def _write(self, key: str, made: Callable[[LogFile], bytes]) -> None:
        """Append the lines that ``made`` returns of the log that this process has locked."""
        log = self._log(key)
        make_directory(self._directory)
        with log.writing() as file:
            if lines := made(file):
                file.append(lines)

    def read(self, key: str) -> Iterator[JSON]:
        """Every whole record of the key, in the order they were appended; damaged lines are skipped, told once."""
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
        """The keys that have records, sorted."""
        return tuple(sorted(path.stem for path in self._directory.glob("*.jsonl") if _KEY.fullmatch(path.stem)))


class FallbackRecords:
    """Records on disk, followed by records of this process that the disk refused."""

    def __init__(self, write: DiskWrite, disk: DiskRecords) -> None:
        self._write = write
        self._disk = disk
        self._memory = MemoryRecords()

    def append(self, key: str, record: JSON) -> None:
        """Add one record."""
        if not self._write(lambda: self._disk.append(key, record)):
            self._memory.append(key, record)

    def extend(self, key: str, records: Sequence[JSON]) -> None:
        """Add those records that the list does not hold yet."""
        if not self._write(lambda: self._disk.extend(key, records)):
            here = {canonical_json(record) for record in self._disk.read(key)}
            self._memory.extend(key, [record for record in records if canonical_json(record) not in here])

    def append_judged(self, key: str, judge: Callable[[Iterator[JSON]], JSON]) -> JSON:
        """Add the record that ``judge`` returns of all records of the key; None adds nothing."""
        added: list[JSON] = []
        memory = tuple(self._memory.read(key))
        if self._write(lambda: added.append(self._disk.append_judged(key, lambda disk: judge(chain(disk, memory))))):
            return added[-1]
        record = judge(self.read(key))
        if record is not None:
            self._memory.append(key, record)
        return record

    def read(self, key: str) -> Iterator[JSON]:
        """Every whole record of the key, in the order they were appended."""
        return chain(self._disk.read(key), self._memory.read(key))

    def keys(self) -> tuple[str, ...]:
        """The keys that have records, sorted."""
        return tuple(sorted({*self._disk.keys(), *self._memory.keys()}))

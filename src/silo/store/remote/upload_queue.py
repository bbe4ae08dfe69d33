"""The upload queue: objects sent to a remote store in the background; and the form in which records are sent.

A fold is one object that holds the lines of several records, each exactly as it would be sent alone. So a list consists
of the lines in folds and in single objects, and a repeated line counts once. A fold never changes and replaces nothing:
its name is the SHA-256 of its bytes and the number of its lines.
"""

from __future__ import annotations

import atexit
import hashlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from silo.core.values import JSON
from silo.errors import StoreError
from silo.forks import Condition
from silo.store.records import decode_line, encode_line
from silo.store.remote.object_protocol import MOST_LINE_BYTES

__all__ = [
    "AT_EXIT_S",
    "MOST_FOLDED",
    "UploadQueue",
    "digest_of",
    "fold_of",
    "is_fold",
    "line_of",
    "verified_fold",
    "verified_line",
]

# The most bytes of a fold: as many as a single line may have.
MOST_FOLDED = MOST_LINE_BYTES

_FOLD = re.compile(r"[0-9a-f]{64}\.[1-9][0-9]{0,5}")


def line_of(key: str, record: JSON) -> bytes:
    """Returns the line of a record, in the form in which it is stored and sent."""
    return encode_line(f"record/{key}", record)


def digest_of(line: bytes) -> str:
    """Returns the name of a line: its SHA-256."""
    return hashlib.sha256(line).hexdigest()


def fold_of(lines: Sequence[bytes]) -> tuple[str, bytes]:
    r"""Makes one object of lines of a list; returns the last part of the object's name, and the object's bytes.

    >>> fold_of([b"a\n", b"b\n"])[0][-4:]
    'a2.2'
    """
    data = b"".join(lines)
    return f"{hashlib.sha256(data).hexdigest()}.{len(lines)}", data


def is_fold(name: str) -> bool:
    """Returns whether a fold (several lines in one object) can have a name with this last part."""
    return _FOLD.fullmatch(name) is not None


def verified_line(key: str, digest: str, line: bytes) -> JSON:
    """Returns the record on a line that another machine sent.

    Raises ``ValueError`` if the line is torn, or belongs to another key or name.
    """
    if digest_of(line) != digest:
        raise ValueError("its sha256 differs")
    if not line.endswith(b"\n"):
        raise ValueError("it is torn")
    record = decode_line(f"record/{key}", line[:-1])
    try:
        same = line_of(key, record) == line
    except (StoreError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not same:
        raise ValueError("it is not in canonical form")
    return record


def verified_fold(key: str, name: str, data: bytes) -> dict[str, JSON]:
    """Returns the records of a fold by the names of their lines.

    Raises ``ValueError`` if the fold contradicts its name.
    """
    lines = [line + b"\n" for line in data.removesuffix(b"\n").split(b"\n")]  # canonical JSON never contains a newline
    if f"{digest_of(data)}.{len(lines)}" != name or not data.endswith(b"\n"):
        raise ValueError("its sha256 or its number of lines differs")
    return {digest: verified_line(key, digest, line) for line in lines for digest in (digest_of(line),)}


AT_EXIT_S = 5.0
_MOST_OBJECTS = 32768
_MOST_BYTES = 128 << 20
_THREADS = 8
_IDLE_S = 2.0  # a thread that has nothing to send for so long ends


@dataclass(frozen=True)
class _Item:
    """One object that waits to be sent. ``number`` is its number in the order in which this queue received objects."""

    number: int
    name: str
    data: bytes


class UploadQueue:
    """A bounded queue, and the threads that empty it. Objects that do not fit are not sent, which is reported.

    Blobs are sent first, several at a time. An outcome or an artifact is sent once all blobs that were queued before it
    have been sent, so that no reader finds an entry without its code. Records are sent separately, one object at a time
    until a caller waits for the whole queue. Records of one list that arrive meanwhile are sent as one object
    (:func:`fold_of`), so a remote store that is slow, or to which many processes send at once, gets few large objects
    instead of many small ones.

    Args:
        deliver: sends one object, on any of several threads; returns whether to send more.
        not_sent: called with the number of objects that were not sent, and the reason.

    A forked child begins with an empty queue, because its parent sends the objects in the parent's queue.
    """

    def __init__(self, deliver: Callable[[str, bytes], bool], not_sent: Callable[[int, str], None]) -> None:
        self._deliver = deliver
        self._not_sent = not_sent
        self._changed = Condition()
        self._count = 0
        self._blobs: deque[_Item] = deque()
        self._entries: deque[_Item] = deque()
        self._records: deque[_Item] = deque()
        self._blobs_under_way: set[int] = set()
        self._lists_under_way = 0  # objects of records that are being sent
        self._awaited = 0  # threads that wait in flush()
        self._under_way = 0
        self._bytes = 0
        self._queued_names: set[str] = set()
        self._threads = 0
        self._idle = 0
        self._dropped = 0
        self._is_awaited_at_exit = False

    @property
    def waiting(self) -> int:
        """The number of objects that are not sent yet."""
        return self._queued + self._under_way

    @property
    def _queued(self) -> int:
        return len(self._blobs) + len(self._entries) + len(self._records)

    @property
    def _ready(self) -> int:
        """The largest number of threads that could be sending queued objects now."""
        return len(self._blobs) + len(self._entries) + (bool(self._records) and self._sends_records)

    @property
    def _sends_records(self) -> bool:
        return self._lists_under_way == 0 or self._awaited > 0

    def knows(self, name: str) -> None:
        """Records that an object need not be sent, because the remote store has it."""
        self._queued_names.add(name)

    def put(self, name: str, data: bytes) -> None:
        """Adds an object to the queue; returns at once."""
        with self._changed:
            if name in self._queued_names:
                return
            if self._queued >= _MOST_OBJECTS or self._bytes + len(data) > _MOST_BYTES:
                self._dropped += 1
                return
            self._queued_names.add(name)
            self._queue_of(name).append(_Item(self._count, name, data))
            self._count += 1
            self._bytes += len(data)
            if not self._is_awaited_at_exit:
                self._is_awaited_at_exit = True
                atexit.register(self._at_exit)
            self._staff()

    def _staff(self) -> None:
        """Wakes the threads, and starts one more if all of them are busy."""
        if self._idle < self._ready and self._threads < _THREADS:
            self._threads += 1
            threading.Thread(target=self._work, name=f"silo-outbox-{self._threads}", daemon=True).start()
        self._changed.notify_all()

    def _queue_of(self, name: str) -> deque[_Item]:
        part = name.partition("/")[0]
        return self._blobs if part == "blobs" else self._records if part == "records" else self._entries

    def flush(self, seconds: float) -> int:
        """Waits until the queue is empty, at most this long; returns the number of objects left."""
        end = time.monotonic() + seconds
        with self._changed:
            self._awaited += 1
            self._staff()
            while self.waiting and (remaining_s := end - time.monotonic()) > 0:
                self._changed.wait(remaining_s)
            self._awaited -= 1
            return self.waiting

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (items := self._next_batch()):
                    self._idle += 1
                    is_wanted = self._changed.wait(_IDLE_S)
                    self._idle -= 1
                    if not is_wanted and not self._queued:
                        self._leave()
                        return
                self._under_way += len(items)
                self._bytes -= sum(len(item.data) for item in items)
            name, data = (items[0].name, items[0].data) if len(items) == 1 else _folded(items)
            goes_on = self._deliver(name, data)
            with self._changed:
                self._under_way -= len(items)
                self._blobs_under_way.discard(items[0].number)
                if name.startswith("records/"):
                    self._lists_under_way -= 1
                if not goes_on:  # nothing more is to be sent
                    for queue in (self._blobs, self._entries, self._records):
                        queue.clear()
                    self._bytes = 0
                self._changed.notify_all()

    def _leave(self) -> None:
        """Records the end of a thread. The last thread unregisters the exit function, so that the queue is freed."""
        self._threads -= 1
        if not self._threads and not self._under_way and not self._dropped:
            self._is_awaited_at_exit = False
            atexit.unregister(self._at_exit)

    def _next_batch(self) -> list[_Item]:
        """Returns the queued objects that the next thread sends as one object; empty if all objects have to wait."""
        if self._records and self._sends_records:
            self._lists_under_way += 1
            return self._alike()
        if self._blobs:
            item = self._blobs.popleft()
            self._blobs_under_way.add(item.number)
            return [item]
        if self._entries and self._entries[0].number < min(self._blobs_under_way, default=self._count):
            return [self._entries.popleft()]
        return []

    def _alike(self) -> list[_Item]:
        """Dequeues and returns the first record, and as many more records of its list as fit into one object."""
        first = self._records.popleft()
        folder, size = _folder(first), len(first.data)
        batch, others = [first], deque[_Item]()
        while self._records:
            item = self._records.popleft()
            if _folder(item) == folder and size + len(item.data) <= MOST_FOLDED:
                batch.append(item)
                size += len(item.data)
            else:
                others.append(item)
        self._records = others
        return batch

    def _at_exit(self) -> None:
        if unsent := self.flush(AT_EXIT_S):
            self._not_sent(unsent, f"the program ended and {AT_EXIT_S:g} s were not enough")
        if self._dropped:
            self._not_sent(self._dropped, "they came faster than they could be sent")


def _folder(item: _Item) -> str:
    return item.name.rpartition("/")[0]


def _folded(items: list[_Item]) -> tuple[str, bytes]:
    digest, data = fold_of([item.data for item in items])
    return f"{_folder(items[0])}/{digest}", data

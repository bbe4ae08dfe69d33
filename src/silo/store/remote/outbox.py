"""The outbox: objects on their way to a remote store, sent by one thread, at the latest when the program ends."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["AT_EXIT_S", "Outbox"]

AT_EXIT_S = 5.0
_MOST_OBJECTS = 4096
_MOST_BYTES = 128 << 20


class Outbox:
    """A bounded queue, and the thread that empties it. What does not fit is not sent, which is told.

    Args:
        deliver: sends one object; whether there is a point in sending more.
        not_sent: is told how many objects were not sent, and why.

    A child made by fork begins with a new outbox: what lies in this one is the parent's to send.
    """

    def __init__(self, deliver: Callable[[str, bytes], bool], not_sent: Callable[[int, str], None]) -> None:
        self._deliver = deliver
        self._not_sent = not_sent
        self._changed = threading.Condition()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._known: set[str] = set()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._dropped = 0

    @property
    def waiting(self) -> int:
        """How many objects are not sent yet."""
        return len(self._queue) + self._busy

    def knows(self, name: str) -> None:
        """An object that need not be sent."""
        self._known.add(name)

    def put(self, name: str, data: bytes) -> None:
        """Queue an object; returns at once."""
        with self._changed:
            if name in self._known:
                return
            if len(self._queue) >= _MOST_OBJECTS or self._bytes + len(data) > _MOST_BYTES:
                self._dropped += 1
                return
            self._known.add(name)
            self._queue.append((name, data))
            self._bytes += len(data)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="silo-remote-outbox", daemon=True)
                self._thread.start()
                atexit.register(self._at_exit)
            self._changed.notify_all()

    def flush(self, seconds: float) -> int:
        """Wait for the queue to be empty, so long at most; how many objects are left."""
        end = time.monotonic() + seconds
        with self._changed:
            while self.waiting and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            return self.waiting

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                name, data = self._queue.popleft()
                self._bytes -= len(data)
                self._busy = True
            goes_on = self._deliver(name, data)
            with self._changed:
                self._busy = False
                if not goes_on:  # nor is anything taken from now on
                    self._queue.clear()
                    self._bytes = 0
                self._changed.notify_all()

    def _at_exit(self) -> None:
        if left := self.flush(AT_EXIT_S):
            self._not_sent(left, f"the program ended and {AT_EXIT_S:g} s were not enough")
        if self._dropped:
            self._not_sent(self._dropped, "they came faster than they could be sent")

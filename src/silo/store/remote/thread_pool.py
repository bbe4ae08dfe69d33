"""The crew: threads that talk to a remote store, so that nobody else ever waits longer than a limit.

They are daemons, and nobody joins them: a name server, a network file system or a library may keep one for minutes,
and the program shall neither wait for it nor for its own end.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from silo.forks import Mutex

__all__ = ["ThreadPool"]


class ThreadPool:
    """At most ``most`` threads, started when they are needed. A child made by fork needs a new one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Mutex()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = 0
        self._waiting = 0  # jobs that are not done

    def start(self, job: Callable[[], None]) -> None:
        """Run ``job`` on a thread; it must not raise."""
        with self._lock:
            self._waiting += 1
            if self._waiting > self._threads and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=f"silo-remote-{self._threads}", daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            finally:
                with self._lock:
                    self._waiting -= 1

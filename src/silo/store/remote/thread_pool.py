"""Threads that talk to a remote store, so that other threads never wait longer than a limit.

They are daemons, and are never joined: a name server, a network file system or a library may keep one for minutes, and
the program shall neither wait for it nor for its own end.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable

from silo.forks import Mutex

__all__ = ["ThreadPool"]


class _Jobs:
    """The jobs of a pool. Threads hold these and not the pool, whose end is theirs."""

    def __init__(self) -> None:
        self.lock = Mutex()
        self.queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.threads = 0
        self.waiting = 0  # jobs that are not done

    def end(self) -> None:
        """Let every thread end, once it has done its job."""
        for _ in range(self.threads):
            self.queue.put(None)

    def work(self) -> None:
        while (job := self.queue.get()) is not None:
            try:
                job()
            finally:
                del job  # which holds its client, and with that the pool
                with self.lock:
                    self.waiting -= 1


class ThreadPool:
    """At most ``most`` threads, started when they are needed. A child made by fork needs a new one.

    Threads end with the pool, and with them the connections that they keep.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs = _Jobs()
        weakref.finalize(self, self._jobs.end).atexit = False

    @property
    def waiting(self) -> int:
        """How many jobs are not done."""
        return self._jobs.waiting

    def start(self, job: Callable[[], None]) -> None:
        """Run ``job`` on a thread; it must not raise."""
        jobs = self._jobs
        with jobs.lock:
            jobs.waiting += 1
            if jobs.waiting > jobs.threads and jobs.threads < self._most:
                jobs.threads += 1
                threading.Thread(target=jobs.work, name=f"silo-remote-{jobs.threads}", daemon=True).start()
        jobs.queue.put(job)

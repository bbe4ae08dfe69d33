"""The session of a process: its settings, store and compile workers, and handles of features that were switched on."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from silo.forks import Mutex
from silo.settings import Settings, settings
from silo.store.store import MemoryStore, Store, remote_link, store_of

if TYPE_CHECKING:
    from silo.compile.pool import WorkerPool

__all__ = ["Session", "SwitchedOn", "session"]


class Session:
    """The store and the workers under one set of settings."""

    def __init__(self, settings: Settings, store: Store | MemoryStore) -> None:
        self.settings = settings
        self.store = store
        self._lock = Mutex()
        self._pool: WorkerPool | None = None
        self._beside: Session | None = None

    @property
    def pool(self) -> WorkerPool:
        """Compile workers, started when first needed and stopped at exit."""
        with self._lock:
            if self._pool is None:
                self._pool = self._started()
            return self._pool

    @property
    def beside(self) -> Session:
        """The same store with other workers, one fewer, which run only on CPUs that no other process wants."""
        with self._lock:
            if self._beside is None:
                self._beside = _SessionBeside(self.settings, self.store)
            return self._beside

    def reach_remote(self) -> None:
        """Starts connecting to the remote store, if one is set, in the background."""
        client = remote_link(self.settings)
        if client is not None:
            client.reach()

    def _started(self) -> WorkerPool:
        from silo.compile.pool import WorkerPool  # noqa: PLC0415  # a program that only launches compiles nothing

        pool = WorkerPool(self.settings.jobs, self.settings.compile_timeout_s)
        atexit.register(pool.close)
        return pool


class _SessionBeside(Session):
    def _started(self) -> WorkerPool:
        from silo.compile.pool import WorkerPool  # noqa: PLC0415  # see above

        pool = WorkerPool(max(1, self.settings.jobs - 1), self.settings.compile_timeout_s, yields=True)
        atexit.register(pool.close)
        return pool


_lock = Mutex()
_sessions: dict[Settings, Session] = {}


def session() -> Session:
    """The session of the current settings."""
    current = settings()
    with _lock:
        made = _sessions.get(current)
        if made is None:
            made = _sessions[current] = Session(current, store_of(current))
        return made


class SwitchedOn:
    """A feature that is on until :meth:`stop`, or the block's end; ``undo`` is None if it was never switched on."""

    def __init__(self, undo: Callable[[], None] | None) -> None:
        self._undo = undo

    def stop(self) -> None:
        """Switches it off, once; it ends with the last handle of it."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Calls :meth:`stop`."""
        self.stop()

    def __bool__(self) -> bool:
        """Whether it is on."""
        return self._undo is not None

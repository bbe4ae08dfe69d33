"""The session of a process: its settings, store and compile workers, and handles of features that are switched on."""

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
    """The store and the compile workers for one set of settings."""

    def __init__(self, settings: Settings, store: Store | MemoryStore) -> None:
        self.settings = settings
        self.store = store
        self._lock = Mutex()
        self._pool: WorkerPool | None = None
        self._background_session: Session | None = None

    @property
    def pool(self) -> WorkerPool:
        """The compile workers, started when first needed and stopped at exit."""
        with self._lock:
            if self._pool is None:
                self._pool = self._started()
            return self._pool

    @property
    def background(self) -> Session:
        """A session with the same store and compile workers of its own, which run only on CPUs that are otherwise idle.

        It has one worker fewer than this session, but at least one.
        """
        with self._lock:
            if self._background_session is None:
                self._background_session = _BackgroundSession(self.settings, self.store)
            return self._background_session

    def reach_remote(self) -> None:
        """Starts connecting to the remote store in the background, if one is set."""
        client = remote_link(self.settings)
        if client is not None:
            client.reach()

    def _started(self) -> WorkerPool:
        from silo.compile.pool import WorkerPool  # noqa: PLC0415  # a program that only launches compiles nothing

        pool = WorkerPool(self.settings.jobs, self.settings.compile_timeout_s)
        atexit.register(pool.close)
        return pool


class _BackgroundSession(Session):
    def _started(self) -> WorkerPool:
        from silo.compile.pool import WorkerPool  # noqa: PLC0415  # see above

        pool = WorkerPool(max(1, self.settings.jobs - 1), self.settings.compile_timeout_s, yields=True)
        atexit.register(pool.close)
        return pool


_lock = Mutex()
_sessions: dict[Settings, Session] = {}


def session() -> Session:
    """Returns the session of the current settings."""
    current = settings()
    with _lock:
        new_session = _sessions.get(current)
        if new_session is None:
            new_session = _sessions[current] = Session(current, store_of(current))
        return new_session


class SwitchedOn:
    """A handle of a feature that is on until :meth:`stop`, or until the block ends.

    ``undo`` is None if the feature was never switched on.
    """

    def __init__(self, undo: Callable[[], None] | None) -> None:
        self._undo = undo

    def stop(self) -> None:
        """Gives up this handle; further calls do nothing. The feature ends with its last handle."""
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
        """Whether this handle keeps the feature on."""
        return self._undo is not None

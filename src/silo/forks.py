"""What a child made by ``fork`` inherits from threads that it does not have.

Only the thread that forked lives on in the child. A lock that another one held would never be released there, so locks
of this module are new ones in a child, but for those that the forking thread itself holds: it goes on, and leaves them.
What such a lock guards must be whole between any two steps of Python (a dictionary, a set, one assignment); where it is
not, its maker says what puts it right.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

__all__ = ["Mutex", "ReentrantMutex", "in_child"]


class _Inner(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


class Mutex:
    """A lock for ``with``, held by one thread, that a child made by fork finds free unless the forking thread has it.

    Args:
        lost: called in the child where another thread held it: to undo what that thread will not.
    """

    __slots__ = ("__weakref__", "_depth", "_inner", "_lost", "_owner")

    def __init__(self, lost: Callable[[], object] | None = None) -> None:
        self._inner = self._new()
        self._lost = lost
        # Written by the holder alone, after it takes the lock and before it gives it back; so whoever finds its own
        # number here holds the lock. The number stays the same over a fork.
        self._owner = 0
        self._depth = 0
        _locks.add(self)

    @staticmethod
    def _new() -> _Inner:
        return threading.Lock()

    def __enter__(self) -> None:
        self._inner.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
        self._inner.release()

    def renew(self, survivor: int) -> None:
        """In a child whose one thread is ``survivor``: be free, unless that thread holds it."""
        owner = self._owner
        if owner == survivor:
            return
        self._inner = self._new()
        self._owner = self._depth = 0
        if owner and self._lost is not None:
            self._lost()


class ReentrantMutex(Mutex):
    """A :class:`Mutex` that its holder may take again."""

    __slots__ = ()

    @staticmethod
    def _new() -> _Inner:
        return threading.RLock()


_locks: weakref.WeakSet[Mutex] = weakref.WeakSet()
_handlers: list[weakref.WeakMethod[Callable[[], object]] | Callable[[], Callable[[], object]]] = []


def in_child(handler: Callable[[], object]) -> None:
    """Call ``handler`` in every child made by fork from now on, after locks were renewed, in order of registration.

    A method does not keep its object alive.
    """
    _handlers[:] = [one for one in _handlers if one() is not None]
    _handlers.append(weakref.WeakMethod(handler) if hasattr(handler, "__self__") else lambda: handler)


def _after_fork() -> None:
    survivor = threading.get_ident()
    for lock in list(_locks):
        lock.renew(survivor)
    if sys.version_info < (3, 12):
        _renew_cached_properties(list(sys.modules.items()))
    for one in _handlers:
        if (handler := one()) is not None:
            handler()


def _renew_cached_properties(modules: Iterable[tuple[str, Any]]) -> None:
    """Until Python 3.12 a ``cached_property`` holds a lock, one for all objects of a class, while it is worked out."""
    from functools import cached_property  # noqa: PLC0415  # loaded long ago

    for name, module in modules:
        namespace: Any = module.__dict__ if name.startswith("silo.") else {}
        for made in list(namespace.values()):
            own: Any = made if isinstance(made, type) and made.__module__ == name else object
            for attribute in own.__dict__.values():
                if isinstance(attribute, cached_property):
                    attribute.lock = threading.RLock()  # pyright: ignore[reportAttributeAccessIssue]


os.register_at_fork(after_in_child=_after_fork)

"""Locks and warnings that stay correct in a child process made by ``fork``.

Only the thread that called ``fork`` exists in the child. A lock held by another thread would never be released there,
so every lock of this module is replaced by a free one in the child. Locks that the forking thread itself holds stay
held: that thread continues in the child and releases them. Because the fork may interrupt the other thread at any
point, the data that a replaced lock protects must be consistent after each Python operation (one assignment, one change
of a dictionary or a set). If it is not, the lock's creator passes a function that repairs the data.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Self

__all__ = ["Condition", "Mutex", "Notices", "in_child", "renew_properties_of", "waits_for"]


class Mutex(_thread.RLock):  # pyright: ignore[reportGeneralTypeIssues]  # final in the stubs alone
    """A reentrant lock for ``with``. In a child made by fork it is free, unless the forking thread holds it.

    C code takes the lock in one step, and releases it in one step. With several steps of Python, an exception from a
    signal between two of them (Ctrl-C) would leave the lock held for ever.

    Args:
        lost: called in the child if another thread held the lock, to undo that thread's unfinished work.
    """

    __slots__ = ("_lost",)

    def __init__(self, lost: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._lost = lost
        _locks.add(self)

    def __new__(cls, lost: Callable[[], object] | None = None) -> Self:
        """Returns the new lock. The base class takes no arguments, so ``lost`` is left to ``__init__``."""
        del lost
        return super().__new__(cls)

    def renew(self) -> None:
        """Makes the lock free in a child process, unless the child's only thread holds it."""
        mine: Any = self  # type checkers do not know _is_owned and _at_fork_reinit, which threading itself calls
        if mine._is_owned():  # noqa: SLF001
            return
        if self.acquire(blocking=False):
            self.release()
            return
        mine._at_fork_reinit()  # noqa: SLF001
        if self._lost is not None:
            self._lost()


_locks: weakref.WeakSet[Mutex] = weakref.WeakSet()
_handlers: list[weakref.WeakMethod[Callable[[], object]] | Callable[[], Callable[[], object]]] = []
_registering = Mutex()
_MOST_WAITED_S = 1.0  # longest time that a fork waits for native code of a library
_packages = {"silo"}  # the packages whose cached properties get new locks in a child (renew_properties_of)


def in_child(handler: Callable[[], object]) -> None:
    """Calls ``handler`` in every child that is forked from now on.

    Handlers run in the order of their registration, after the locks are renewed.

    If ``handler`` is a method, the registration does not keep its object alive. Any thread may register.
    """
    with _registering:
        _handlers[:] = [handler for handler in _handlers if handler() is not None]
        _handlers.append(weakref.WeakMethod(handler) if hasattr(handler, "__self__") else lambda: handler)


def waits_for(lock: Mutex) -> Mutex:
    """Makes every fork wait until no other thread holds ``lock``, for at most a second; returns the lock.

    Use it for a lock that is held while a library's native code runs. The library takes locks of its own, which are not
    renewed in a child. If one thread forked while another thread ran the library, the child would wait for the
    library's locks for ever. After a second the fork goes on anyway.
    """
    holders: set[int] = set()  # ids of the threads that hold the lock while they fork

    def before() -> None:
        if lock.acquire(timeout=_MOST_WAITED_S):
            holders.add(threading.get_ident())

    def after() -> None:
        if threading.get_ident() in holders:
            holders.discard(threading.get_ident())
            lock.release()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)
    return lock


class Condition(threading.Condition):
    """A condition variable on a :class:`Mutex`. In a child made by fork its lock is free and no thread waits on it.

    The owner of the state that the condition guards registers a function with :func:`in_child` to repair that state.
    """

    def __init__(self) -> None:
        super().__init__(Mutex())  # pyright: ignore[reportArgumentType]  # threading.RLock is a function in the stubs
        in_child(self._forget_waiters)

    def _forget_waiters(self) -> None:
        waiters: Any = vars(self)["_waiters"]  # CPython 3.11 to 3.14 keep the waiting threads in this deque
        waiters.clear()


def _after_fork() -> None:
    for lock in list(_locks):
        lock.renew()
    _forget_unfinished_imports()
    _renew_once_lock()
    if sys.version_info < (3, 12):
        _renew_cached_properties(list(sys.modules.items()))
    for one in _handlers:
        if (handler := one()) is not None:
            handler()


def _forget_unfinished_imports() -> None:
    """Removes modules that other threads were importing at the fork; the child would wait for these imports for ever.

    Python renews only its global import lock. Each module also has a lock (``_ModuleLock`` of ``importlib._bootstrap``,
    in CPython 3.11 to 3.14), and a half-imported module is in ``sys.modules``. The child imports such a module again
    when it needs it.
    """
    locks: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    own = threading.get_ident()
    for name, reference in list(locks.items()):
        lock = reference()
        if lock is None or lock.owner == own:
            continue
        locks.pop(name, None)
        # without an owner no import was running: the lock was about to be taken or had just been released
        if lock.owner is not None:
            sys.modules.pop(name, None)


def _renew_once_lock() -> None:
    """Replaces the lock that ``tempfile`` holds while it first looks for the folder of temporary files.

    If another thread held that lock at the fork, the child would wait for it for ever.
    """
    tempfile: Any = sys.modules.get("tempfile")
    once: Any = getattr(tempfile, "_once_lock", None)
    if once is not None and once.locked():
        tempfile._once_lock = _thread.allocate_lock()  # noqa: SLF001


def renew_properties_of(package: str) -> None:
    """Makes forked children renew the locks of the cached properties of ``package``, as they do for Silo's classes.

    Call it for a package whose code runs within calls of Silo. In Python 3.12 and later cached properties have no
    locks.
    """
    _packages.add(package)


def _renew_cached_properties(modules: Iterable[tuple[str, Any]]) -> None:
    """Replaces the lock of each ``cached_property`` of the modules by a free one.

    Before Python 3.12, each ``cached_property`` has one lock for all objects of the class.
    """
    from functools import cached_property  # noqa: PLC0415  # loaded long ago

    for name, module in modules:
        namespace: Any = module.__dict__ if name.partition(".")[0] in _packages else {}
        for made in list(namespace.values()):
            own: Any = made if isinstance(made, type) and made.__module__ == name else object
            for attribute in own.__dict__.values():
                if isinstance(attribute, cached_property):
                    attribute.lock = threading.RLock()  # pyright: ignore[reportAttributeAccessIssue]


os.register_at_fork(after_in_child=_after_fork)


class Notices:
    """Logs warnings on one logger, at most one for each subject."""

    def __init__(self, logger: str = "silo") -> None:
        self._logger = logger
        self._lock = Mutex()
        self._logged: set[str] = set()

    def once(self, subject: str, message: str) -> None:
        """Logs ``message`` unless a message about ``subject`` was logged earlier."""
        with self._lock:
            if subject in self._logged:
                return
            self._logged.add(subject)
        import logging  # noqa: PLC0415  # takes milliseconds, and all is well as a rule

        logging.getLogger(self._logger).warning("%s", message)

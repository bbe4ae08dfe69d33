"""State of a process and of its children made by ``fork``: locks that a child finds free, warnings logged once.

Only the thread that forked lives on in the child. A lock that another one held would never be released there, so locks
of this module are new ones in a child, but for those that the forking thread itself holds: it goes on, and leaves them.
The data under one of these locks must be consistent between any two steps of Python (a dictionary, a set, one
assignment); otherwise its maker passes a function that repairs it.
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
    """A lock for ``with`` that its holder may take again, and that a child made by fork finds free unless it is its.

    It is taken and released in one step, by C code: if taking it took several steps of Python, an exception of a signal
    between them (Ctrl-C) would leave the lock held for ever.

    Args:
        lost: called in the child if another thread held it: to undo that thread's unfinished work.
    """

    __slots__ = ("_lost",)

    def __init__(self, lost: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._lost = lost
        _locks.add(self)

    def __new__(cls, lost: Callable[[], object] | None = None) -> Self:
        """The lock itself; the base takes no arguments."""
        del lost
        return super().__new__(cls)

    def renew(self) -> None:
        """In a child: be free, unless its one thread holds it."""
        mine: Any = self  # the stubs leave these two out; threading itself calls them
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
_MOST_WAITED_S = 1.0  # seconds that a fork waits for native code of a library
_packages = {"silo"}  # classes whose cached properties are computed during a call


def in_child(handler: Callable[[], object]) -> None:
    """Call ``handler`` in every child made by fork from now on, after locks were renewed, in order of registration.

    A method does not keep its object alive. Any thread may register.
    """
    with _registering:
        _handlers[:] = [one for one in _handlers if one() is not None]
        _handlers.append(weakref.WeakMethod(handler) if hasattr(handler, "__self__") else lambda: handler)


def waits_for(lock: Mutex) -> Mutex:
    """Have every fork wait until no other thread holds ``lock``, for at most a second; returns the lock.

    For a lock that is held while a library's native code runs: that code takes locks of its own, which are not renewed
    in a child, and a child forked in the middle of it would wait for them for ever. A fork that has waited for a second
    continues.
    """
    taken: set[int] = set()  # threads that fork and have the lock

    def before() -> None:
        if lock.acquire(timeout=_MOST_WAITED_S):
            taken.add(threading.get_ident())

    def after() -> None:
        if threading.get_ident() in taken:
            taken.discard(threading.get_ident())
            lock.release()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)
    return lock


class Condition(threading.Condition):
    """A condition variable on a :class:`Mutex`, which a child made by fork finds free and without waiting threads.

    The owner of the state that it guards puts that state right in the child, with :func:`in_child`.
    """

    def __init__(self) -> None:
        super().__init__(Mutex())  # pyright: ignore[reportArgumentType]  # threading.RLock is a function in the stubs
        in_child(self._forget_waiters)

    def _forget_waiters(self) -> None:
        waiters: Any = vars(self)["_waiters"]  # a deque in CPython 3.11 to 3.14
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
    """Drop the modules that other threads were importing: the child would wait for ever for them to end.

    Python renews only its lock of all imports; each module has one as well (``_ModuleLock`` of
    ``importlib._bootstrap``, in CPython 3.11 to 3.14), and half a module in ``sys.modules``. The child imports the
    module anew when it needs it.
    """
    locks: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    own = threading.get_ident()
    for name, reference in list(locks.items()):
        lock = reference()
        if lock is None or lock.owner == own:
            continue
        locks.pop(name, None)
        if lock.owner is not None:  # otherwise it was about to be taken, or was just released
            sys.modules.pop(name, None)


def _renew_once_lock() -> None:
    """Free the lock that ``tempfile`` holds while it looks for the folder of temporary files, the first time."""
    tempfile: Any = sys.modules.get("tempfile")
    once: Any = getattr(tempfile, "_once_lock", None)
    if once is not None and once.locked():
        tempfile._once_lock = _thread.allocate_lock()  # noqa: SLF001


def renew_properties_of(package: str) -> None:
    """Renew the locks of cached properties of ``package`` in children too, like the locks of Silo's own classes.

    For a package whose code runs within calls of Silo. Python 3.12 and later lack these locks.
    """
    _packages.add(package)


def _renew_cached_properties(modules: Iterable[tuple[str, Any]]) -> None:
    """Renews the lock of each ``cached_property``: until Python 3.12 it is one lock for all objects of a class."""
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
    """Warnings on one logger, each subject at most once."""

    def __init__(self, logger: str = "silo") -> None:
        self._logger = logger
        self._lock = Mutex()
        self._logged: set[str] = set()

    def once(self, subject: str, message: str) -> None:
        """Log ``message`` unless something about ``subject`` was logged before."""
        with self._lock:
            if subject in self._logged:
                return
            self._logged.add(subject)
        import logging  # noqa: PLC0415  # takes milliseconds, and all is well as a rule

        logging.getLogger(self._logger).warning("%s", message)

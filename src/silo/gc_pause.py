"""Python's collector of cycles, held back while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from silo.forks import Mutex

__all__ = ["seldom_collected"]

# A large package makes some 200,000 objects as it is imported. By default a collection is made for every 700 of them
# and examines all earlier objects repeatedly: a fourth of the import's time, and it finds next to nothing.
_SELDOM = 50_000
_lock = Mutex()
_within = 0
_before = (0, 0, 0)


@contextmanager
def seldom_collected() -> Generator[None]:
    """Collect seldom within the block; not never, because a module may make cycles that are worth it.

    Blocks may be nested, and run in several threads at once: the last to end restores the settings that the first
    found. A program that set the collector otherwise meanwhile, or that collects less often or never, is left alone.

    >>> import gc
    >>> before = gc.get_threshold()
    >>> with seldom_collected():
    ...     during = gc.get_threshold()
    >>> during[0] > before[0], gc.get_threshold() == before
    (True, True)
    """
    global _before, _within  # noqa: PLW0603  # the collector is one for the process
    with _lock:
        if not _within:
            _before = gc.get_threshold()
            if 0 < _before[0] < _SELDOM:
                gc.set_threshold(_SELDOM, *_before[1:])
        _within += 1
    try:
        yield
    finally:
        with _lock:
            _within -= 1
            if not _within and gc.get_threshold() == (_SELDOM, *_before[1:]):
                gc.set_threshold(*_before)

"""Makes Python's garbage collector run rarely while a block creates many long-lived objects."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from silo.forks import Mutex

__all__ = ["seldom_collected"]

# The threshold within a block: the number of new objects after which Python collects. Importing a large package makes
# some 200,000 objects. With the default threshold of 700, Python examines all earlier objects again and again, which
# takes a fourth of the import's time and frees next to nothing.
_SELDOM = 50_000
_lock = Mutex()
_within = 0
_before = (0, 0, 0)


@contextmanager
def seldom_collected() -> Generator[None]:
    """Runs the garbage collector rarely within the block, but still runs it, to free large reference cycles.

    Blocks may be nested and may run in several threads at once: the last block to end restores the thresholds that the
    first one found. If the program changes the thresholds meanwhile, its thresholds stay. If it already collects as
    rarely, or never, the thresholds are not changed.

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

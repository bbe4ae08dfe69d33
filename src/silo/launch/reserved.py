"""Multiprocessors that persistent kernels are to leave alone, for communication or another kernel beside them."""

from __future__ import annotations

import threading

from silo.errors import SettingsError

__all__ = ["reserve_sms", "reserved_sms"]

_lock = threading.Lock()
_reserved: dict[tuple[str, int], int] = {}


def reserve_sms(kind: str, index: int, count: int) -> None:
    """From now on ``a.reserved_sms`` and ``a.num_sms`` of grids say so for this device, in this process.

    A grid is fixed when a kernel is first called in some way, so this comes before the first call.

    Raises:
        SettingsError: a negative count.
    """
    if count < 0:
        raise SettingsError(f"reserved_sms={count}: it is 0 or more")
    with _lock:
        _reserved[kind, index] = count


def reserved_sms(kind: str, index: int) -> int:
    """How many are reserved on a device; 0 where nobody said."""
    return _reserved.get((kind, index), 0)

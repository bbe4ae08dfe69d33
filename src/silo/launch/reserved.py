"""Multiprocessors that persistent kernels are to leave alone, for communication or another kernel beside them."""

from __future__ import annotations

from silo.errors import SettingsError
from silo.forks import Mutex
from silo.launch import native

__all__ = ["reserve_sms", "reserved_sms"]

_lock = Mutex()
_reserved: dict[tuple[str, int], int] = {}


def reserve_sms(kind: str, index: int, count: int) -> None:
    """From now on ``a.reserved_sms`` and ``a.num_sms`` of grids say so for this device, in this process.

    Launchers ask again what a call needs; those that ``bind`` made keep what they were bound to.

    Raises:
        SettingsError: a negative count.
    """
    if count < 0:
        raise SettingsError(f"reserved_sms={count}: it is 0 or more")
    with _lock:
        _reserved[kind, index] = count
    native.new_generation()


def reserved_sms(kind: str, index: int) -> int:
    """How many are reserved on a device; 0 where nobody said."""
    return _reserved.get((kind, index), 0)

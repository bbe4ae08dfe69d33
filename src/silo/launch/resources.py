"""Resources of launches: threads of the CPU, reserved multiprocessors, free memory of the host."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from silo.errors import SettingsError
from silo.forks import Mutex
from silo.launch import native
from silo.settings import settings

__all__ = ["apply_setting", "available_memory", "cpu_threads", "reserve_sms", "reserved_sms", "threads"]

# ---- The free memory of the host ----


def available_memory() -> int | None:
    """Bytes that programs may take without anything being swapped out; None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # pathlib takes long
            text = file.read()
        return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


# ---- Resources that launches may use: threads of the CPU, and multiprocessors that are reserved for others ----

# The native pool's own limit.
MAX_THREADS = 1024

_applied: tuple[int, int, str] | None = None

_lock = Mutex()
_reserved: dict[tuple[str, int], int] = {}


def apply_setting() -> None:
    """Take ``SILO_THREADS`` and its like over where they changed: ``cpu_threads(n)`` in between stays."""
    global _applied  # noqa: PLW0603  # the last values seen
    wanted = min(settings().threads, MAX_THREADS), settings().spin, settings().pool
    if wanted != _applied:
        if _applied is None or wanted[0] != _applied[0]:
            native.cpu_threads(wanted[0])
        native.cpu_spin(wanted[1])
        native.cpu_use_pool(wanted[2])
        _applied = wanted


def cpu_threads(count: int | None = None) -> int:
    """Threads a CPU launch uses, the calling one included; ``count`` (1 to 1024) sets it for the whole process."""
    apply_setting()
    return native.cpu_threads() if count is None else native.cpu_threads(count)


@contextmanager
def threads(count: int) -> Generator[None]:
    """Run launches on ``count`` threads until the block ends."""
    before = cpu_threads()
    native.cpu_threads(count)
    try:
        yield
    finally:
        native.cpu_threads(before)


def reserve_sms(kind: str, index: int, count: int) -> None:
    """Leave multiprocessors alone in persistent kernels, for communication or another kernel beside them.

    From now on ``a.reserved_sms`` and ``a.num_sms`` of grids say so for this device, in this process.

    Launchers resolve their next calls again; launchers made by ``bind`` keep their binding.

    Raises:
        SettingsError: a negative count.
    """
    if count < 0:
        raise SettingsError(f"reserved_sms={count}: it is 0 or more")
    with _lock:
        _reserved[kind, index] = count
    native.new_generation()


def reserved_sms(kind: str, index: int) -> int:
    """How many are reserved on a device; 0 by default."""
    return _reserved.get((kind, index), 0)

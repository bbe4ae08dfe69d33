"""How many threads a launch on the CPU may use."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from silo.launch import native
from silo.settings import settings

__all__ = ["apply_setting", "cpu_threads", "threads"]

# The native pool's own limit.
MAX_THREADS = 1024

_applied: int | None = None


def apply_setting() -> None:
    """Take ``SILO_THREADS`` over, unless that very value was taken before: ``cpu_threads(n)`` in between stays."""
    global _applied  # noqa: PLW0603  # the last value seen
    wanted = min(settings().threads, MAX_THREADS)
    if wanted != _applied:
        native.cpu_threads(wanted)
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

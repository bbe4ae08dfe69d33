"""The free memory of the host."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_memory"]


def available_memory() -> int | None:
    """Bytes that programs may take without anything being swapped out; None where the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8", errors="replace")
        return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None

"""Memory and descriptors of this process, for tests that repeat something a million times."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["descriptors", "resident"]


def resident() -> int:
    """Bytes of memory that the process uses now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    """Open files, sockets and so on."""
    return len(list(Path("/proc/self/fd").iterdir()))

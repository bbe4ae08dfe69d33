"""What reading a file may cost, whoever wrote it: checked on counts and sums before anything is built from it."""

from __future__ import annotations

from silo.settings import settings

__all__ = ["MIB", "allowance", "how_to_raise"]

MIB = 1 << 20


def allowance(file_bytes: int) -> int:
    """Bytes of memory that reading a file of this size may take: its own size, and ``SILO_FILE_BYTES`` more."""
    return settings().file_bytes + file_bytes


def how_to_raise(allowed: int) -> str:
    """What to do where an honest file needs more, for messages."""
    return f"at most {allowed // MIB} MiB are allowed; if you know where the file comes from, raise SILO_FILE_BYTES"

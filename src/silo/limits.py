"""What reading a file may cost, whoever wrote it: checked on counts and sums before anything is built from it."""

from __future__ import annotations

from silo.settings import available_memory, settings

__all__ = ["MIB", "allowance", "case_allowance", "how_to_raise"]

MIB = 1 << 20


def allowance(file_bytes: int) -> int:
    """Bytes of memory that reading a file of this size may take: its own size, and ``SILO_FILE_BYTES`` more."""
    return settings().file_bytes + file_bytes


def case_allowance() -> int:
    """Bytes of memory that the arrays of one case may take: ``SILO_CASE_BYTES``, or half of what the process has.

    The other half is for copies: what a case held before a launch, and what is expected of it.
    """
    asked = settings().case_bytes
    return available_memory() // 2 if asked is None else asked


def how_to_raise(allowed: int) -> str:
    """What to do where an honest file needs more, for messages."""
    return f"at most {allowed // MIB} MiB are allowed; if you know where the file comes from, raise SILO_FILE_BYTES"

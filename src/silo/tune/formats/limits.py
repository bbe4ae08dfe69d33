"""What a file of results may come to. It is read a part at a time, so that only what is made of it takes memory."""

from __future__ import annotations

__all__ = ["HEADER_CHARACTERS", "MEMBER_BYTES", "PART_CHARACTERS", "SAMPLE_BYTES", "TRIAL_BYTES", "most_text"]

PART_CHARACTERS = 1 << 18  # of one row, or one member of the outermost object: parsed, up to 54 bytes for each
HEADER_CHARACTERS = 1 << 18  # of the outermost object's members together, without the rows

# What a trial takes, its parameters and its samples; all of them together have three quarters of what a file may take.
TRIAL_BYTES = 600
MEMBER_BYTES = 120
SAMPLE_BYTES = 40

_RATIO = 32  # of a gzipped file's text to its size; files of measurements shrink 3 to 15 times
_LEAST_TEXT = 1 << 20


def most_text(file_bytes: int) -> int:
    """How many bytes of text a file of this size may hold: so many are read in a second for each MiB.

    >>> most_text(1 << 20) >> 20
    33
    """
    return _LEAST_TEXT + _RATIO * file_bytes

"""Limits on values read from files: counts, and the memory that a JSON text takes.

The counts are far above what a kernel needs, and low enough that products stay small: each of these costs for each of
something else.
"""

from __future__ import annotations

__all__ = [
    "MAX_AXES",
    "MAX_BOUNDS",
    "MAX_NAMES",
    "MAX_NODES",
    "MAX_PARAMETERS",
    "MAX_STEPS",
    "footprint",
    "refuse_large",
]

MAX_PARAMETERS = 1024  # of a kernel; a GPU's ABI has room for 4,060 bytes of them. Messages list them for each variant
MAX_NAMES = 4096  # in a key, a config or a specialization
MAX_AXES = 32  # of an array: their extents are multiplied
MAX_NODES = 65_536  # of an expression, which a launch evaluates
MAX_STEPS = 65_536  # of a decision list, which a launch of a new size goes through
MAX_BOUNDS = 64  # of one of its steps: they become one expression, whose depth is limited

# What one character of a JSON text stands for once it is parsed, in bytes: what CPython takes on a 64-bit machine.
# Characters in strings count too, so an estimate is about twice the truth for ordinary documents; it is below the truth
# (by less than half) for an object of very many members.
_COSTS = (
    (b"[", 104),  # a list of its own, and room for its first items
    (b"{", 192),  # an object of up to five members
    (b",", 36),  # one item more: its place in the list, and a number
    (b":", 48),  # one member more
    (b'"', 28),  # half a string
)
_MOST = 54  # bytes for a character, of the most costly text there is
_WIDE = 8  # bytes for one of a text that is not ASCII: strings of it may hold four bytes a character, twice


def footprint(text: bytes) -> int:
    """About the bytes of memory that parsing ``text`` takes, the decoded text among them.

    >>> footprint(b'[1,2]'), footprint(b'[[],[]]')
    (150, 362)
    """
    wide = 2 if text.isascii() else _WIDE
    return wide * len(text) + sum(cost * text.count(mark) for mark, cost in _COSTS)


def refuse_large(text: bytes, budget: int) -> None:
    """Raise ``ValueError`` where parsing ``text`` would take more than ``budget`` bytes."""
    # Most texts are so short that nothing need be counted.
    if len(text) * _MOST > budget and (needed := footprint(text)) > budget:
        raise ValueError(
            f"reading it would take about {needed >> 20} MiB of memory, and {budget >> 20} MiB are allowed"
        )

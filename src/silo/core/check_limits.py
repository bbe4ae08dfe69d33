"""The limits of a checked run: a value that the API makes and each kind of kernel reads."""

from __future__ import annotations

from silo.frozen import frozen

__all__ = ["MOST_STEPS", "CheckLimits"]

MOST_STEPS = 100_000_000
"""Turns of loops and accesses of one program, if the caller names no other number."""


@frozen
class CheckLimits:
    """How much a checked run examines, and for how long; see :func:`silo.check`.

    ``nan``: also find NaNs that the kernel computes from numbers. ``uninitialized``: names of arguments that hold
    nothing yet. ``memory``: further arrays that pointers in memory may point into. ``steps``: turns of loops and
    accesses that one program (of a Metal kernel: one threadgroup) may take. ``views``: an access must be within the
    array that was passed, not only within the memory that the array is a view of.
    """

    nan: bool = False
    uninitialized: tuple[str, ...] = ()
    memory: tuple[object, ...] = ()
    steps: int = MOST_STEPS
    views: bool = False

"""The state that a checked kernel shares with Python: the structs of ``runtime/check.h``, and values read from them."""

from __future__ import annotations

import ctypes
from enum import IntEnum

from silo.frozen import frozen

__all__ = ["BoundsCell", "CheckState", "CpuFault", "CpuSuspect", "FaultKind", "Fresh", "SiteCell", "Stored"]


class FaultKind(IntEnum):
    """The kinds of faults: ``enum silo_check_kind`` of ``runtime/check.h``."""

    NOTHING = 0
    BOUNDS = 1
    READONLY = 2
    UNALIGNED = 3
    UNINITIALIZED = 4
    RACE = 5
    ENDLESS = 6
    ASSERT = 7
    ASSUME = 8
    DIVISIBLE = 9
    CONTIGUOUS = 10
    CONSTANT = 11
    TWICE = 12
    OUTSIDE = 13


class Fresh(IntEnum):
    """Whether memory was written: ``enum silo_check_fresh`` of ``runtime/check.h``."""

    HELD = 0
    NEW = 1
    JUNK = 2


class BoundsCell(ctypes.Structure):
    """The bounds of one allocation: ``struct silo_bounds`` of ``runtime/check.h``."""

    _fields_ = (
        ("low", ctypes.c_uint64),
        ("high", ctypes.c_uint64),
        ("origin", ctypes.c_uint64),
        ("writers", ctypes.c_void_p),
        ("readers", ctypes.c_void_p),
        ("fresh", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("stamps", ctypes.c_void_p),
        ("stored", ctypes.c_void_p),
        ("inside", ctypes.c_void_p),
        ("writable", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


class SiteCell(ctypes.Structure):
    """The events of one watched operation: ``struct silo_site`` of ``runtime/check.h``."""

    _fields_ = (
        ("use", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("first", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("change", ctypes.c_uint32),
        ("seen", ctypes.c_uint32),
        ("events", ctypes.c_uint64),
        ("order", ctypes.c_uint64),
        ("program", ctypes.c_uint64),
        ("lane", ctypes.c_int64),
        ("watched", ctypes.c_int64),
        ("stamp", ctypes.c_uint64),
    )


class CheckState(ctypes.Structure):
    """The state of one run: ``struct silo_check`` of ``runtime/check.h``."""

    _fields_ = (
        ("bytes", ctypes.c_uint32),
        ("claimed", ctypes.c_int32),
        ("text", ctypes.c_char * 1016),
        ("sites", ctypes.c_void_p),
        ("bounds", ctypes.c_void_p),
        ("reach", ctypes.c_void_p),
        ("limit", ctypes.c_uint64),
        ("shift", ctypes.c_uint64),
        ("programs", ctypes.c_uint64),
        ("clocks", ctypes.c_void_p),
        ("locations", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("kind", ctypes.c_int32),
        ("site", ctypes.c_int32),
        ("lane", ctypes.c_int64),
        ("address", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
        ("program", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("order", ctypes.c_uint64),
        ("epoch", ctypes.c_uint32),
        ("acquired", ctypes.c_uint32),
        ("last", ctypes.c_int64),
        ("watch", ctypes.c_uint64),
        ("watch_program", ctypes.c_uint64),
        ("writer", ctypes.c_uint64),
        ("writer_lane", ctypes.c_int64),
        ("writer_site", ctypes.c_int32),
        ("quiet", ctypes.c_int32),
        ("unset_site", ctypes.c_uint64),
        ("unset_address", ctypes.c_uint64),
        ("unset_program", ctypes.c_uint64),
        ("unset_lane", ctypes.c_int64),
        ("stamp", ctypes.c_uint64),
        ("value", ctypes.c_void_p),
        ("spare", ctypes.c_uint64 * 2),
    )


@frozen
class CpuFault:
    """A fault that the kernel recorded while it ran.

    ``other`` is the shadow cell of the earlier access (for a race), the axis' extent (for an index outside of a tile),
    or the preceding element (for a promise such as ``tl.max_contiguous`` that does not hold).
    """

    kind: FaultKind
    site: int
    lane: int
    program: int
    address: int = 0
    other: int = 0


@frozen
class CpuSuspect:
    """A doubtful value: the result of the operation at ``site`` in ``program``, at the element ``lane``."""

    site: int
    program: int
    lane: int


@frozen
class Stored:
    """The element of a store that was the last to write the byte at ``address``."""

    site: int
    program: int
    lane: int
    address: int

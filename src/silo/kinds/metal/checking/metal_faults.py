"""The state that code which checks itself shares with the host: the structs of ``runtime/check_state.h``."""

from __future__ import annotations

import ctypes
from enum import IntEnum

__all__ = ["CELL_BYTES", "Area", "AreaKind", "Check", "FoundFault", "FoundKind", "MetalFault", "MetalSuspect"]

# Of what is kept for each four bytes of memory.
CELL_BYTES = 68


class MetalFault(IntEnum):
    """``enum class Fault`` of the runtime: what an entry returns."""

    NONE = 0
    BARRIER_MISSED = 1
    BARRIER_MIXED = 2
    SIMD_DIVERGED = 3
    GROUP_MEMORY = 4
    STACK = 5
    CHECKED = 6
    BAD_ARGUMENT = 7


class FoundKind(IntEnum):
    """``enum class Kind``."""

    NOTHING = 0
    BOUNDS = 1
    READONLY = 2
    UNINITIALIZED = 3
    RACE = 4
    ENDLESS = 5
    STACK_BOUNDS = 6
    SCOPE = 7
    INDEX = 8
    DIVERGED = 9
    GLOBAL_BOUNDS = 10


class AreaKind(IntEnum):
    """``enum class AreaKind``."""

    ARRAY = 0
    GROUP = 1


class Area(ctypes.Structure):
    """``struct Area``."""

    _fields_ = (
        ("low", ctypes.c_uint64),
        ("high", ctypes.c_uint64),
        ("origin", ctypes.c_uint64),
        ("cells", ctypes.c_void_p),
        ("fresh", ctypes.c_void_p),
        ("kind", ctypes.c_uint32),
        ("writable", ctypes.c_uint32),
    )


class FoundFault(ctypes.Structure):
    """``struct Found``."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("thread", ctypes.c_int32),
        ("group", ctypes.c_uint32),
        ("site", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("other_thread", ctypes.c_int32),
        ("other_group", ctypes.c_uint32),
        ("other_site", ctypes.c_uint32),
        ("write", ctypes.c_int32),
        ("other_write", ctypes.c_int32),
        ("area", ctypes.c_int32),
        ("index", ctypes.c_int64),
        ("file", ctypes.c_char_p),
        ("array_type", ctypes.c_char_p),
        ("line", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
    )


class MetalSuspect(ctypes.Structure):
    """``struct Suspect``."""

    _fields_ = (
        ("site", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("area", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


class GroupArray(ctypes.Structure):
    """``struct GroupArray``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("low", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("line", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
    )


class Waiting(ctypes.Structure):
    """``struct Waiting``."""

    _fields_ = (("file", ctypes.c_char_p), ("line", ctypes.c_uint32), ("spare", ctypes.c_uint32))


class Check(ctypes.Structure):
    """``struct Check``."""

    _fields_ = (
        ("bytes", ctypes.c_uint32),
        ("claimed", ctypes.c_int32),
        ("text", ctypes.c_char * 1016),
        ("run", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("fill", ctypes.c_uint64),
        ("areas", ctypes.c_void_p),
        ("row_starts", ctypes.c_void_p),
        ("row_classes", ctypes.c_void_p),
        ("atomics", ctypes.c_void_p),
        ("file", ctypes.c_char_p),
        ("arena_low", ctypes.c_uint64),
        ("arena_high", ctypes.c_uint64),
        ("area_count", ctypes.c_uint32),
        ("row_count", ctypes.c_uint32),
        ("first_group", ctypes.c_uint32),
        ("suspects", ctypes.c_uint32),
        ("any_atomic", ctypes.c_uint32),
        ("unordered_groups", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("group_threads", ctypes.c_uint32),
        ("group_array_count", ctypes.c_uint32),
        ("shape", ctypes.c_uint32 * 4),
        ("suspect", MetalSuspect),
        ("found", FoundFault),
        ("group_arrays", GroupArray * 64),
        ("threads", Waiting * 1024),
    )

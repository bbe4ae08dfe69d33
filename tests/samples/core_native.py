"""The plain C files of native/core as a library, called by ctypes."""

from __future__ import annotations

import ctypes
import functools
import shutil
from pathlib import Path

import pytest

from native_builds import CORE, TRAPPING, archive, compile_with, shared_build, whole

NATIVE = CORE
MAX_AXES = 8


class Instruction(ctypes.Structure):
    _fields_ = [("opcode", ctypes.c_int32), ("b", ctypes.c_int32), ("a", ctypes.c_int64)]


class Bindings(ctypes.Structure):
    _fields_ = [
        ("slot_count", ctypes.c_int32),
        ("values", ctypes.POINTER(ctypes.c_int64)),
        ("shapes", ctypes.POINTER(ctypes.POINTER(ctypes.c_int64))),
        ("strides", ctypes.POINTER(ctypes.POINTER(ctypes.c_int64))),
        ("ndims", ctypes.POINTER(ctypes.c_int32)),
        ("itemsizes", ctypes.POINTER(ctypes.c_int32)),
    ]


class FillParams(ctypes.Structure):
    _fields_ = [("a", ctypes.c_double), ("b", ctypes.c_double), ("low", ctypes.c_int64), ("span", ctypes.c_uint64)]


def compiler(name: str) -> str:
    """Return the path of a compiler, also under a name with a version (Debian's clang has no other).

    Skip if it is missing.
    """
    names = [name, *(f"{name}-{version}" for version in range(30, 13, -1))]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


def trapping_library(*sources: Path) -> Path:
    """Build native/core and these sources as a shared library in which undefined behaviour traps; return its path."""
    core = archive(TRAPPING)

    def make(folder: Path) -> None:
        link = ("-shared", "-o", folder / "core.so", "-ldl", "-lm", "-pthread")
        compile_with(*TRAPPING, f"-I{CORE}", *sources, *whole(core), *link)

    return shared_build("trapping", (), [core, *sources], make) / "core.so"


@functools.cache
def library() -> ctypes.CDLL:
    """Return all of native/core as a library in which undefined behaviour traps."""
    loaded = ctypes.CDLL(str(trapping_library()))
    loaded.silo_expression_eval.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.POINTER(Bindings),
        ctypes.POINTER(ctypes.c_int64),
    ]
    loaded.silo_bucket.argtypes = [ctypes.c_int64]
    loaded.silo_bucket.restype = ctypes.c_int64
    loaded.silo_generate.argtypes = [ctypes.c_int32] * 3 + [ctypes.c_uint64] * 3
    loaded.silo_generate.argtypes += [ctypes.POINTER(FillParams), ctypes.c_void_p]
    return loaded


def run_program(data: bytes, slots: list[dict]) -> tuple[int, int]:
    """Run encoded instructions; return (error code, value).

    A slot is a dict with the optional members "value", "shape", "strides" and "itemsize".
    """
    count = len(slots)
    pointer = ctypes.POINTER(ctypes.c_int64)
    keep = []

    def axes(name: str):
        column = (pointer * count)()
        for index, slot in enumerate(slots):
            if slot.get(name) is not None:
                cells = (ctypes.c_int64 * max(len(slot[name]), 1))(*slot[name])
                keep.append(cells)
                column[index] = ctypes.cast(cells, pointer)
        return column

    values = (ctypes.c_int64 * count)(*[slot.get("value", 0) for slot in slots])
    ndims = (ctypes.c_int32 * count)(*[len(slot.get("shape") or ()) for slot in slots])
    itemsizes = (ctypes.c_int32 * count)(*[slot.get("itemsize", 0) for slot in slots])
    bindings = Bindings(count, values, axes("shape"), axes("strides"), ndims, itemsizes)
    out = ctypes.c_int64(-123456789)
    cells = ctypes.create_string_buffer(data, max(len(data), 1))
    error = library().silo_expression_eval(cells, len(data) // 16, ctypes.byref(bindings), ctypes.byref(out))
    return error, out.value

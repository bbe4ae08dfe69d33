"""The memory of one run: all arrays in one block, so that reads beside an array give the same in every process."""

from __future__ import annotations

import ctypes
import mmap
import re
import zlib

import numpy as np

from tests.fuzz.kinds import KINDS, from_float64, to_float64

from .guess import ELEMENTS, Guess

__all__ = ["ADDRESSES", "Arena", "wide_kind", "wide_type"]

_ITEM = 8  # bytes of the widest element: an array lies at one place whatever its kind
_BEFORE = 1 << 16  # bytes in front of an array, for small negative offsets
_REGION = -(-(ELEMENTS * _ITEM + 2 * _BEFORE) // mmap.PAGESIZE) * mmap.PAGESIZE
_NORESERVE = 0x4000  # of Linux; the module has no name for it
_GUARD = 4 << 30  # bytes in front of all arrays and behind them
_ASCENDING = re.compile(r"(^|_)(cu|indptr|cumsum|starts?|offsets?|locs?)(_|$)|cu_|indptr|start_loc", re.IGNORECASE)
ADDRESSES = 2 * _GUARD
"""Bytes of addresses that a block takes besides its memory."""
_COUNT = re.compile(r"lens?(_|$)|length|count|num_|seqlen", re.IGNORECASE)


def _guarded(size: int) -> tuple[mmap.mmap, np.ndarray]:
    """Memory of ``size`` bytes between two ranges of addresses that nothing may touch."""
    whole = mmap.mmap(-1, size + 2 * _GUARD, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (start, start + _GUARD + size):
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(_GUARD), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return whole, np.frombuffer(whole, np.uint8, size, _GUARD)


def wide_kind(kind: str) -> str:
    """The kind of the same array in a kernel that computes in float64."""
    return "f64" if kind in {"f16", "bf16", "f32"} else kind


def wide_type(name: str) -> str:
    """The type of Triton's that takes the place of the type ``name`` in a kernel that computes in float64."""
    return "float64" if name in {"float16", "bfloat16", "float32"} else name


class Arena:
    """Arrays by name, each of ``ELEMENTS`` elements; every byte of the block is written before a run."""

    def __init__(self, guess: Guess, *, wide: bool = False) -> None:
        self.kinds = {name: wide_kind(kind) if wide else kind for name, kind in guess.arrays.items()}
        self._block, self._bytes = _guarded(_REGION * (len(self.kinds) + 2))
        self.arrays: dict[str, np.ndarray] = {}
        for place, (name, kind) in enumerate(self.kinds.items()):
            start = _REGION * (place + 1) + _BEFORE
            whole = ELEMENTS * np.dtype(KINDS[kind].storage).itemsize
            array = self._bytes[start : start + whole].view(KINDS[kind].storage)
            array[:] = _values(name, guess.arrays[name], kind, calm=guess.calm)
            self.arrays[name] = array

    def save(self, path: str) -> None:
        """Write the whole block."""
        self._bytes.tofile(path)

    def arrays_of(self, path: str) -> dict[str, np.ndarray]:
        """The arrays of a saved block of the same guess."""
        whole = np.fromfile(path, np.uint8)
        found: dict[str, np.ndarray] = {}
        for place, (name, kind) in enumerate(self.kinds.items()):
            start = _REGION * (place + 1) + _BEFORE
            count = ELEMENTS * np.dtype(KINDS[kind].storage).itemsize
            found[name] = whole[start : start + count].view(KINDS[kind].storage)
        return found


def _values(name: str, narrow: str, kind: str, *, calm: bool) -> np.ndarray:
    """Small numbers: floats that their own kind holds, integers that are offsets within an array."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if KINDS[narrow].floating:
        values = from_float64(rng.uniform(-1, 1, ELEMENTS), narrow)
        if kind == narrow:
            return values
        return to_float64(values, narrow)
    if narrow == "i1":
        return rng.integers(0, 2, ELEMENTS).astype(np.uint8)
    if narrow in {"u8", "i8"}:
        return rng.integers(0, 100, ELEMENTS).astype(KINDS[kind].storage)
    if calm:
        values = np.minimum(np.arange(ELEMENTS), 1)
    elif _ASCENDING.search(name):
        values = np.minimum(np.arange(ELEMENTS) * 16, 1024)
    elif _COUNT.search(name):
        values = rng.integers(8, 24, ELEMENTS)
    else:
        values = rng.integers(0, 8, ELEMENTS)
    return values.astype(KINDS[kind].storage)

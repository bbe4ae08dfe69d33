"""The memory of one run: every array in one block, so that what lies beside an array is the same in every process."""

from __future__ import annotations

import mmap
import re
import zlib

import numpy as np

from tests.fuzz.kinds import KINDS, from_float64

from .guess import ELEMENTS, Guess

__all__ = ["Arena", "wide_kind"]

_ITEM = 8  # bytes of the widest element: an array lies at one place whatever its kind
_BEFORE = 1 << 16  # bytes in front of an array, for small negative offsets
_REGION = ELEMENTS * _ITEM + 2 * _BEFORE
_ASCENDING = re.compile(r"(^|_)(cu|indptr|cumsum|starts?|offsets?|locs?)(_|$)|cu_|indptr|start_loc", re.IGNORECASE)
_COUNT = re.compile(r"lens?(_|$)|length|count|num_|seqlen", re.IGNORECASE)


def wide_kind(kind: str) -> str:
    """The kind of the same array in a kernel that computes in float64."""
    return "f64" if kind in {"f16", "bf16", "f32"} else kind


class Arena:
    """Arrays by name, each of ``ELEMENTS`` elements; every byte of the block is written before a run."""

    def __init__(self, guess: Guess, *, wide: bool = False) -> None:
        self.kinds = {name: wide_kind(kind) if wide else kind for name, kind in guess.arrays.items()}
        self._block = mmap.mmap(-1, max(_REGION * (len(self.kinds) + 2), 1))
        self._bytes = np.frombuffer(self._block, np.uint8)
        self.arrays: dict[str, np.ndarray] = {}
        for place, (name, kind) in enumerate(self.kinds.items()):
            start = _REGION * (place + 1) + _BEFORE
            whole = ELEMENTS * np.dtype(KINDS[kind].storage).itemsize
            array = self._bytes[start : start + whole].view(KINDS[kind].storage)
            array[:] = _values(name, guess.arrays[name], kind)
            self.arrays[name] = array

    def save(self, path: str) -> None:
        """Write the whole block."""
        self._bytes.tofile(path)

    def arrays_of(self, path: str) -> dict[str, np.ndarray]:
        """The arrays of a saved block of the same guess, and the bytes outside of them as the array ``""``."""
        whole = np.fromfile(path, np.uint8)
        found: dict[str, np.ndarray] = {}
        for place, (name, kind) in enumerate(self.kinds.items()):
            start = _REGION * (place + 1) + _BEFORE
            count = ELEMENTS * np.dtype(KINDS[kind].storage).itemsize
            found[name] = whole[start : start + count].view(KINDS[kind].storage)
        return found


def _values(name: str, narrow: str, kind: str) -> np.ndarray:
    """Small numbers: floats that their own kind holds, integers that are offsets within an array."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if KINDS[narrow].floating:
        values = from_float64(rng.uniform(-1, 1, ELEMENTS), narrow)
        if kind == narrow:
            return values
        from tests.fuzz.kinds import to_float64

        return to_float64(values, narrow)
    if narrow == "i1":
        return rng.integers(0, 2, ELEMENTS).astype(np.uint8)
    if narrow in {"u8", "i8"}:
        return rng.integers(0, 100, ELEMENTS).astype(KINDS[kind].storage)
    if _ASCENDING.search(name):
        values = np.minimum(np.arange(ELEMENTS) * 16, 1024)
    elif _COUNT.search(name):
        values = rng.integers(8, 24, ELEMENTS)
    else:
        values = rng.integers(0, 8, ELEMENTS)
    return values.astype(KINDS[kind].storage)

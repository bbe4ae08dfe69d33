"""The memory of one run of a kernel: each storage between pages that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
import zlib

import numpy as np

from .kinds import KINDS, TINY, from_float64
from .program import Kernel, Storage

__all__ = ["Memory", "contents"]

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_NONE, _READ, _WRITE, _PRIVATE_ANONYMOUS = 0, 1, 2, 0x22

_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-40, -1e-7, 65504.0, 3e38, np.inf, -np.inf, np.nan]


class Memory:
    """Every storage of a kernel, filled: reads and writes beyond a storage end the process.

    ``arrays`` are views of the storages' elements, by name. The memory lives until :meth:`close`.
    """

    def __init__(self, kernel: Kernel, filled: dict[str, np.ndarray]) -> None:
        sizes = {name: array.nbytes for name, array in filled.items()}
        pages = {name: -(-(size + 64) // _PAGE) for name, size in sizes.items()}
        self._bytes = (sum(pages.values()) + len(pages) + 1) * _PAGE
        self._base = _LIBC.mmap(None, self._bytes, _NONE, _PRIVATE_ANONYMOUS, -1, 0)
        assert self._base not in {None, ctypes.c_void_p(-1).value}, "no memory for the storages"
        self.arrays: dict[str, np.ndarray] = {}
        place = self._base + _PAGE
        for name, array in filled.items():
            storage = kernel.storages[name]
            length = pages[name] * _PAGE
            assert _LIBC.mprotect(place, length, _READ | _WRITE) == 0
            start = place + _start(storage, sizes[name], length)
            view = np.ctypeslib.as_array((ctypes.c_ubyte * max(sizes[name], 1)).from_address(start))
            typed = view[: sizes[name]].view(array.dtype)
            typed[:] = array
            if not storage.written:
                assert _LIBC.mprotect(place, length, _READ) == 0
            self.arrays[name] = typed
            place += length + _PAGE

    def copies(self) -> dict[str, np.ndarray]:
        """What the storages that a kernel may write hold now."""
        return {name: array.copy() for name, array in self.arrays.items()}

    def close(self) -> None:
        """Give the memory back."""
        self.arrays.clear()
        _LIBC.munmap(self._base, self._bytes)


def _start(storage: Storage, size: int, length: int) -> int:
    item = KINDS[storage.kind].bits // 8
    skew = storage.skew * item
    if not storage.at_end:
        return skew or 0
    # The last byte is the page's last: an address that is a multiple of 16 only where the size is.
    return length - size


def contents(kernel: Kernel) -> dict[str, np.ndarray]:
    """What every storage holds at the start, as it is stored; the same for a seed everywhere."""
    found: dict[str, np.ndarray] = {}
    for name, storage in kernel.storages.items():
        random = np.random.default_rng([kernel.seed, zlib.crc32(f"{kernel.profile} {name}".encode())])
        count = kernel.extent(storage)
        if storage.at_end and not storage.skew:  # so that the start is a multiple of 16 bytes
            step = 16 // (KINDS[storage.kind].bits // 8)
            count = -(-count // step) * step
        found[name] = _filled(storage, count, random)
    return found


def _filled(storage: Storage, count: int, random: np.random.Generator) -> np.ndarray:
    kind = KINDS[storage.kind]
    if storage.fill == "zero":
        return np.zeros(count, kind.storage)
    if kind.name == "i1":
        return random.integers(0, 2, count).astype(np.uint8)
    if storage.fill == "exact" and storage.exact is not None:
        limit = int(storage.exact.bound)
        return from_float64(random.integers(-limit, limit, count, endpoint=True).astype(np.float64), kind.name)
    if storage.fill == "normal":
        return from_float64(random.standard_normal(count), kind.name)
    if kind.name in TINY:
        return random.integers(0, 256, count).astype(np.uint8)
    if kind.floating:
        with np.errstate(all="ignore"):
            values = random.standard_normal(count) * np.exp(random.uniform(-2, 2, count))
            special = random.choice(np.array(_SPECIAL), count)
            return from_float64(np.where(random.random(count) < 0.1, special, values), kind.name)
    low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.signed else (0, (1 << kind.bits) - 1)
    small = random.integers(-9 if kind.signed else 0, 10, count)
    whole = random.integers(0, 1 << 63, count).astype(np.uint64) * 2 + random.integers(0, 2, count).astype(np.uint64)
    edge = random.choice(np.array([low, high, low + 1, high - 1, 0], object), count)
    choice = random.random(count)
    wide = whole.astype(f"uint{kind.bits}").astype(kind.storage)
    result = np.where(choice < 0.6, small.astype(kind.storage), wide)
    edges = np.array([int(value) for value in edge], object).astype(f"int{64}" if kind.signed else "uint64")
    return np.where(choice > 0.93, edges.astype(kind.storage), result)

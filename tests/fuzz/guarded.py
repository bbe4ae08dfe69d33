"""Arrays between pages that nobody may touch: who writes or reads past them ends the process."""
# pyright: reportCallIssue=false

from __future__ import annotations

import ctypes
import mmap

import numpy as np

__all__ = ["Guarded"]

_PAGE = mmap.PAGESIZE
_CANARY = 0xC7
_NONE, _READ, _BOTH = 0, 1, 3  # PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Guarded:
    """One page between two that nobody may touch; arrays end where the second of those begins."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 3 * _PAGE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._protect(self._base, _NONE)
        self._protect(self._base + 2 * _PAGE, _NONE)
        self._page = np.frombuffer((ctypes.c_uint8 * _PAGE).from_address(self._base + _PAGE), dtype=np.uint8)
        self._page[:] = _CANARY
        self._bytes = 0

    def array(self, values: np.ndarray, *, readonly: bool) -> np.ndarray:
        """A copy of ``values`` at the end of the page; one that is ``readonly`` lies in memory that is so."""
        self._protect(self._base + _PAGE, _BOTH)
        self._page[:] = _CANARY
        self._bytes = values.nbytes
        found = self._page[_PAGE - values.nbytes :].view(values.dtype)
        found[:] = values
        if readonly:
            found.flags.writeable = False
            self._protect(self._base + _PAGE, _READ)
        return found

    def is_whole(self) -> bool:
        """Whether nothing was written before the array."""
        return bool((self._page[: _PAGE - self._bytes] == _CANARY).all())

    def _protect(self, address: int, what: int) -> None:
        if _libc.mprotect(address, _PAGE, what) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

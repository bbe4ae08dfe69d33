"""Launches of one loaded kernel as threads do them: some programs at a time, in scratch memory that others used."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Mapping
from typing import Any

from silo.launch.cpu_objects import KernelObject, context_alone, context_locking

from .program import Kernel

__all__ = ["THREADS", "Scratch", "launch"]

THREADS = 2
_MOST_PARTS = 2**32 - 1  # with no program it asks how many parts there may be


class Scratch:
    """The scratch memory of one thread, kept from launch to launch. At first it holds NaNs: nothing may be read that
    was not written."""

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, max(size, 1))
        self._map.write(b"\xff" * len(self._map))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))


def launch(kernel: Kernel, loaded: KernelObject, arguments: Mapping[str, Any], scratches: list[Scratch]) -> None:
    """Run all programs, at once on one thread, which is alone, or by turns on as many as there are ``scratches``.

    Kernels of odd seeds may lock what several threads change. Where a kernel cuts its programs into parts, the threads
    take some parts at a time; one thread has whole programs.
    """
    values = [arguments[slot.name] for slot in loaded.launch.layout]
    cells = [
        KernelObject._cell(slot.name, slot.type, value)
        for slot, value in zip(loaded.launch.layout, values, strict=True)
    ]
    addresses = (ctypes.c_void_p * max(len(cells), 1))(*[ctypes.addressof(cell) for cell in cells])
    grid = (ctypes.c_uint32 * 3)(*(*kernel.grid, 1, 1)[:3])
    function = loaded.function

    codes: list[int] = []

    asking = context_alone()
    asking.parts = _MOST_PARTS
    function(addresses, grid, 0, 0, scratches[0].address, ctypes.addressof(asking))
    most = 1 if asking.parts == _MOST_PARTS else asking.parts
    parts = most >> kernel.seed % most.bit_length() if len(scratches) > 1 else 1

    def run(scratch: Scratch, begin: int, end: int, context: int | None = None) -> None:
        locking = context_locking() if context is None and (kernel.seed % 2 or parts > 1) else None
        if locking is not None:
            locking.parts = parts
        place = ctypes.addressof(locking) if locking is not None else context
        codes.append(function(addresses, grid, begin, end, scratch.address, place))

    if len(scratches) == 1:
        alone = context_alone()
        run(scratches[0], 0, kernel.programs, ctypes.addressof(alone))
    else:
        _by_turns(run, kernel.programs * parts, scratches)
    assert not any(codes), f"a launch failed with {codes}"


def _by_turns(run: Callable[[Scratch, int, int], None], programs: int, scratches: list[Scratch]) -> None:
    share = max(programs // (2 * len(scratches)), 1)
    starts = iter(range(0, programs, share))
    lock = threading.Lock()

    def work(scratch: Scratch) -> None:
        while True:
            with lock:
                begin = next(starts, None)
            if begin is None:
                return
            run(scratch, begin, min(begin + share, programs))

    threads = [threading.Thread(target=work, args=(scratch,)) for scratch in scratches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

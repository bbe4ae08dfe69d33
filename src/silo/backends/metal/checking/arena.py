"""Copies of a launch's arrays, far apart, so that an access beyond one of them lands in none."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from silo.launch.argument_memory import Allocation, Region, allocation_of, holding, regions_of

__all__ = ["Arena", "Copied"]

_LEAST_GAP = 1 << 20  # bytes
_MOST_GAP = 1 << 28
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Copied:
    """An argument's memory in the arena: ``low`` up to ``high``; ``delta`` leads there from the caller's address."""

    allocation: Allocation
    region: int
    low: int
    high: int
    delta: int


class Arena:
    """Memory of its own that stands for the arrays of one launch.

    Arrays that share memory share it here too. The caller's arrays are read once, and written by :meth:`publish`.
    """

    def __init__(self, names: Sequence[str], arguments: Mapping[str, object], *, views: bool = False) -> None:
        """Copy the arrays among ``arguments``; ``names`` are the pointer parameters. ArgumentError."""
        found: list[Allocation] = []
        for name in dict.fromkeys(names):
            value = arguments.get(name)
            if value is not None and hasattr(value, "shape"):
                found.append(allocation_of(name, value, view=views))
        self.regions: list[Region] = regions_of(found)
        sizes = [region.high - region.low for region in self.regions]
        gap = min(max([_LEAST_GAP, *sizes]), _MOST_GAP) // _PAGE * _PAGE
        starts: list[int] = []
        at = gap
        for region, size in zip(self.regions, sizes, strict=True):
            starts.append(at + region.low % _PAGE)  # as aligned as the caller's
            at = (starts[-1] + size + gap) // _PAGE * _PAGE + _PAGE
        self._map = mmap.mmap(-1, at + gap, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.low = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.high = self.low + at + gap
        self.starts = [self.low + start for start in starts]
        self._held = [region.read() for region in self.regions]
        self.copies = [self._copied(one) for one in found]

    def _copied(self, one: Allocation) -> Copied:
        region = holding(self.regions, one)
        if region < 0:  # an empty array: somewhere that nothing lies
            return Copied(one, -1, self.low, self.low, self.low - one.low)
        delta = self.starts[region] - self.regions[region].low
        return Copied(one, region, one.low + delta, one.high + delta, delta)

    def address(self, name: str, caller: int) -> int:
        """Where the argument ``name``, which points at ``caller``, points in here."""
        for one in self.copies:
            if one.allocation.name == name:
                return caller + one.delta
        return caller

    def restore(self) -> None:
        """What the caller's arrays held, again."""
        for start, held in zip(self.starts, self._held, strict=True):
            ctypes.memmove(start, (ctypes.c_char * len(held)).from_buffer(held), len(held))

    def results(self) -> list[bytes]:
        """What the regions hold now."""
        return [
            ctypes.string_at(start, region.high - region.low)
            for start, region in zip(self.starts, self.regions, strict=True)
        ]

    def before(self, region: int) -> bytearray:
        """What a region held when the launch began."""
        return self._held[region]

    def publish(self, results: Sequence[bytes]) -> None:
        """Write to the caller's arrays what a run left, where that differs from what they hold."""
        for region, held, now in zip(self.regions, self._held, results, strict=True):
            left = bytearray(now)
            if held != left:
                region.write(left)

"""The arrays of a checked launch: their memory, its contents at the start of each run, and the results of a run."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from silo.checking.machine import About, CheckedLaunch, Difference, Fault, Schedule
from silo.core.host_arrays import require_numpy
from silo.launch.argument_memory import Allocation, allocation_of, holding, regions_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Contents", "CopiedMemory", "LaunchMemory", "MemoryLaunch", "allocations_of"]

Contents: TypeAlias = "Mapping[int, NDArray[np.uint8]]"
"""The bytes of memory regions, by the number of the region."""

_LEAST_GAP = 1 << 20  # least bytes between two copies
_MOST_GAP = 1 << 28
_PAGE = 4096


def allocations_of(
    names: Sequence[str], arguments: Mapping[str, object], extra: Sequence[object] = (), *, views: bool = False
) -> tuple[Allocation, ...]:
    """Returns the memory of each argument in ``names`` that is an array, and of each array in ``extra``.

    Args:
        names: pointer parameters. A name may occur several times; an argument that is not an array is left out.
        arguments: the caller's objects by name. A tensor descriptor counts as its base array.
        extra: further arrays, called ``memory[0]`` and so on.
        views: limit each allocation to the array's elements, without the rest of the memory that it is a view of.

    Raises:
        ArgumentError: an array that is not in host memory.
        PackageError: numpy is not installed.
    """
    require_numpy("checking mode")
    allocations: list[Allocation] = []
    for name in dict.fromkeys(names):
        value = arguments.get(name)
        base = getattr(value, "base", None) if hasattr(value, "block_shape") else value
        if hasattr(base, "shape"):
            allocations.append(allocation_of(name, base, view=views))
    allocations += [allocation_of(f"memory[{index}]", value, view=views) for index, value in enumerate(extra)]
    return tuple(allocations)


class LaunchMemory:
    """The memory of a launch's arrays, for checks that run on the caller's own arrays instead of copies.

    Arrays that overlap share a region. :meth:`keep` copies regions; :meth:`restore` writes the copies back, so that
    each run starts with the same contents. ``starts`` has the address of each region as a run sees it.
    """

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        """``allocations`` come from :func:`allocations_of`."""
        import numpy  # noqa: PLC0415, ICN001  # numpy is optional, and here

        self._np = numpy
        self.allocations = tuple(allocations)
        self.regions = regions_of(allocations)
        self.starts = [region.low for region in self.regions]
        self._copies: dict[int, NDArray[np.uint8]] = {}

    def region_of(self, allocation: Allocation) -> int:
        """Returns the number of the region that contains an allocation; -1 if the allocation is empty."""
        return holding(self.regions, allocation)

    def keep(self, regions: Sequence[int]) -> None:
        """Copies these regions; all others are never restored or compared."""
        self._copies = {
            index: self._np.frombuffer(self.regions[index].read(), self._np.uint8) for index in sorted(regions)
        }

    def kept(self, region: int) -> NDArray[np.uint8]:
        """Returns the content that a region had when it was copied."""
        return self._copies[region]

    def restore(self) -> None:
        """Writes the copied contents back, before the next run."""
        self._write(self._copies)

    def put_back(self) -> None:
        """Restores the caller's arrays to the copied contents."""
        self.restore()

    def results(self) -> Contents:
        """Returns a copy of the present contents of the copied regions."""
        return {index: self._now(index).copy() for index in self._copies}

    def publish(self, results: Contents) -> None:
        """Writes the results of a run to the caller's arrays."""
        self._write(results)

    def difference(self, before: Contents, ignored: Mapping[int, NDArray[np.bool_]] | None = None) -> Difference | None:
        """Returns the first byte that differs from ``before``; bytes for which ``ignored`` is True may differ."""
        for index, content in before.items():
            unequal = self._now(index) != content
            if ignored is not None and index in ignored:
                unequal &= ~ignored[index]
            if unequal.any():
                return Difference(index, int(unequal.argmax()))
        return None

    def address(self, difference: Difference) -> int:
        """Returns the address of the differing byte, as a run sees it."""
        return self.starts[difference.region] + difference.byte

    def _now(self, index: int) -> NDArray[np.uint8]:
        region = self.regions[index]
        buffer = (ctypes.c_uint8 * (region.high - region.low)).from_address(self.starts[index])
        return self._np.frombuffer(memoryview(buffer), self._np.uint8)

    def _write(self, contents: Contents) -> None:
        for index, content in contents.items():
            ctypes.memmove(self.starts[index], content.ctypes.data, content.size)


class CopiedMemory(LaunchMemory):
    """Copies of a launch's arrays, so far apart that an access beyond one copy does not reach another.

    The caller's arrays are read once, and written only by :meth:`publish`. ``low`` and ``high`` are the ends of the
    memory that holds the copies. ``copies`` are the allocations at the addresses that a run sees.
    """

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        """``allocations`` come from :func:`allocations_of`."""
        super().__init__(allocations)
        sizes = [region.high - region.low for region in self.regions]
        gap = min(max([_LEAST_GAP, *sizes]), _MOST_GAP) // _PAGE * _PAGE
        starts: list[int] = []
        at = gap
        for region, size in zip(self.regions, sizes, strict=True):
            starts.append(at + region.low % _PAGE)  # the copy has the alignment of the caller's array
            at = (starts[-1] + size + gap) // _PAGE * _PAGE + _PAGE
        self._map = mmap.mmap(-1, at + gap, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.low = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.high = self.low + at + gap
        self.starts = [self.low + start for start in starts]
        self.copies = tuple(map(self._copied, self.allocations))
        self.keep(range(len(self.regions)))

    def _copied(self, allocation: Allocation) -> Allocation:
        region = self.region_of(allocation)
        if region < 0:  # an empty array gets an address that no copy has
            return Allocation(
                allocation.name,
                self.low,
                self.low,
                allocation.address - allocation.low + self.low,
                allocation.words,
                allocation.writable,
            )
        moved = self.starts[region] - self.regions[region].low
        return Allocation(
            allocation.name,
            allocation.low + moved,
            allocation.high + moved,
            allocation.address + moved,
            allocation.words,
            allocation.writable,
            allocation.inside,
        )

    def moved(self, name: str, address: int) -> int:
        """Returns the address in the copies for ``address``, to which the argument ``name`` points."""
        for allocation, copy in zip(self.allocations, self.copies, strict=True):
            if allocation.name == name:
                return address + copy.low - allocation.low
        return address

    def put_back(self) -> None:
        """Does nothing, because runs never write to the caller's arrays."""

    def publish(self, results: Contents) -> None:
        """Writes the regions that a run changed to the caller's arrays."""
        for index, result in results.items():
            if not self._np.array_equal(result, self._copies[index]):
                ctypes.memmove(self.regions[index].low, result.ctypes.data, result.size)


class MemoryLaunch(CheckedLaunch[Schedule, Fault, About, Contents]):
    """A checked launch whose results are the contents of its memory."""

    memory: LaunchMemory

    def results(self) -> Contents:
        """Returns a copy of the present contents of the copied regions."""
        return self.memory.results()

    def difference(self, results: Contents) -> Difference | None:
        """Returns the first byte of the last run's results that differs from ``results``; None if they are equal."""
        return self.memory.difference(results)

    def publish(self, results: Contents) -> None:
        """Writes the results to the caller's arrays."""
        self.memory.publish(results)

    def put_back(self) -> None:
        """Restores the caller's arrays to their contents at the start of the launch."""
        self.memory.put_back()

"""The host memory that a call's arguments may access: start, end and name of each allocation."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from silo.errors import ArgumentError
from silo.launch import native

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Allocation", "MemoryRegion", "allocation_of", "holding", "regions_of"]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The memory behind one argument, from address ``low`` up to ``high``; ``address`` is where the argument points.

    ``words`` describe the allocation in messages ("numpy base array of 64 bytes"). ``inside`` is set for a view with
    gaps between its elements: one byte for each byte from ``low``, 1 if that byte is part of an element. ``inside`` is
    None if every byte is part of an element.
    """

    name: str
    low: int
    high: int
    address: int
    words: str
    writable: bool = True
    inside: NDArray[np.uint8] | None = field(default=None, compare=False)

    def has(self, address: int, size: int) -> bool:
        """Returns whether an access of ``size`` bytes at ``address`` touches only bytes of this allocation."""
        first = address - self.low
        if first < 0 or address + size > self.high:
            return False
        return self.inside is None or bool(self.inside[first] and self.inside[max(first, first + size - 1)])

    @property
    def size(self) -> int:
        """The size of the allocation in bytes."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """A contiguous range of memory that holds one or several allocations."""

    low: int
    high: int

    def read(self) -> bytearray:
        """Returns a copy of the region's bytes."""
        content = bytearray(self.high - self.low)
        if content:
            ctypes.memmove((ctypes.c_char * len(content)).from_buffer(content), self.low, len(content))
        return content

    def write(self, held: bytearray) -> None:
        """Writes ``held``, a result of :meth:`read`, back to the region."""
        if held:
            ctypes.memmove(self.low, (ctypes.c_char * len(held)).from_buffer(held), len(held))


def allocation_of(name: str, value: Any, *, view: bool = False) -> Allocation:  # noqa: ANN401  # any library's array
    """Returns the allocation behind an array in host memory.

    That is the array's whole base array or storage, or with ``view`` only the bytes of the array's own elements.

    Raises:
        ArgumentError: the array is on a device, or does not state its address.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor: Any = value
        if tensor.device.type != "cpu":
            raise ArgumentError(_elsewhere(name, str(tensor.device)))
        storage = tensor.untyped_storage()
        low, size = storage.data_ptr(), storage.nbytes()
        if view:
            width = tensor.element_size()
            steps = [stride * width for stride in tensor.stride()]
            storage_text = f"torch storage of {size} bytes"
            return _elements(name, tensor.data_ptr(), tuple(tensor.shape), steps, width, storage_text, writable=True)
        return Allocation(name, low, low + size, tensor.data_ptr(), f"torch storage of {size} bytes")
    if hasattr(value, "__array_interface__"):
        return _numpy(name, value, view=view)
    address, _, bits, readonly, device, shape, strides = native.read(value)
    if device[0] != 1:
        raise ArgumentError(_elsewhere(name, f"DLPack device {device}"))
    width = bits // 8
    low, high = _reach(address, shape, [stride * width for stride in strides], width)
    kind = type(value).__name__
    if view:
        steps = [stride * width for stride in strides]
        return _elements(name, address, shape, steps, width, kind, writable=not readonly)
    return Allocation(name, low, high, address, f"{kind} of {high - low} bytes", writable=not readonly)


def _numpy(name: str, value: Any, *, view: bool) -> Allocation:  # noqa: ANN401
    """Follows ``base`` from view to view to the last numpy array, and returns the memory of that array's elements.

    If that array itself was made from another object's memory (a ``bytes``, a mapped file), the rest of the object's
    memory is not included.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional, and here

    array = np.asarray(value)
    owner: Any = array
    while isinstance(getattr(owner, "base", None), np.ndarray):
        owner = owner.base
    low, high = _reach(owner.ctypes.data, owner.shape, owner.strides, owner.itemsize)
    words = f"numpy {'base ' if owner is not array else ''}array of {high - low} bytes"
    if view:
        writable = bool(array.flags.writeable)
        layout = (array.ctypes.data, array.shape, array.strides, array.itemsize)
        return _elements(name, *layout, words, writable=writable)
    return Allocation(name, low, high, array.ctypes.data, words, writable=bool(array.flags.writeable))


def _elements(
    name: str,
    address: int,
    shape: Sequence[int],
    steps: Sequence[int],
    width: int,
    whole: str,
    *,
    writable: bool,
) -> Allocation:
    """Describes the memory of a view's own elements as an :class:`Allocation`; allocates nothing.

    ``steps`` (strides) and ``width`` are in bytes; ``whole`` describes the memory that the view is part of.
    """
    low, high = _reach(address, shape, steps, width)
    size = math.prod(shape) * width
    inside: NDArray[np.uint8] | None = None
    distinct = math.prod(extent for extent, step in zip(shape, steps, strict=True) if step) * width
    if high - low > distinct:  # fewer distinct elements than bytes: there are gaps
        import numpy as np  # noqa: PLC0415  # numpy is optional, and here

        inside = np.zeros(high - low, np.uint8)
        elements: NDArray[np.uint8] = np.lib.stride_tricks.as_strided(
            inside[address - low :], (*shape, width), (*steps, 1)
        )
        elements[...] = 1
    return Allocation(name, low, high, address, f"view of {size} bytes in a {whole}", writable, inside)


def _reach(address: int, shape: Sequence[int], strides: Sequence[int], width: int) -> tuple[int, int]:
    """Returns the lowest address of an array's elements, and the address after its last byte.

    ``strides`` and ``width`` are in bytes.
    """
    if not all(shape):
        return address, address
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = address + sum(step for step in steps if step < 0)
    return low, address + sum(step for step in steps if step > 0) + width


def _elsewhere(name: str, device: str) -> str:
    return f"{name} lies on {device}: a check runs on the CPU and takes arrays in host memory; copy it there (.cpu())"


def regions_of(allocations: Sequence[Allocation]) -> list[MemoryRegion]:
    """Joins allocations that overlap into regions, sorted by address."""
    regions: list[MemoryRegion] = []
    for allocation in sorted(allocations, key=lambda one: one.low):
        if regions and allocation.low < regions[-1].high:
            regions[-1] = MemoryRegion(regions[-1].low, max(regions[-1].high, allocation.high))
        elif allocation.size:
            regions.append(MemoryRegion(allocation.low, allocation.high))
    return regions


def holding(regions: Sequence[MemoryRegion], allocation: Allocation) -> int:
    """Returns the index of the region that contains an allocation; -1 for an empty allocation."""
    for index, region in enumerate(regions):
        if region.low <= allocation.low and allocation.high <= region.high and allocation.size:
            return index
    return -1

"""The memory of a host function while it is read: what it put where, byte by byte."""

from __future__ import annotations

from dataclasses import dataclass, field

from silo.core.launch_info import ABI_BYTES
from silo.kinds.cute.c_layout import CLayout
from silo.kinds.cute.launch_call import Computed, LaunchValue

__all__ = ["Address", "HostMemory", "MemoryBlock", "Part", "Symbol"]


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a block of memory that the function allocated."""

    block: int
    offset: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a global of the module, or, ``loaded``, what it holds."""

    name: str
    loaded: bool = False


Scalar = int | float | LaunchValue | Computed | Address | Symbol
Part = Scalar | tuple["Part", ...]
"""A value: a scalar, or the members of a struct or an array."""


@dataclass(slots=True)
class MemoryBlock:
    """What one allocation holds: its layout, and the scalars written to it by offset, with their sizes."""

    layout: CLayout
    cells: dict[int, tuple[int, Scalar]] = field(default_factory=dict[int, tuple[int, Scalar]])
    spoiled: bool = False  # something unknown may have written to it

    def put(self, offset: int, size: int, value: Scalar) -> None:
        """Write a scalar over whatever was there."""
        for start, (length, _) in list(self.cells.items()):
            if start < offset + size and offset < start + length:
                del self.cells[start]
        self.cells[offset] = (size, value)

    def get(self, offset: int, size: int) -> Scalar:
        """A scalar as it was written; of anything else nothing is known."""
        length, value = self.cells.get(offset, (0, Computed()))
        return value if length == size and not self.spoiled else Computed()


class HostMemory:
    """All blocks of one run."""

    def __init__(self) -> None:
        self.blocks: list[MemoryBlock] = []

    def allocate(self, layout: CLayout) -> Address:
        """A new block."""
        self.blocks.append(MemoryBlock(layout))
        return Address(len(self.blocks) - 1, 0)

    def write(self, address: Part, layout: CLayout, value: Part) -> None:
        """Write a value of that layout. A place that is not known lies in none of the blocks: none of them escapes."""
        if not isinstance(address, Address):
            return
        if layout.scalar is not None:
            assert not isinstance(value, tuple)
            self.blocks[address.block].put(address.offset, ABI_BYTES[layout.scalar], value)
            return
        for index, (offset, part) in enumerate(layout.parts):
            member = value[index] if isinstance(value, tuple) else Computed()
            self.write(Address(address.block, address.offset + offset), part, member)

    def read(self, address: Part, layout: CLayout) -> Part:
        """Read a value of that layout."""
        if isinstance(address, Symbol):
            return Symbol(address.name, loaded=True)
        if layout.scalar is not None:
            if not isinstance(address, Address):
                return Computed()
            return self.blocks[address.block].get(address.offset, ABI_BYTES[layout.scalar])
        return tuple(
            self.read(Address(address.block, address.offset + offset), part)
            if isinstance(address, Address)
            else Computed()
            for offset, part in layout.parts
        )

    def spoil(self, address: Part) -> None:
        """Something that is not known here was given this address: it may have written to the block."""
        if isinstance(address, Address):
            self.blocks[address.block].spoiled = True

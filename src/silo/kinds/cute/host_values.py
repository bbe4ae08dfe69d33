"""Values of a host function while it is read: its memory, byte by byte, and the LLVM dialect's arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from silo.core.launch_info import ABI_BYTES
from silo.kinds.cute.launch_call import Computed, LaunchValue
from silo.kinds.cute.layouts import CLayout

__all__ = [
    "COMPARISONS",
    "INTEGER_OPERATIONS",
    "Address",
    "HostMemory",
    "MemoryBlock",
    "Part",
    "Symbol",
    "unsigned",
    "wrapped",
]

# ---- The memory of a host function while it is read: the written values, byte by byte ----


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a block of memory that the function allocated."""

    block: int
    offset: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a global of the module; ``loaded``: the value there."""

    name: str
    loaded: bool = False


Scalar = int | float | LaunchValue | Computed | Address | Symbol
Part = Scalar | tuple["Part", ...]
"""A value: a scalar, or the members of a struct or an array."""


@dataclass(slots=True)
class MemoryBlock:
    """The contents of one allocation: its layout, and the scalars written to it by offset, with their sizes."""

    layout: CLayout
    cells: dict[int, tuple[int, Scalar]] = field(default_factory=dict[int, tuple[int, Scalar]])
    spoiled: bool = False  # an unknown operation may have written to it

    def put(self, offset: int, size: int, value: Scalar) -> None:
        """Writes a scalar over the scalars that overlap it."""
        for start, (length, _) in list(self.cells.items()):
            if start < offset + size and offset < start + length:
                del self.cells[start]
        self.cells[offset] = (size, value)

    def get(self, offset: int, size: int) -> Scalar:
        """Returns a scalar as it was written; any other range of bytes is an unknown value."""
        length, value = self.cells.get(offset, (0, Computed()))
        return value if length == size and not self.spoiled else Computed()


class HostMemory:
    """All blocks of one run."""

    def __init__(self) -> None:
        self.blocks: list[MemoryBlock] = []

    def allocate(self, layout: CLayout) -> Address:
        """Returns the address of a new block."""
        self.blocks.append(MemoryBlock(layout))
        return Address(len(self.blocks) - 1, 0)

    def write(self, address: Part, layout: CLayout, value: Part) -> None:
        """Writes a value of that layout. An unknown address lies outside of all blocks, because no address escapes."""
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
        """Returns a value of that layout."""
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
        """Marks the block at this address as unknown: an unknown operation received it and may have written to it."""
        if isinstance(address, Address):
            self.blocks[address.block].spoiled = True


# ---- Integer arithmetic of the LLVM dialect, over constants ----


def wrapped(value: int, bits: int) -> int:
    """Returns ``value`` as a signed number of ``bits`` bits; a single bit is 0 or 1.

    >>> wrapped(255, 8), wrapped(1, 1), wrapped(256, 8)
    (-1, 1, 0)
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def unsigned(value: int, bits: int) -> int:
    """Returns the same bits as an unsigned number."""
    return value & ((1 << bits) - 1)


def _quotient(left: int, right: int) -> int:
    """Returns the quotient rounded towards zero."""
    made = abs(left) // abs(right)
    return made if (left < 0) == (right < 0) else -made


def _signed(rule: Callable[[int, int], int]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: wrapped(rule(left, right), bits)


def _unsigned(rule: Callable[[int, int], int]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: wrapped(rule(unsigned(left, bits), unsigned(right, bits)), bits)


def _divided(rule: Callable[[int, int, int], int | None]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: rule(left, right, bits) if right else None


def _shifted(rule: Callable[[int, int, int], int | None]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: rule(left, right, bits) if 0 <= right < bits else None


INTEGER_OPERATIONS: Mapping[str, Callable[[int, int, int], int | None]] = {
    "llvm.add": _signed(lambda left, right: left + right),
    "llvm.sub": _signed(lambda left, right: left - right),
    "llvm.mul": _signed(lambda left, right: left * right),
    "llvm.and": _signed(lambda left, right: left & right),
    "llvm.or": _signed(lambda left, right: left | right),
    "llvm.xor": _signed(lambda left, right: left ^ right),
    "llvm.intr.smax": _signed(max),
    "llvm.intr.smin": _signed(min),
    "llvm.intr.umax": _unsigned(max),
    "llvm.intr.umin": _unsigned(min),
    "llvm.sdiv": _divided(_signed(_quotient)),
    "llvm.srem": _divided(_signed(lambda left, right: left - right * _quotient(left, right))),
    "llvm.udiv": _divided(_unsigned(lambda left, right: left // right)),
    "llvm.urem": _divided(_unsigned(lambda left, right: left % right)),
    "llvm.shl": _shifted(_signed(lambda left, right: left << right)),
    "llvm.ashr": _shifted(_signed(lambda left, right: left >> right)),
    "llvm.lshr": _shifted(_unsigned(lambda left, right: left >> right)),
}
"""By the operation's name: a function of two signed numbers and their bits; None if the result is undefined."""

# In the order of the dialect's numbers: eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge.
COMPARISONS: tuple[Callable[[int, int, int], bool], ...] = (
    lambda left, right, _: left == right,
    lambda left, right, _: left != right,
    lambda left, right, _: left < right,
    lambda left, right, _: left <= right,
    lambda left, right, _: left > right,
    lambda left, right, _: left >= right,
    lambda left, right, bits: unsigned(left, bits) < unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) <= unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) > unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) >= unsigned(right, bits),
)

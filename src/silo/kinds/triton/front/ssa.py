"""The SSA form of one Triton module, as in the generic form of MLIR.

Values are compared by identity: two values are the same only if they are the same object. A value lists its users, so
passes need no tables of their own. Types are immutable and compared by content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Attribute", "Block", "Dense", "Module", "Operation", "Region", "Type", "Value"]


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar (``shape == ()`` and ``tensor`` False), a tensor, or a pointer to ``element``.

    ``element`` is MLIR's name of the scalar: i1, i8, i16, i32, i64, index, f16, bf16, f32, f64, f8E4M3FN, ... With
    ``pointer`` set, the value is an address (or a tensor of addresses) of such elements. ``layout`` is the layout of a
    tensor in a Gluon kernel, as MLIR prints it: ``#blocked``, an alias, or the attribute itself; else "".
    """

    element: str
    shape: tuple[int, ...] = ()
    tensor: bool = False
    pointer: bool = False
    layout: str = ""

    @property
    def elements(self) -> int:
        """The number of scalars in a value of this type."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True, slots=True)
class Dense:
    """A ``dense<...>`` constant: one value for all elements (a splat), or every value in row-major order."""

    values: tuple[int | float | bool, ...]
    type: Type

    @property
    def splat(self) -> int | float | bool | None:
        """The value of all elements, or None if they differ."""
        return self.values[0] if len(self.values) == 1 else None


# The value of an attribute. Integers, bools and strings are Python's; floats are Python floats (bit-exact from MLIR's
# hex form), arrays are tuples, and dictionaries are read-only mappings. Symbol references (``@f``), types, dialect
# attributes and all other attributes are kept as text.
Attribute: TypeAlias = "int | float | bool | str | Dense | tuple[Attribute, ...] | Mapping[str, Attribute]"


@dataclass(slots=True, eq=False)
class Value:
    """One SSA value: the result of an operation or the argument of a block."""

    name: str
    type: Type
    # References back to the module are left out of the repr, which would otherwise contain the whole module many times.
    owner: Operation | None = field(default=None, repr=False)  # None for block arguments
    block: Block | None = field(default=None, repr=False)  # the block of which it is an argument
    index: int = 0  # position among the results or the arguments
    uses: list[Operation] = field(default_factory=list["Operation"], repr=False)


@dataclass(slots=True, eq=False)
class Operation:
    """One operation. ``location`` is ``file:line`` of the user's source if known, else "".

    ``successors`` are the blocks to which ``cf.br`` or ``cf.cond_br`` may jump, in the order of the text.
    """

    name: str
    operands: list[Value]
    results: list[Value]
    attributes: dict[str, Attribute]
    regions: list[Region] = field(default_factory=list["Region"], repr=False)
    successors: list[Block] = field(default_factory=list["Block"], repr=False)
    block: Block | None = field(default=None, repr=False)
    location: str = ""

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def callee(self) -> str:
        """The symbol of the function that a ``tt.call`` calls; "" if it names none."""
        name = self.attributes.get("callee")
        return name.removeprefix("@").strip('"') if isinstance(name, str) else ""

    def operand_segments(self) -> tuple[tuple[Value, ...], ...]:
        """The operands, grouped by ``operandSegmentSizes``; one group if the attribute is absent."""
        sizes = self.attributes.get("operandSegmentSizes")
        if not isinstance(sizes, tuple):
            return (tuple(self.operands),)
        groups: list[tuple[Value, ...]] = []
        start = 0
        for size in sizes:
            assert isinstance(size, int)
            groups.append(tuple(self.operands[start : start + size]))
            start += size
        return tuple(groups)

    def successor_operands(self, index: int) -> tuple[Value, ...]:
        """The values that a branch passes to the arguments of its ``index``-th successor."""
        if self.name == "cf.br":
            return tuple(self.operands)
        return self.operand_segments()[1 + index]  # the first segment is the condition

    def argument_attributes(self, index: int) -> Mapping[str, Attribute]:
        """Facts about one argument of a ``tt.func``, for example ``{"tt.divisibility": 16}``; empty if none."""
        listed = self.attributes.get("arg_attrs")
        facts = listed[index] if isinstance(listed, tuple) and index < len(listed) else None
        return facts if isinstance(facts, Mapping) else {}


@dataclass(slots=True, eq=False)
class Block:
    """A sequence of operations that ends in a terminator."""

    arguments: list[Value] = field(default_factory=list[Value])
    operations: list[Operation] = field(default_factory=list[Operation])
    region: Region | None = field(default=None, repr=False)


@dataclass(slots=True, eq=False)
class Region:
    """The blocks of one region; the first is the entry."""

    blocks: list[Block] = field(default_factory=list[Block])
    owner: Operation | None = None


@dataclass(slots=True, eq=False)
class Module:
    """All functions of a module (``tt.func`` operations) by symbol name; ``kernel`` is the public one."""

    functions: dict[str, Operation]
    kernel: str

    @property
    def entry(self) -> Operation:
        """The kernel's ``tt.func``."""
        return self.functions[self.kernel]

    def walk(self) -> list[Operation]:
        """Every operation that the module contains now, outermost first, in the order of the text."""
        operations: list[Operation] = []
        pending = list(reversed(self.functions.values()))
        while pending:
            operation = pending.pop()
            operations.append(operation)
            for region in reversed(operation.regions):
                for block in reversed(region.blocks):
                    pending.extend(reversed(block.operations))
        return operations

    def callees(self, symbol: str) -> list[str]:
        """The symbols of the functions that the function ``symbol`` calls, once for each call."""
        inside = Module({symbol: self.functions[symbol]}, symbol).walk()
        return [operation.callee for operation in inside if operation.name == "tt.call"]

"""The values of registers in straight-line PTX, bit by bit, as expressions over the operands' elements.

A bit is 0, 1, or one bit of a node: an element of an operand, or the result of an instruction. So registers that are
joined, split, widened, shifted or masked by constants need no arithmetic, and a result that holds several elements is
easily split into them. Nodes are interned: equal nodes have the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["UNKNOWN", "Applied", "Bit", "Element", "Graph", "Joined", "Literal", "Node", "RegisterPart"]


@dataclass(frozen=True, slots=True)
class Element:
    """Element ``lane`` of operand ``operand`` of the operation, of ``width`` bits."""

    operand: int
    lane: int
    width: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the text, of ``width`` bits."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Joined:
    """Bits of several nodes, the lowest first."""

    parts: tuple[Bit, ...]

    @property
    def width(self) -> int:
        """The number of bits."""
        return len(self.parts)


@dataclass(frozen=True, slots=True)
class Applied:
    """The result, of ``width`` bits, of the instruction ``name`` with the nodes ``sources`` as operands.

    ``name`` is a key of the table of instructions (``ptx_table``). For an instruction on packed elements, the node is
    the result for one element.
    """

    name: str
    sources: tuple[int, ...]
    width: int


@dataclass(frozen=True, slots=True)
class RegisterPart:
    """Bit ``place`` of node ``node``, counted from the lowest."""

    node: int
    place: int


Node = Element | Literal | Joined | Applied
Bit = RegisterPart | int | None
"""None is a bit that nothing has written, such as the upper half of a register that holds an f16."""
UNKNOWN: Bit = None


class Graph:
    """Interned nodes, each after the nodes that it reads."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Node, int] = {}

    def add(self, node: Node) -> int:
        """The number of ``node``, which is added if it is new."""
        number = self._numbers.get(node)
        if number is None:
            number = self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return number

    def bits_of(self, number: int) -> tuple[Bit, ...]:
        """All bits of a node."""
        node = self.nodes[number]
        if isinstance(node, Joined):
            return node.parts
        if isinstance(node, Literal):
            return tuple(node.bits >> index & 1 for index in range(node.width))
        return tuple(RegisterPart(number, index) for index in range(node.width))

    def read(self, bits: Sequence[Bit]) -> int | None:
        """The number of the node that has these bits, which may be new; None if a bit is unknown."""
        if any(item is UNKNOWN for item in bits):
            return None
        numbers = [item for item in bits if isinstance(item, int)]
        if len(numbers) == len(bits):
            return self.add(Literal(sum(bit << index for index, bit in enumerate(numbers)), len(bits)))
        first = bits[0]
        if isinstance(first, RegisterPart) and tuple(bits) == self.bits_of(first.node):
            return first.node
        return self.add(Joined(tuple(bits)))

    def with_lane(self, number: int, lane: int) -> int | None:
        """The number of the same node for lane 0; None if ``number`` reads an element of any lane but ``lane``.

        A node for lane 0 reads element 0 of each operand in place of element ``lane``.
        """
        memo: dict[int, int | None] = {}
        for at in self.below(number):
            node = self.nodes[at]
            if isinstance(node, Element):
                memo[at] = self.add(Element(node.operand, 0, node.width)) if node.lane == lane else None
            elif isinstance(node, Applied):
                sources = [memo[source] for source in node.sources]
                same = [source for source in sources if source is not None]
                memo[at] = self.add(Applied(node.name, tuple(same), node.width)) if len(same) == len(sources) else None
            elif isinstance(node, Joined):
                memo[at] = self._joined(node, memo)
            else:
                memo[at] = at
        return memo[number]

    def _joined(self, node: Joined, memo: dict[int, int | None]) -> int | None:
        parts: list[Bit] = []
        for part in node.parts:
            if isinstance(part, RegisterPart):
                moved = memo[part.node]
                if moved is None:
                    return None
                parts.append(self.bits_of(moved)[part.place])
            else:
                parts.append(part)
        return self.read(parts)

    def sources(self, number: int) -> tuple[int, ...]:
        """The nodes that a node reads."""
        node = self.nodes[number]
        if isinstance(node, Applied):
            return node.sources
        if isinstance(node, Joined):
            return tuple(dict.fromkeys(part.node for part in node.parts if isinstance(part, RegisterPart)))
        return ()

    def below(self, number: int) -> list[int]:
        """The nodes needed to compute ``number``, each after the nodes that it reads; ``number`` is the last."""
        reached, pending = {number}, [number]
        while pending:
            for source in self.sources(pending.pop()):
                if source not in reached:
                    reached.add(source)
                    pending.append(source)
        return sorted(reached)

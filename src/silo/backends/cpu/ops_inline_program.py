"""Evaluates straight-line PTX on registers whose bytes are expressions, and returns the expression of one element.

A text that executes once for several elements (``pack``) must compute each of them alike from its own elements: which
elements a GPU takes together depends on its layouts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from silo.backends.cpu.ops_call import RefusedError
from silo.backends.cpu.ops_inline_table import INLINE, WIDTHS, Step
from silo.backends.cpu.ops_inline_text import PtxInstruction, PtxNumber, PtxRegister, PtxVector, read_ptx
from silo.backends.cpu.ops_inline_values import UNKNOWN, Applied, Byte, Element, Graph

__all__ = ["Program", "Shape", "evaluate"]

_CONSTRAINT = re.compile(r"(=&?)?([rfhld])")
_REGISTER_BYTES = {"h": 2, "r": 4, "f": 4, "l": 8, "d": 8}
_PACKED_BYTES = 4  # elements that are smaller share a register of this size
_MOVE = re.compile(r"mov\.[busf](16|32|64)")
_RESIZE = re.compile(r"cvt\.([us])(8|16|32|64)\.([us])(8|16|32|64)")
_SHIFT = re.compile(r"(shl|shr)\.[bu](16|32|64)")
_BITWISE = re.compile(r"(and|or|xor)\.b(16|32|64)")

_Operand = PtxRegister | PtxNumber | PtxVector


@dataclass(frozen=True, slots=True)
class Shape:
    """The elements that one execution takes and gives.

    ``operands`` and ``result`` are bytes of an element, ``pack`` is the number of elements of each, and ``used`` the
    bytes of an element of the result, from the lowest, that the kernel reads.
    """

    operands: tuple[int, ...]
    result: int
    pack: int
    used: int


@dataclass(frozen=True, slots=True)
class Program:
    """The expression of an element of the result: node ``result`` of ``graph``, over elements of lane 0."""

    graph: Graph
    result: int


def evaluate(text: str, constraints: str, shape: Shape) -> Program:
    """The expression that ``text`` computes; ``RefusedError`` gives the reason if there is none.

    >>> shape = Shape(operands=(4,), result=4, pack=1, used=4)
    >>> program = evaluate("{ mul.f32 $0, $1, $1; ex2.approx.f32 $0, $0; }", "=f,f", shape)
    >>> [type(node).__name__ for node in program.graph.nodes]
    ['Element', 'Applied', 'Applied']
    """
    read = read_ptx(text)
    if isinstance(read, str):
        raise RefusedError(read)
    outputs, inputs = _constraints(constraints, shape)
    machine = _Machine(outputs, {name: bits // 8 for name, bits in read.registers.items()})
    machine.give(shape, len(outputs), inputs)
    for place, instruction in enumerate(read.instructions, 1):
        try:
            machine.run(instruction)
        except RefusedError as error:
            where = f" (instruction {place} of {len(read.instructions)})" if len(read.instructions) > 1 else ""
            raise RefusedError(f"{error}{where}") from None
    lanes = [machine.lane(shape, lane) for lane in range(shape.pack)]
    result = _alike(machine.graph, lanes)
    if result is None and shape.used < shape.result:
        rest: tuple[Byte, ...] = (0,) * (shape.result - shape.used)
        result = _alike(machine.graph, [(*one[: shape.used], *rest) for one in lanes])
    if result is None:
        raise RefusedError("its elements must be computed alike, in order, each from its own elements")
    return Program(machine.graph, result)


def _constraints(constraints: str, shape: Shape) -> tuple[list[int], list[int]]:
    """Bytes of the registers that are written and that are read."""
    words = ["".join(word.split()) for word in constraints.split(",")]
    found = [_CONSTRAINT.fullmatch(word) for word in words]
    outputs = [_REGISTER_BYTES[match[2]] for match in found if match is not None and match[1]]
    inputs = [_REGISTER_BYTES[match[2]] for match in found if match is not None and not match[1]]
    gives, takes = _registers(shape.result, shape.pack), sum(_registers(one, shape.pack) for one in shape.operands)
    ordered = words[: len(outputs)] == [word for word in words if word.startswith("=")]
    if None in found or not ordered or len(outputs) != gives or len(inputs) != takes:
        raise RefusedError(f"it takes {takes} registers (r, f, h, l or d) and gives {gives}")
    return outputs, inputs


def _in_register(width: int, pack: int) -> int:
    """How many elements share a register."""
    return min(max(_PACKED_BYTES // width, 1), pack)


def _registers(width: int, pack: int) -> int:
    return -(-pack // _in_register(width, pack))


def _alike(graph: Graph, lanes: Sequence[Sequence[Byte]]) -> int | None:
    """The node of the first lane, if every lane is the same function of its own elements."""
    found: set[int | None] = set()
    for lane, one in enumerate(lanes):
        number = graph.read(one)
        found.add(None if number is None else graph.with_lane(number, lane))
    return found.pop() if len(found) == 1 else None


class _Machine:
    """Registers and their bytes while a text is evaluated."""

    def __init__(self, outputs: Sequence[int], declared: dict[str, int]) -> None:
        self.graph = Graph()
        self._widths = {**declared, **{f"${number}": width for number, width in enumerate(outputs)}}
        self._known: dict[str, tuple[Byte, ...]] = {}

    def give(self, shape: Shape, first: int, widths: Sequence[int]) -> None:
        """Put the operands' elements into the registers from ``$first`` on."""
        number = first
        for operand, width in enumerate(shape.operands):
            together = _in_register(width, shape.pack)
            for start in range(0, shape.pack, together):
                held: list[Byte] = []
                for lane in range(start, min(start + together, shape.pack)):
                    held += self.graph.bytes_of(self.graph.add(Element(operand, lane, width)))
                held += [UNKNOWN] * (widths[number - first] - len(held))
                self._known[f"${number}"] = tuple(held)
                number += 1

    def lane(self, shape: Shape, lane: int) -> tuple[Byte, ...]:
        """The bytes of an element of the result."""
        together = _in_register(shape.result, shape.pack)
        register = f"${lane // together}"
        place = lane % together * shape.result
        found = self._known.get(register, ())[place : place + shape.result]
        if len(found) < shape.result or UNKNOWN in found[: shape.used]:
            raise RefusedError(f"it must write {register}, all {8 * shape.result} bits")
        return found

    def run(self, instruction: PtxInstruction) -> None:
        """Execute one instruction."""
        name = instruction.name.replace(".ftz", "")
        if match := _MOVE.fullmatch(name):
            self._move(instruction, int(match[1]) // 8)
        elif (match := _RESIZE.fullmatch(name)) and self._resize(instruction, match):
            return
        elif (step := INLINE.get(name)) is not None:
            target, *sources = instruction.operands
            count = 2 if step.packs else len(step.takes)
            if len(sources) != count:
                raise RefusedError(f"{name} takes {count} operands, not {len(sources)}: {instruction.text!r}")
            self._write(
                instruction, target, self._by_bytes(name, instruction) or self._computed(name, step, instruction)
            )
        else:
            raise RefusedError(f"{instruction.name} is not an instruction that is known here")

    def _move(self, instruction: PtxInstruction, width: int) -> None:
        if len(instruction.operands) != 2:
            raise RefusedError(f"{instruction.name} takes 1 operand: {instruction.text!r}")
        target, source = instruction.operands
        found = self._read(instruction, source, width)
        if not isinstance(target, PtxVector):
            self._write(instruction, target, found)
            return
        part = width // len(target.parts)
        for place, register in enumerate(target.parts):
            self._write(instruction, register, found[place * part : (place + 1) * part])

    def _resize(self, instruction: PtxInstruction, match: re.Match[str]) -> bool:
        """Widen by zeros, or narrow; False for an instruction that computes the upper bits."""
        given, taken = int(match[2]) // 8, int(match[4]) // 8
        if given > taken and match[3] == "s":
            return False
        if len(instruction.operands) != 2:
            raise RefusedError(f"{instruction.name} takes 1 operand: {instruction.text!r}")
        target, source = instruction.operands
        found = self._read(instruction, source, taken, loose=True)
        zeros: tuple[Byte, ...] = (0,) * max(given - taken, 0)
        self._write(instruction, target, (*found[:given], *zeros), zeros=match[1] == "u")
        return True

    def _by_bytes(self, name: str, instruction: PtxInstruction) -> tuple[Byte, ...] | None:
        """The result of an instruction that moves whole bytes or sets them to constants; None if it does not."""
        _, *sources = instruction.operands
        if match := _SHIFT.fullmatch(name):
            distance = sources[1].value if isinstance(sources[1], PtxNumber) else -1
            width = int(match[2]) // 8
            if distance < 0 or distance % 8:
                return None
            found = self._read(instruction, sources[0], width)
            moved: tuple[Byte, ...] = (0,) * min(distance // 8, width)
            return (*moved, *found)[:width] if match[1] == "shl" else (*found, *moved)[-width:]
        if match := _BITWISE.fullmatch(name):
            one, two = (self._read(instruction, source, int(match[2]) // 8) for source in sources)
            parts = [_bitwise(match[1], a, b) for a, b in zip(one, two, strict=True)]
            return None if any(part is UNKNOWN for part in parts) else tuple(parts)
        if name == "prmt.b32" and isinstance(sources[2], PtxNumber):
            places = [sources[2].value >> 4 * number & 15 for number in range(4)]
            both = (*self._read(instruction, sources[0], 4), *self._read(instruction, sources[1], 4))
            return tuple(both[place] for place in places) if max(places) < 8 else None
        return None

    def _computed(self, name: str, step: Step, instruction: PtxInstruction) -> tuple[Byte, ...]:
        _, *sources = instruction.operands
        takes = step.takes * 2 if step.packs else step.takes
        lanes = 1 if step.packs else step.lanes
        found = [
            self._read(instruction, source, lanes * WIDTHS[kind]) for source, kind in zip(sources, takes, strict=True)
        ]
        result: list[Byte] = []
        for lane in range(step.lanes):
            parts = [found[step.lanes - 1 - lane]] if step.packs else found
            nodes: list[int] = []
            for kind, part in zip(step.takes, parts, strict=True):
                start = 0 if step.packs else lane * WIDTHS[kind]
                node = self.graph.read(part[start : start + WIDTHS[kind]])
                if node is None:
                    raise RefusedError(f"{instruction.text!r} reads bits that nothing has written")
                nodes.append(node)
            result += self.graph.bytes_of(self.graph.add(Applied(name, tuple(nodes), WIDTHS[step.gives])))
        return tuple(result)

    def _read(
        self, instruction: PtxInstruction, operand: _Operand, width: int, *, loose: bool = False
    ) -> tuple[Byte, ...]:
        """The bytes of an operand of ``width`` bytes; ``loose``: the register may be wider."""
        if isinstance(operand, PtxNumber):
            bits = operand.as_bits(8 * width)
            if bits is None:
                raise RefusedError(f"{instruction.text!r} has a number that is none of {8 * width} bits")
            return tuple(bits.to_bytes(width, "little"))
        if isinstance(operand, PtxVector):
            part = width // len(operand.parts)
            if not _MOVE.fullmatch(instruction.name) or part * len(operand.parts) != width:
                raise RefusedError(f"the registers of {instruction.text!r} do not fit")
            return tuple(byte for one in operand.parts for byte in self._read(instruction, one, part))
        found = self._known.get(operand.name)
        if found is None:
            known = operand.name in self._widths
            reason = "which nothing has written" if known else "which is no register of the text"
            raise RefusedError(f"{instruction.name} reads {operand.name}, {reason}")
        if len(found) < width or not (loose or all(byte is UNKNOWN for byte in found[width:])):
            raise RefusedError(f"{instruction.name} takes {8 * width} bits where {operand.name} has {_bits(found)}")
        return found[:width]

    def _write(
        self, instruction: PtxInstruction, target: _Operand, found: tuple[Byte, ...], *, zeros: bool = False
    ) -> None:
        """Set a register; ``zeros``: the bits above are 0, else unknown in registers of the constraints."""
        width = self._widths.get(target.name) if isinstance(target, PtxRegister) else None
        if width is None or not isinstance(target, PtxRegister):
            raise RefusedError(f"{instruction.text!r} writes no register of the text")
        rest = width - len(found)
        if rest < 0 or (rest and not zeros and not target.name.startswith("$")):
            raise RefusedError(f"{instruction.name} gives {8 * len(found)} bits where {target.name} has {8 * width}")
        above: tuple[Byte, ...] = ((0,) if zeros else (UNKNOWN,)) * rest
        self._known[target.name] = (*found, *above)


def _bits(found: Sequence[Byte]) -> int:
    """Bits of a register up to the last that was written."""
    return 8 * max((place + 1 for place, byte in enumerate(found) if byte is not UNKNOWN), default=0)


def _bitwise(name: str, one: Byte, two: Byte) -> Byte:
    """A byte of the result; None if it takes arithmetic, or if a byte is unknown."""
    if one is UNKNOWN or two is UNKNOWN:
        return None
    if isinstance(one, int) and isinstance(two, int):
        return {"and": one & two, "or": one | two, "xor": one ^ two}[name]
    number, other = (one, two) if isinstance(one, int) else (two, one)
    if name == "and":
        return {0: 0, 255: other}.get(number) if isinstance(number, int) else None
    return other if number == 0 else None

"""Evaluates straight-line PTX on registers whose bits are expressions, and returns the expression of one element.

A text that executes once for several elements (``pack``) must compute each element in the same way from its own
operands, because which elements a GPU packs together depends on its layouts.

Jumps, predicates, labels and memory accesses are not supported. :func:`read_ptx` returns the reason for a statement
that it cannot parse; :func:`evaluate` refuses an instruction that the table of instructions lacks.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from silo.kinds.triton.front.operations.cpu.c_types import RefusedError
from silo.kinds.triton.front.operations.nvidia.ptx_table import INLINE, WIDTHS, PtxStep
from silo.kinds.triton.front.operations.nvidia.ptx_values import UNKNOWN, Applied, Bit, Element, Graph

__all__ = [
    "PtxInstruction",
    "PtxNumber",
    "PtxProgram",
    "PtxRegister",
    "PtxText",
    "PtxVector",
    "Shape",
    "evaluate",
    "read_ptx",
]


# ---- Reads the text of straight-line PTX ----


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = r"[%_A-Za-z][\w$%]*"
_DECLARED = re.compile(
    rf"\.reg\s+\.[busf](8|16|32|64)(x2)?\s+({_NAME}(?:<\d{{1,6}}>)?(?:\s*,\s*{_NAME}(?:<\d{{1,6}}>)?)*)", re.ASCII
)
_INSTRUCTION = re.compile(r"([a-z]\w*(?:\.\w+)*)\s+(\S.*)", re.ASCII | re.DOTALL)
_REGISTER = re.compile(rf"\$\d+|{_NAME}", re.ASCII)
_BITS = re.compile(r"0([fFdD])([0-9a-fA-F]+)", re.ASCII)
_DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"(-?)(0[xX][0-9a-fA-F]{1,16}|0|[1-9]\d{0,19})U?", re.ASCII)
_MOST_REGISTERS = 4096  # the most registers that one declaration may declare


@dataclass(frozen=True, slots=True)
class PtxRegister:
    """A register: ``$0`` and so on for the text's constraints, or a register that the text declares."""

    name: str


@dataclass(frozen=True, slots=True)
class PtxNumber:
    """A number: the bits of a float with ``bits`` bits, a decimal ``real``, or an integer (then ``bits`` is 0)."""

    value: int
    bits: int = 0
    real: float | None = None

    def as_bits(self, bits: int) -> int | None:
        """The bits that an instruction of width ``bits`` reads for this number; None if the number does not fit."""
        if self.real is not None:
            return _float_bits(self.real, bits)
        if self.bits:
            return self.value if self.bits == bits else None
        return self.value % (1 << bits) if -(1 << (bits - 1)) <= self.value < 1 << bits else None


@dataclass(frozen=True, slots=True)
class PtxVector:
    """Registers in braces; the first holds the lowest bits."""

    parts: tuple[PtxRegister, ...]


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """An instruction: its name and its operands, the destination first."""

    name: str
    operands: tuple[PtxRegister | PtxNumber | PtxVector, ...]
    text: str


@dataclass(frozen=True, slots=True)
class PtxText:
    """A parsed text: the bits of each declared register, and the instructions in order."""

    registers: dict[str, int]
    instructions: tuple[PtxInstruction, ...]


def read_ptx(text: str) -> PtxText | str:
    """Parses ``text``; returns the reason as text if a statement cannot be parsed.

    >>> read_ptx("{ .reg .b16 t; cvt.u16.u32 t, $1; }").registers
    {'t': 16}
    >>> read_ptx("@p bra end;")
    "'@p bra end' is not an instruction over registers"
    """
    plain = _COMMENT.sub(" ", text).strip()
    if plain.startswith("{") and plain.endswith("}"):
        plain = plain[1:-1]
    registers: dict[str, int] = {}
    instructions: list[PtxInstruction] = []
    for part in plain.split(";"):
        statement = " ".join(part.split())
        if not statement:
            continue
        if match := _DECLARED.fullmatch(statement):
            names = _declared(match[3])
            if names is None:
                return f"{statement!r} declares more registers than are read here"
            registers.update(dict.fromkeys(names, int(match[1]) * (2 if match[2] else 1)))
            continue
        match = _INSTRUCTION.fullmatch(statement)
        if match is None:
            return f"{statement!r} is not an instruction over registers"
        operands = _operands(match[2])
        if isinstance(operands, str):
            return f"{match[1]} takes {operands!r}, which is neither a register nor a number"
        instructions.append(PtxInstruction(match[1], operands, statement))
    return PtxText(registers, tuple(instructions))


def _declared(names: str) -> list[str] | None:
    """The names in a declaration; ``r<3>`` declares r0, r1 and r2. None if they cannot be read."""
    declared: list[str] = []
    for name in re.split(r"\s*,\s*", names):
        stem, _, count = name.partition("<")
        if not count:
            declared.append(stem)
            continue
        number = int(count[:-1])
        if number > _MOST_REGISTERS:
            return None
        declared += [f"{stem}{index}" for index in range(number)]
    return declared


def _operands(text: str) -> tuple[PtxRegister | PtxNumber | PtxVector, ...] | str:
    """The operands in order; if one cannot be read, its text instead."""
    operands: list[PtxRegister | PtxNumber | PtxVector] = []
    for part in re.split(r",(?![^{}]*\})", text):
        word = part.strip()
        if word.startswith("{") and word.endswith("}"):
            names = [name.strip() for name in word[1:-1].split(",")]
            if not all(map(_REGISTER.fullmatch, names)):
                return word
            operands.append(PtxVector(tuple(map(PtxRegister, names))))
            continue
        operand = _operand(word)
        if operand is None:
            return word
        operands.append(operand)
    return tuple(operands)


def _operand(word: str) -> PtxRegister | PtxNumber | None:
    if _REGISTER.fullmatch(word):
        return PtxRegister(word)
    if match := _BITS.fullmatch(word):
        bits = 32 if match[1] in "fF" else 64
        return PtxNumber(int(match[2], 16), bits) if len(match[2]) == bits // 4 else None
    if _DECIMAL.fullmatch(word):
        return PtxNumber(0, real=float(word))
    if match := _INTEGER.fullmatch(word):
        return PtxNumber(int(match[2], 0) * (-1 if match[1] else 1))
    return None


def _float_bits(value: float, bits: int) -> int | None:
    if bits == 64:
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if bits != 32:
        return None
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return struct.unpack("<I", struct.pack("<f", math.copysign(math.inf, value)))[0]


# ---- Evaluates straight-line PTX on registers whose bits are expressions ----


_CONSTRAINT = re.compile(r"(=&?)?([rfhld])")
_REGISTER_BITS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64}
_PACKED_BITS = 32  # the bits of a register that smaller elements share
_MOVE = re.compile(r"mov\.[busf](16|32|64)")
_RESIZE = re.compile(r"cvt\.([us])(8|16|32|64)\.([us])(8|16|32|64)")
_SHIFT = re.compile(r"(shl|shr)\.[bu](16|32|64)")
_FUNNEL = re.compile(r"shf\.([lr])\.wrap\.b32")
_BITWISE = re.compile(r"(and|or|xor)\.b(16|32|64)")
# The truth tables of functions of two bits as lop3 numbers them, where the third bit has no effect.
_TABLES = {"and": 0xC0, "or": 0xFC, "xor": 0x3C}

_Operand = PtxRegister | PtxNumber | PtxVector


@dataclass(frozen=True, slots=True)
class Shape:
    """The elements that one execution of a PTX text reads and writes.

    ``operands`` and ``results`` hold the bits of one element of each operand and of each result. ``pack`` is the number
    of elements that one execution takes of each operand. ``index`` is the number of the wanted result, and ``used`` the
    number of its low bits that the kernel reads.
    """

    operands: tuple[int, ...]
    results: tuple[int, ...]
    pack: int
    used: int
    index: int = 0

    @property
    def result(self) -> int:
        """The number of bits of one element of the wanted result."""
        return self.results[self.index]


@dataclass(frozen=True, slots=True)
class PtxProgram:
    """The expression of one element of the result.

    It reads the operands' elements of lane 0, the first of the elements that one execution takes (``pack``). It is node
    ``result`` of ``graph``.
    """

    graph: Graph
    result: int


def evaluate(text: str, constraints: str, shape: Shape) -> PtxProgram:
    """The expression that ``text`` computes; raises ``RefusedError`` with the reason if it cannot be expressed.

    >>> shape = Shape(operands=(32,), results=(32,), pack=1, used=32)
    >>> program = evaluate("{ mul.f32 $0, $1, $1; ex2.approx.f32 $0, $0; }", "=f,f", shape)
    >>> [type(node).__name__ for node in program.graph.nodes]
    ['Element', 'Applied', 'Applied']
    """
    read = read_ptx(text)
    if isinstance(read, str):
        raise RefusedError(read)
    outputs, inputs = _constraints(constraints, shape)
    machine = _Machine(outputs, read.registers)
    machine.give(shape, len(outputs), inputs)
    for number, instruction in enumerate(read.instructions, 1):
        try:
            machine.run(instruction)
        except RefusedError as error:
            where = f" (instruction {number} of {len(read.instructions)})" if len(read.instructions) > 1 else ""
            raise RefusedError(f"{error}{where}") from None
    lanes = [machine.lane(shape, lane) for lane in range(shape.pack)]
    result = _alike(machine.graph, lanes)
    if result is None and shape.used < shape.result:
        padding: tuple[Bit, ...] = (0,) * (shape.result - shape.used)
        result = _alike(machine.graph, [(*lane[: shape.used], *padding) for lane in lanes])
    if result is None:
        raise RefusedError("its elements must be computed alike, in order, each from its own elements")
    return PtxProgram(machine.graph, result)


def _constraints(constraints: str, shape: Shape) -> tuple[list[int], list[int]]:
    """The bits of each output register and of each input register."""
    words = ["".join(word.split()) for word in constraints.split(",")]
    matches = [_CONSTRAINT.fullmatch(word) for word in words]
    outputs = [_REGISTER_BITS[match[2]] for match in matches if match is not None and match[1]]
    inputs = [_REGISTER_BITS[match[2]] for match in matches if match is not None and not match[1]]
    gives, takes = (
        sum(_registers(width, shape.pack) for width in widths) for widths in (shape.results, shape.operands)
    )
    ordered = words[: len(outputs)] == [word for word in words if word.startswith("=")]
    if None in matches or not ordered or len(outputs) != gives or len(inputs) != takes:
        raise RefusedError(f"it takes {takes} registers (r, f, h, l or d) and gives {gives}")
    return outputs, inputs


def _in_register(width: int, pack: int) -> int:
    """The number of elements that share a register."""
    return min(max(_PACKED_BITS // width, 1), pack)


def _registers(width: int, pack: int) -> int:
    return -(-pack // _in_register(width, pack))


def _alike(graph: Graph, lanes: Sequence[Sequence[Bit]]) -> int | None:
    """The node that computes the result's first element; None if another element is computed in a different way.

    ``lanes`` holds the bits of each element of the result; element N may read only elements N of the operands.
    """
    nodes: set[int | None] = set()
    for lane, bits in enumerate(lanes):
        number = graph.read(bits)
        nodes.add(None if number is None else graph.with_lane(number, lane))
    return nodes.pop() if len(nodes) == 1 else None


class _Machine:
    """The registers while a text is evaluated: for each register, the known expression of each bit."""

    def __init__(self, outputs: Sequence[int], declared: dict[str, int]) -> None:
        self.graph = Graph()
        self._widths = {**declared, **{f"${number}": width for number, width in enumerate(outputs)}}
        self._register_bits: dict[str, tuple[Bit, ...]] = {}

    def give(self, shape: Shape, first: int, widths: Sequence[int]) -> None:
        """Puts the elements of the operands into the registers from ``$first`` on."""
        number = first
        for operand, width in enumerate(shape.operands):
            together = _in_register(width, shape.pack)
            for start in range(0, shape.pack, together):
                bits: list[Bit] = []
                for lane in range(start, min(start + together, shape.pack)):
                    bits += self.graph.bits_of(self.graph.add(Element(operand, lane, width)))
                bits += [UNKNOWN] * (widths[number - first] - len(bits))
                self._register_bits[f"${number}"] = tuple(bits)
                number += 1

    def lane(self, shape: Shape, lane: int) -> tuple[Bit, ...]:
        """The bits of the element ``lane`` of the result."""
        together = _in_register(shape.result, shape.pack)
        before = sum(_registers(result, shape.pack) for result in shape.results[: shape.index])
        register = f"${before + lane // together}"
        offset = lane % together * shape.result
        bits = self._register_bits.get(register, ())[offset : offset + shape.result]
        if len(bits) < shape.result or UNKNOWN in bits[: shape.used]:
            raise RefusedError(f"it must write {register}, all {shape.result} bits")
        return bits

    def run(self, instruction: PtxInstruction) -> None:
        """Executes one instruction."""
        name = instruction.name.replace(".ftz", "")
        if match := _MOVE.fullmatch(name):
            self._move(instruction, int(match[1]))
        elif (match := _RESIZE.fullmatch(name)) and self._resize(instruction, match):
            return
        elif match := _FUNNEL.fullmatch(name):
            self._funnel(instruction, match[1] == "l")
        elif (step := INLINE.get(name)) is not None:
            target, *sources = instruction.operands
            count = 2 if step.packs else len(step.takes)
            if len(sources) != count:
                raise RefusedError(f"{name} takes {count} operands, not {len(sources)}: {instruction.text!r}")
            self._write(
                instruction, target, self._by_bits(name, instruction) or self._computed(name, step, instruction)
            )
        else:
            raise RefusedError(f"{instruction.name} is not an instruction that is known here")

    def _move(self, instruction: PtxInstruction, width: int) -> None:
        if len(instruction.operands) != 2:
            raise RefusedError(f"{instruction.name} takes 1 operand: {instruction.text!r}")
        target, source = instruction.operands
        bits = self._read(instruction, source, width)
        if not isinstance(target, PtxVector):
            self._write(instruction, target, bits)
            return
        part = width // len(target.parts)
        for index, register in enumerate(target.parts):
            self._write(instruction, register, bits[index * part : (index + 1) * part])

    def _resize(self, instruction: PtxInstruction, match: re.Match[str]) -> bool:
        """Executes a zero extension or a truncation; returns False for an instruction that computes the upper bits."""
        target_bits, source_bits = int(match[2]), int(match[4])
        if target_bits > source_bits and match[3] == "s":
            return False
        if len(instruction.operands) != 2:
            raise RefusedError(f"{instruction.name} takes 1 operand: {instruction.text!r}")
        target, source = instruction.operands
        bits = self._read(instruction, source, source_bits, loose=True)
        zeros: tuple[Bit, ...] = (0,) * max(target_bits - source_bits, 0)
        self._write(instruction, target, (*bits[:target_bits], *zeros), zeros=match[1] == "u")
        return True

    def _by_bits(self, name: str, instruction: PtxInstruction) -> tuple[Bit, ...] | None:
        """The result of an instruction that only moves bits or sets them to constants; None if it computes any bit."""
        _, *sources = instruction.operands
        if match := _SHIFT.fullmatch(name):
            width, distance = int(match[2]), _number(sources[1])
            if distance is None:
                return None
            source_bits = self._read(instruction, sources[0], width)
            moved: tuple[Bit, ...] = (0,) * min(distance, width)
            return (*moved, *source_bits)[:width] if match[1] == "shl" else (*source_bits, *moved)[-width:]
        if match := _BITWISE.fullmatch(name):
            first, second = (self._read(instruction, source, int(match[2])) for source in sources)
            return _all_known([_bitwise(_TABLES[match[1]], (a, b, 0)) for a, b in zip(first, second, strict=True)])
        numbers = [_number(source) for source in sources]
        if name == "lop3.b32" and numbers[3] is not None:
            bits = zip(*(self._read(instruction, source, 32) for source in sources[:3]), strict=True)
            return _all_known([_bitwise(numbers[3], trio) for trio in bits])
        if name == "prmt.b32" and numbers[2] is not None:
            places = [numbers[2] >> 4 * number & 15 for number in range(4)]
            joined_bits = (*self._read(instruction, sources[0], 32), *self._read(instruction, sources[1], 32))
            return (
                tuple(bit for position in places for bit in joined_bits[8 * position :][:8])
                if max(places) < 8
                else None
            )
        return None

    def _funnel(self, instruction: PtxInstruction, to_left: bool) -> None:  # noqa: FBT001  # a direction
        """Executes a funnel shift: 32 bits of two registers, the lower one first, shifted by a constant."""
        distance = _number(instruction.operands[-1])
        if len(instruction.operands) != 4 or distance is None:
            raise RefusedError(f"{instruction.name} takes two registers and a number: {instruction.text!r}")
        target, low, high, _ = instruction.operands
        joined_bits = (*self._read(instruction, low, 32), *self._read(instruction, high, 32))
        start = 32 - distance % 32 if to_left else distance % 32
        self._write(instruction, target, joined_bits[start : start + 32])

    def _computed(self, name: str, step: PtxStep, instruction: PtxInstruction) -> tuple[Bit, ...]:
        _, *sources = instruction.operands
        takes = step.takes * 2 if step.packs else step.takes
        lanes = 1 if step.packs else step.lanes
        inputs = [
            self._read(instruction, source, lanes * WIDTHS[kind]) for source, kind in zip(sources, takes, strict=True)
        ]
        result: list[Bit] = []
        for lane in range(step.lanes):
            parts = [inputs[step.lanes - 1 - lane]] if step.packs else inputs
            nodes: list[int] = []
            for kind, part in zip(step.takes, parts, strict=True):
                start = 0 if step.packs else lane * WIDTHS[kind]
                node = self.graph.read(part[start : start + WIDTHS[kind]])
                if node is None:
                    raise RefusedError(f"{instruction.text!r} reads bits that nothing has written")
                nodes.append(node)
            result += self.graph.bits_of(self.graph.add(Applied(name, tuple(nodes), WIDTHS[step.gives])))
        return tuple(result)

    def _read(
        self, instruction: PtxInstruction, operand: _Operand, width: int, *, loose: bool = False
    ) -> tuple[Bit, ...]:
        """The bits of an operand of ``width`` bits; with ``loose``, the register may be wider."""
        if isinstance(operand, PtxNumber):
            bits = operand.as_bits(width)
            if bits is None:
                raise RefusedError(f"{instruction.text!r} has a number that is none of {width} bits")
            return tuple(bits >> index & 1 for index in range(width))
        if isinstance(operand, PtxVector):
            part = width // len(operand.parts)
            if not _MOVE.fullmatch(instruction.name) or part * len(operand.parts) != width:
                raise RefusedError(f"the registers of {instruction.text!r} do not fit")
            return tuple(bit for component in operand.parts for bit in self._read(instruction, component, part))
        register_bits = self._register_bits.get(operand.name)
        if register_bits is None:
            is_declared = operand.name in self._widths
            reason = "which nothing has written" if is_declared else "which is no register of the text"
            raise RefusedError(f"{instruction.name} reads {operand.name}, {reason}")
        if len(register_bits) < width or not (loose or all(bit is UNKNOWN for bit in register_bits[width:])):
            raise RefusedError(f"{instruction.name} takes {width} bits where {operand.name} has {_bits(register_bits)}")
        return register_bits[:width]

    def _write(
        self, instruction: PtxInstruction, target: _Operand, bits: tuple[Bit, ...], *, zeros: bool = False
    ) -> None:
        """Sets a register.

        With ``zeros``, bits above the written ones become 0. Otherwise they are unknown, which is allowed only for the
        registers of the text's constraints (``$0``, ...).
        """
        width = self._widths.get(target.name) if isinstance(target, PtxRegister) else None
        if width is None or not isinstance(target, PtxRegister):
            raise RefusedError(f"{instruction.text!r} writes no register of the text")
        missing = width - len(bits)
        if missing < 0 or (missing and not zeros and not target.name.startswith("$")):
            raise RefusedError(f"{instruction.name} gives {len(bits)} bits where {target.name} has {width}")
        above: tuple[Bit, ...] = ((0,) if zeros else (UNKNOWN,)) * missing
        self._register_bits[target.name] = (*bits, *above)


def _bits(bits: Sequence[Bit]) -> int:
    """The number of bits of a register, up to the last that was written."""
    return max((index + 1 for index, bit in enumerate(bits) if bit is not UNKNOWN), default=0)


def _number(operand: _Operand) -> int | None:
    """The value of an operand that is a non-negative integer; None for any other operand."""
    plain = isinstance(operand, PtxNumber) and operand.real is None and operand.value >= 0
    return operand.value if plain and isinstance(operand, PtxNumber) else None


def _all_known(bits: Sequence[Bit]) -> tuple[Bit, ...] | None:
    return None if UNKNOWN in bits else tuple(bits)


def _bitwise(table: int, bits: Sequence[Bit]) -> Bit:
    """Applies a function of three bits, if the result is a constant or one of the bits.

    ``table`` is the function's truth table, as lop3 numbers it. Returns UNKNOWN for any other result, and if one of the
    bits is unknown.
    """
    if UNKNOWN in bits:
        return UNKNOWN
    variables = list(dict.fromkeys(bit for bit in bits if not isinstance(bit, int)))
    # For all combinations of the variables' values: the function's results, and for each bit its values in the same
    # order.
    results: list[int] = []
    values: dict[Bit, list[int]] = {bit: [] for bit in (0, 1, *variables)}
    for number in range(1 << len(variables)):
        known_bits: dict[Bit, int] = {0: 0, 1: 1, **{bit: number >> at & 1 for at, bit in enumerate(variables)}}
        index = sum(known_bits[bit] << 2 - at for at, bit in enumerate(bits))
        results.append(table >> index & 1)
        for bit, value in values.items():
            value.append(known_bits[bit])
    return next((bit for bit, value in values.items() if value == results), UNKNOWN)

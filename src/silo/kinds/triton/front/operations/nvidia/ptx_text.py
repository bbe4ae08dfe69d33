"""Reads the text of straight-line PTX: registers that it declares, and instructions over registers and numbers.

Jumps, predicates, labels and memory are not read here. Such a statement is returned as an instruction whose name the
table of instructions lacks, or as the reason why it cannot be read.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

__all__ = ["PtxInstruction", "PtxNumber", "PtxRegister", "PtxText", "PtxVector", "read_ptx"]

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
_MOST_REGISTERS = 4096  # that one declaration may number


@dataclass(frozen=True, slots=True)
class PtxRegister:
    """A register: ``$0`` and so on of the text's constraints, or a register that the text declares."""

    name: str


@dataclass(frozen=True, slots=True)
class PtxNumber:
    """A number: the bits of a float of ``bits`` bits, a decimal ``real``, or an integer (``bits`` is 0)."""

    value: int
    bits: int = 0
    real: float | None = None

    def as_bits(self, bits: int) -> int | None:
        """The number as ``bits`` bits, as an instruction of that width reads it; None if it cannot."""
        if self.real is not None:
            return _float_bits(self.real, bits)
        if self.bits:
            return self.value if self.bits == bits else None
        return self.value % (1 << bits) if -(1 << (bits - 1)) <= self.value < 1 << bits else None


@dataclass(frozen=True, slots=True)
class PtxVector:
    """Registers in braces, the lowest bits first."""

    parts: tuple[PtxRegister, ...]


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """A name and its operands, the target first."""

    name: str
    operands: tuple[PtxRegister | PtxNumber | PtxVector, ...]
    text: str


@dataclass(frozen=True, slots=True)
class PtxText:
    """The bits of each declared register, and the instructions in order."""

    registers: dict[str, int]
    instructions: tuple[PtxInstruction, ...]


def read_ptx(text: str) -> PtxText | str:
    """Parse ``text``; returns the reason as text if a statement cannot be read.

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
    """Names of a declaration; ``r<3>`` declares r0, r1 and r2."""
    found: list[str] = []
    for name in re.split(r"\s*,\s*", names):
        stem, _, count = name.partition("<")
        if not count:
            found.append(stem)
            continue
        number = int(count[:-1])
        if number > _MOST_REGISTERS:
            return None
        found += [f"{stem}{place}" for place in range(number)]
    return found


def _operands(text: str) -> tuple[PtxRegister | PtxNumber | PtxVector, ...] | str:
    """The operands in order; the first that is not read here, as text."""
    found: list[PtxRegister | PtxNumber | PtxVector] = []
    for part in re.split(r",(?![^{}]*\})", text):
        word = part.strip()
        if word.startswith("{") and word.endswith("}"):
            names = [name.strip() for name in word[1:-1].split(",")]
            if not all(map(_REGISTER.fullmatch, names)):
                return word
            found.append(PtxVector(tuple(map(PtxRegister, names))))
            continue
        one = _operand(word)
        if one is None:
            return word
        found.append(one)
    return tuple(found)


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

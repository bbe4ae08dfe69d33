"""Inline assembly that converts pairs of fp32 to e2m1, and puts the bytes together.

Kernels for microscaling formats write it as ``cvt.rn.satfinite.e2m1x2.f32`` into registers of 8 bits, then
``cvt.u32.u8`` of one or ``mov.b32`` of four. The section on ``cvt`` of NVIDIA's PTX ISA says what it computes: to
nearest, ties to even; the largest number, 6, in the place of what is larger; +6 in the place of NaN; the first source
in the upper four bits. Any other instruction among them makes the text one that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["FP4", "Fp4Bytes", "read_fp4"]

FP4 = "cvt.rn.satfinite.e2m1x2.f32"
_NAME = r"(\$?\w+)"
_REGISTERS = re.compile(r"\.reg\s+\.[bu](8|16|32)\s+(\w+(?:\s*,\s*\w+)*)", re.ASCII)
_CONVERT = re.compile(re.escape(FP4) + rf"\s+{_NAME}\s*,\s*\$(\d+)\s*,\s*\$(\d+)", re.ASCII)
_WIDEN = re.compile(rf"cvt\.[us](16|32)\.u(8|16)\s+{_NAME}\s*,\s*{_NAME}", re.ASCII)
_JOIN = re.compile(rf"mov\.b(16|32)\s+{_NAME}\s*,\s*\{{([^{{}}]*)\}}", re.ASCII)
_CONSTRAINTS = re.compile(r"=[rh](?:,[rf])+")

# (the operand of the upper half, the operand of the lower half), as numbered in the text
_Byte = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Fp4Bytes:
    """The operands whose e2m1 forms one element of the result is made of: (upper half, lower half) of each byte.

    Bytes go from the lowest; those above them are zero. Operands count from 0.
    """

    pairs: tuple[tuple[int, int], ...]


def read_fp4(text: str, constraints: str, operands: int, pack: int) -> Fp4Bytes | str:
    """What a text without comments and outer braces computes; the reason as text if it is none of these.

    Args:
        text: the instructions.
        constraints: of the result and of each register that is read.
        operands: how many the operation has.
        pack: how many elements one execution takes of each; the result has a byte for each if they are several.

    >>> read_fp4(f".reg .b8 t; {FP4} t, $2, $1; cvt.u32.u8 $0, t;", "=r,f,f", 2, 1)
    Fp4Bytes(pairs=((1, 0),))
    """
    if not _CONSTRAINTS.fullmatch(re.sub(r"\s", "", constraints)) or constraints.count(",") != operands * pack:
        return f"it takes {operands * pack} registers of 32 bits and gives one"
    known = _run([part.strip() for part in text.split(";") if part.strip()])
    if isinstance(known, str):
        return known
    found = known.get("$0")
    if found is None:
        return "it must write $0"
    if sorted({number for pair in found for number in pair}) != [*range(1, operands * pack + 1)]:
        return "it must read each operand"
    if pack == 1:
        return Fp4Bytes(tuple((upper - 1, lower - 1) for upper, lower in found))
    if len(found) != pack:
        return f"it must give a byte for each of {pack} elements"
    # The elements of an operand have numbers one after the other, and every element must be computed alike.
    lanes = {((upper - 1) // pack, (lower - 1) // pack) for upper, lower in found}
    in_order = all((number - 1) % pack == lane for lane, pair in enumerate(found) for number in pair)
    return Fp4Bytes(tuple(lanes)) if in_order and len(lanes) == 1 else "its elements must be computed alike, in order"


def _run(instructions: Sequence[str]) -> dict[str, tuple[_Byte, ...]] | str:
    """The bytes that registers hold after ``instructions``; the first that is unknown, as text."""
    widths = {"$0": 32}
    known: dict[str, tuple[_Byte, ...]] = {}
    for instruction in instructions:
        if match := _REGISTERS.fullmatch(instruction):
            widths.update(dict.fromkeys(re.findall(r"\w+", match[2]), int(match[1])))
            continue
        if match := _CONVERT.fullmatch(instruction):
            target, size, found = match[1], 8, ((int(match[2]), int(match[3])),)
        elif match := _WIDEN.fullmatch(instruction):
            target, size = match[3], int(match[1])
            source = known.get(match[4], ())
            found = source if widths.get(match[4]) == int(match[2]) else ()
        elif match := _JOIN.fullmatch(instruction):
            target, size = match[2], int(match[1])
            names = [name.strip() for name in match[3].split(",")]
            parts = [known.get(name, ()) for name in names]
            part = size // 8 // len(names)  # bytes
            fit = all(widths.get(name) == part * 8 for name in names) and {len(one) for one in parts} == {part}
            found = tuple(byte for one in parts for byte in one) if fit and part * len(names) * 8 == size else ()
        else:
            return f"{instruction.split()[0]} is not an instruction that is known beside {FP4}"
        fits = size == widths.get(target) or (target == "$0" and size == 16)
        if not found or not fits:
            return f"the registers of {instruction!r} do not fit"
        known[target] = found
    return known

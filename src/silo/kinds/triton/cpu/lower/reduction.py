"""Reductions along the innermost loop: an accumulator that a vector unit may split into lanes.

The order in which elements are combined is free, as it is on a GPU; types narrower than f32 are
accumulated in it and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.front.operations import arith
from silo.kinds.triton.front.operations.cpu.c_types import INTEGERS, NARROW
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = ["Accumulation", "accumulation"]

_FLOAT_ORDER: Mapping[str, tuple[str, str, str]] = {
    arith.MAXNUMF: (">", "-", "max"),
    arith.MAXIMUMF: (">", "-", "max"),
    arith.MINNUMF: ("<", "", "min"),
    arith.MINIMUMF: ("<", "", "min"),
}
_SUMS: Mapping[str, tuple[str, str]] = {arith.ADDF: ("+", "0"), arith.MULF: ("*", "1")}
_BITS: Mapping[str, str] = {arith.ADDI: "+", arith.MULI: "*", arith.ANDI: "&", arith.ORI: "|", arith.XORI: "^"}
_STARTS: Mapping[str, str] = {arith.MULI: "1", arith.ANDI: "({})-1"}  # of the accumulator's type; 0 for others
_INTEGER_ORDER: Mapping[str, tuple[str, str, bool]] = {
    arith.MAXSI: (">", "max", True),
    arith.MINSI: ("<", "min", True),
    arith.MAXUI: (">", "max", False),
    arith.MINUI: ("<", "min", False),
}


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How to accumulate: the accumulator's C type, its start, OpenMP's operator, and the texts round the loop.

    ``load`` turns an element into the accumulator's type; ``combine`` takes accumulator and element; ``finish`` turns
    the accumulator into the result. ``flag`` ("" for none) is a condition on an element whose truth for any element is
    given to ``finish`` as a second argument.
    """

    ctype: str
    start: str
    clause: str
    load: str
    combine: str
    finish: str
    flag: str = ""

    @property
    def repeat(self) -> str:
        """``combine`` with an element as often as a third argument says, at least once; "" for a loop."""
        if self.clause == "+":
            return f"{{0}} + ({self.ctype})({{2}}) * {{1}}"
        return "" if self.clause in {"*", "^"} else self.combine


def accumulation(operation: Operation) -> Accumulation:
    """How to accumulate with a combining operation."""
    name, element = operation.name, operation.result.type.element
    if element in INTEGERS:
        return _integer(name, element)
    ctype = "double" if element == "f64" else "float"
    load = f"silo_{element}_to_f32({{0}})" if element in NARROW else "{0}"
    finish = f"silo_f32_to_{element}({{0}})" if element in NARROW else "{0}"
    if name in _SUMS:
        sign, start = _SUMS[name]
        return Accumulation(ctype, start, sign, load, f"{{0}} {sign} {{1}}", finish)
    order, sign, clause = _FLOAT_ORDER[name]
    suffix = "" if element == "f64" else "f"
    nan = f'__builtin_nan{suffix}("")'
    combine = f"({{1}} {order} {{0}} ? {{1}} : {{0}})"
    # Comparisons never pick a NaN: note whether there was a NaN (maximumf) or anything else (maxnumf).
    if name in {arith.MAXNUMF, arith.MINNUMF}:
        chosen, flag = f"({{1}} ? {{0}} : {nan})", "{0} == {0}"
    else:
        chosen, flag = f"({{1}} ? {nan} : {{0}})", "{0} != {0}"
    start = f"{sign}__builtin_inf{suffix}()"
    return Accumulation(ctype, start, clause, load, combine, finish.format(chosen), flag)


def _integer(name: str, element: str) -> Accumulation:
    signed = "int64_t" if element == "index" else ops.c_type(Type(element))
    unsigned = signed if signed.startswith("u") else "u" + signed
    bits = INTEGERS[element]
    finish = "(uint8_t)(({0}) & 1u)" if element == "i1" else f"({signed})({{0}})"
    if name in _BITS:
        sign = _BITS[name]
        wide = "uint64_t" if bits == 64 else "uint32_t"
        start = _STARTS.get(name, "0").format(wide)
        return Accumulation(wide, start, sign, f"({wide})({{0}})", f"{{0}} {sign} {{1}}", finish)
    order, clause, is_signed = _INTEGER_ORDER[name]
    combine = f"({{1}} {order} {{0}} ? {{1}} : {{0}})"
    if element == "i1":  # as a one-bit number 1 is -1: signed order is the other way round
        flipped = is_signed == (clause == "max")
        sign = "&" if flipped else "|"
        return Accumulation("uint32_t", "1" if flipped else "0", sign, "(uint32_t)({0})", f"{{0}} {sign} {{1}}", finish)
    if is_signed:
        least = f"(-{2 ** (bits - 1) - 1}{'ll' if bits == 64 else ''} - 1)"
        most = f"{2 ** (bits - 1) - 1}{'ll' if bits == 64 else ''}"
        return Accumulation(signed, least if clause == "max" else most, clause, "{0}", combine, finish)
    start = "0" if clause == "max" else f"({unsigned})-1"
    return Accumulation(unsigned, start, clause, f"({unsigned})({{0}})", combine, finish)

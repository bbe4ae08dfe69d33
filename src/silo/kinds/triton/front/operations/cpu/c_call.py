"""One scalar operation while it is turned into a C expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from silo.kinds.triton.front.operations.cpu.c_types import C_TYPES, INTEGERS, NARROW, c_type, has_c_type
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = [
    "RefusedError",
    "Renderer",
    "ScalarCall",
    "access_refusal",
    "control_refusal",
    "dot_refusal",
    "dot_scaled_refusal",
]


# ---- One scalar operation while it is turned into a C expression ----


class RefusedError(Exception):
    """The operation lacks a C form; the text is the reason. Never leaves ``ops``."""


@dataclass(slots=True)
class ScalarCall:
    """The operation, its operands as C expressions, and the runtime pieces its expression turns out to need.

    f16, bf16 and the 8-bit types are computed in f32 and rounded once after every operation, which gives the correctly
    rounded result of + - * / and sqrt.
    """

    operation: Operation
    operands: Sequence[str]
    types: Sequence[Type]
    result: Type
    pieces: set[str] = field(default_factory=set[str])

    @property
    def element(self) -> str:
        """The element type of the result."""
        return self.result.element

    @property
    def compute(self) -> str:
        """The C type that floating-point results are computed in."""
        return "double" if self.element == "f64" else "float"

    @property
    def suffix(self) -> str:
        """``f64`` or ``f32``: the type that floating-point results are computed in."""
        return "f64" if self.element == "f64" else "f32"

    def use(self, *pieces: str) -> None:
        """Note that the expression calls into these pieces."""
        self.pieces.update(pieces)

    def attribute(self, name: str, default: int | None = None) -> int:
        """An integer attribute; refuses if it is absent without a default."""
        value = self.operation.attributes.get(name, default)
        if not isinstance(value, int):
            raise RefusedError(f"attribute {name} is {value!r}, an integer is needed")
        return value

    def float_operand(self, index: int) -> str:
        """Operand ``index`` as float or double."""
        element, text = self.types[index].element, self.operands[index]
        if element in NARROW:
            self.use(NARROW[element])
            return f"silo_{element}_to_f32({text})"
        if element not in ("f32", "f64"):
            raise RefusedError(f"an operand of type {element} where a floating-point one is needed")
        return _wrap(text)

    def float_result(self, text: str) -> str:
        """``text``, a float (or double for f64), as the result's type."""
        if self.element in NARROW:
            self.use(NARROW[self.element])
            return f"silo_f32_to_{self.element}({text})"
        if self.element not in ("f32", "f64"):
            raise RefusedError(f"a result of type {self.element} where a floating-point one is needed")
        return text

    def integer_bits(self, element: str | None = None) -> int:
        """The width of the result (or of ``element``); refuses if it is not an integer."""
        bits = INTEGERS.get(element or self.element)
        if bits is None:
            raise RefusedError(f"no integer type: {element or self.element}")
        return bits

    def unsigned(self, index: int) -> str:
        """Operand ``index`` as an unsigned integer of 32 or 64 bits, zero-extended."""
        bits = self.integer_bits(self.types[index].element)
        text = self.operands[index]
        if bits == 64:
            return f"(uint64_t){_wrap(text)}"
        if bits in (1, 32):
            return f"(uint32_t){_wrap(text)}"
        return f"(uint32_t)(uint{bits}_t){_wrap(text)}"

    def signed(self, index: int) -> str:
        """Operand ``index`` as a signed integer of 32 or 64 bits; a set i1 is -1."""
        bits = self.integer_bits(self.types[index].element)
        text = _wrap(self.operands[index])
        if bits == 1:
            return f"-(int32_t){text}"
        return text if bits >= 32 else f"(int32_t){text}"

    def cast(self, text: str) -> str:
        """``text`` cast to the result's C type; an i1 result must be 0 or 1 already."""
        return f"({c_type(self.result)})({text})"

    def pointer_free(self) -> None:
        """Refuse pointers, which this operation does not take."""
        types = (*self.types, self.result)
        for type_ in types:
            if type_.pointer:
                raise RefusedError("pointers are not expected here")
        for type_ in types:
            if type_.element not in C_TYPES and not has_c_type(type_):
                raise RefusedError(f"type {type_.element} is not supported on the CPU")


Renderer = Callable[[ScalarCall], str]


def _wrap(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


# ---- Reasons for refusing an operation that is not an expression of elements ----


# Element of a dot's factors, and the sums it may have.
_DOT_SUMS = {"f16": {"f32", "f16"}, "bf16": {"f32"}, "f32": {"f32"}, "f64": {"f64"}, "i8": {"i32"}}
_SCALED_FORMATS: Mapping[object, str] = {
    0: "f8E4M3FN",
    1: "f8E5M2",
    4: "i8",
    5: "bf16",
    6: "f16",
}  # Triton's ScaleDotElemType


def access_refusal(operation: Operation) -> str:
    """Loads and stores of anything but pointers."""
    return "" if operation.operands[0].type.pointer else "only plain pointers"


def control_refusal(operation: Operation) -> str:
    """Loops and branches over more than one block."""
    several = any(len(region.blocks) > 1 for region in operation.regions)
    return "a region of several blocks" if several else ""


def dot_refusal(operation: Operation) -> str:
    """Products of types without code."""
    left, right, total = _elements(operation)
    if left.startswith("f8") and right.startswith("f8"):
        fits = total in {"f32", "f16"}
    else:
        fits = left == right and total in _DOT_SUMS.get(left, ())
    return "" if fits else f"{left} x {right} -> {total}"


def dot_scaled_refusal(operation: Operation) -> str:
    """Scaled products of formats without code."""
    left, right, total = _elements(operation)
    formats = [operation.attributes[name] for name in ("a_elem_type", "b_elem_type")]
    fits = [_SCALED_FORMATS.get(number) for number in formats] == [left, right] and total in {"f32", "f16", "bf16"}
    return "" if fits else f"{left} x {right} -> {total}"


def _elements(operation: Operation) -> list[str]:
    return [operand.type.element for operand in operation.operands[:3]]

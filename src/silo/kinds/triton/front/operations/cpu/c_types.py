"""C types and literals of scalar types, and the state of translating one scalar operation to a C expression."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from silo.errors import UnsupportedError
from silo.kinds.triton.front.mlir_text import FLOAT_FORMATS
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = [
    "C_TYPES",
    "FLOATS",
    "FP8",
    "HALVES",
    "INTEGERS",
    "NARROW",
    "RefusedError",
    "Renderer",
    "ScalarCall",
    "access_refusal",
    "c_type",
    "control_refusal",
    "dot_refusal",
    "dot_scaled_refusal",
    "element_bytes",
    "has_c_type",
    "literal",
    "zero",
]

# 8-bit floating-point types, each with the bits of its NaN.
FP8: Mapping[str, int] = MappingProxyType(
    {"f8E4M3FN": 0x7F, "f8E5M2": 0x7F, "f8E4M3FNUZ": 0x80, "f8E5M2FNUZ": 0x80, "f8E4M3B11FNUZ": 0x80}
)
# The C type that holds a value of each element type, in registers and in memory. An i1 is 0 or 1.
C_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "i1": "uint8_t",
        "i8": "int8_t",
        "i16": "int16_t",
        "i32": "int32_t",
        "i64": "int64_t",
        "index": "int64_t",
        "f16": "uint16_t",
        "bf16": "uint16_t",
        "f32": "float",
        "f64": "double",
        **dict.fromkeys(FP8, "uint8_t"),
    }
)
# The bits of each integer type.
INTEGERS: Mapping[str, int] = MappingProxyType({"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64})
HALVES = frozenset({"f16", "bf16"})
# Floating-point types that are stored as bits and computed in f32, each with the part of the C runtime that converts
# it.
NARROW: Mapping[str, str] = MappingProxyType({"f16": "half", "bf16": "half", **{name: name for name in FP8}})
FLOATS = frozenset({"f32", "f64", *NARROW})

_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_POINTER_BYTES = 8


def c_type(type_: Type) -> str:
    """The C type of one element of ``type_``; pointers are typed, including pointers to pointers.

    >>> c_type(Type("bf16", pointer=True)), c_type(Type("!tt.ptr<f32>", pointer=True))
    ('uint16_t *', 'float * *')
    """
    pointee = _pointee(type_.element)
    name = c_type(Type(pointee, pointer=True)) if pointee else C_TYPES.get(type_.element)
    if name is None:
        raise UnsupportedError(f"the CPU has no type for {type_.element}; use one of {', '.join(C_TYPES)}")
    return f"{name} *" if type_.pointer else name


def has_c_type(type_: Type) -> bool:
    """Whether the CPU compiler supports values of ``type_``.

    >>> has_c_type(Type("!tt.ptr<i8>", pointer=True)), has_c_type(Type("i128"))
    (True, False)
    """
    element, pointer = type_.element, type_.pointer
    if element in C_TYPES:  # the common case
        return True
    while pointee := _pointee(element):
        if not pointer:  # a pointer to a tensor, which is kept as text
            return False
        element = pointee
    return element in C_TYPES


def element_bytes(element: str) -> int:
    """Size in bytes of one element, a number or a pointer.

    >>> element_bytes("f8E5M2"), element_bytes("!tt.ptr<i8>")
    (1, 8)
    """
    return _POINTER_BYTES if _pointee(element) else _BYTES.get(element, 1)


def _pointee(element: str) -> str:
    """The type that a pointer element points to; "" for other elements."""
    return element[len("!tt.ptr<") : -1] if element.startswith("!tt.ptr<") else ""


def zero(type_: Type) -> str:
    """Zero, or the null pointer, as a C expression.

    >>> zero(Type("f32")), zero(Type("f32", pointer=True))
    ('0x0.0p+0f', '((float *)0)')
    """
    return f"(({c_type(type_)})0)" if type_.pointer else literal(0, type_.element)


def literal(value: float | bool, element: str) -> str:  # noqa: FBT001  # a bool is a value here
    """One constant of an element type as a C expression.

    >>> literal(1.5, "f32"), literal(-1, "i8"), literal(1.0, "bf16"), literal(-1.5, "f8E5M2")
    ('0x1.8000000000000p+0f', '((int8_t)-1)', '((uint16_t)0x3f80)', '((uint8_t)0xbe)')
    """
    if element == "i1":
        return "((uint8_t)1)" if value else "((uint8_t)0)"
    if element in INTEGERS:
        return _integer(int(value), element)
    number = float(value)
    if element in HALVES:
        return f"((uint16_t)0x{_half_bits(number, element):04x})"
    if element in FP8:
        return f"((uint8_t)0x{_fp8_bits(number, element):02x})"
    suffix = "f" if element == "f32" else ""
    if element not in FLOATS:
        raise UnsupportedError(f"the CPU has no constants of type {element}")
    if math.isnan(number):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
    text = number.hex() + suffix
    return f"({text})" if text.startswith("-") else text


def _integer(value: int, element: str) -> str:
    bits = INTEGERS[element]
    wrapped = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    if wrapped == -(1 << 63):
        return "((int64_t)-9223372036854775807 - 1)"
    return f"(({C_TYPES[element]}){wrapped})"


def _half_bits(number: float, element: str) -> int:
    if element == "f16":
        return struct.unpack("<H", struct.pack("<e", number))[0]
    return struct.unpack("<I", struct.pack("<f", number))[0] >> 16


def _fp8_bits(number: float, element: str) -> int:
    """The bits of a number that the format represents, as MLIR prints them."""
    form = FLOAT_FORMATS[element]
    if math.isnan(number):
        return FP8[element]
    sign = 0x80 if math.copysign(1.0, number) < 0 and not (form.nuz and number == 0) else 0
    if math.isinf(number) and not form.finite:
        return sign | ((1 << form.exponent) - 1) << form.mantissa
    fraction, exponent = math.frexp(abs(number))  # the fraction is in [1/2, 1)
    exponent = max(exponent - 1, 1 - form.bias)
    units = math.ldexp(abs(number), form.mantissa - exponent)
    bits = int(units) + ((exponent + form.bias - 1) << form.mantissa) if fraction else 0
    if units != int(units) or bits >> 7 or (bits == FP8[element] and not form.nuz):
        raise UnsupportedError(f"{number!r} is not a number of type {element}")
    return sign | bits


# ---- The state of translating one scalar operation to a C expression ----


class RefusedError(Exception):
    """The operation lacks a C expression; the text is the reason. Callers of renderers catch this error."""


@dataclass(slots=True)
class ScalarCall:
    """A scalar operation and its operands as C expressions.

    ``pieces`` names the parts of the C runtime that the operation's C expression calls.

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
        """The C type in which floating-point results are computed."""
        return "double" if self.element == "f64" else "float"

    @property
    def suffix(self) -> str:
        """``f64`` or ``f32``: the type in which floating-point results are computed."""
        return "f64" if self.element == "f64" else "f32"

    def use(self, *pieces: str) -> None:
        """Records that the expression calls functions of these parts of the C runtime."""
        self.pieces.update(pieces)

    def attribute(self, name: str, default: int | None = None) -> int:
        """An integer attribute. Refuses the operation if the attribute is absent without a default."""
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
        """The C expression ``text``, of type float (or double for f64), converted to the result's type."""
        if self.element in NARROW:
            self.use(NARROW[self.element])
            return f"silo_f32_to_{self.element}({text})"
        if self.element not in ("f32", "f64"):
            raise RefusedError(f"a result of type {self.element} where a floating-point one is needed")
        return text

    def integer_bits(self, element: str | None = None) -> int:
        """The width of the result (or of ``element``). Refuses the operation if that is not an integer."""
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
        """``text`` cast to the result's C type; for an i1 result it must already be 0 or 1."""
        return f"({c_type(self.result)})({text})"

    def pointer_free(self) -> None:
        """Refuses the operation if it has pointer operands."""
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


# ---- Reasons to refuse operations that are not elementwise expressions ----


# For each element type of a dot's factors, the supported accumulator types.
_DOT_SUMS = {"f16": {"f32", "f16"}, "bf16": {"f32"}, "f32": {"f32"}, "f64": {"f64"}, "i8": {"i32"}}
_SCALED_FORMATS: Mapping[object, str] = {
    0: "f8E4M3FN",
    1: "f8E5M2",
    4: "i8",
    5: "bf16",
    6: "f16",
}  # keys are members of Triton's ScaleDotElemType


def access_refusal(operation: Operation) -> str:
    """The reason to refuse a load or store of anything but pointers, or ""."""
    return "" if operation.operands[0].type.pointer else "only plain pointers"


def control_refusal(operation: Operation) -> str:
    """The reason to refuse a loop or branch whose region has several blocks, or ""."""
    several = any(len(region.blocks) > 1 for region in operation.regions)
    return "a region of several blocks" if several else ""


def dot_refusal(operation: Operation) -> str:
    """The reason to refuse a dot of unsupported types, or ""."""
    left, right, total = _elements(operation)
    if left.startswith("f8") and right.startswith("f8"):
        fits = total in {"f32", "f16"}
    else:
        fits = left == right and total in _DOT_SUMS.get(left, ())
    return "" if fits else f"{left} x {right} -> {total}"


def dot_scaled_refusal(operation: Operation) -> str:
    """The reason to refuse a scaled dot of unsupported formats, or ""."""
    left, right, total = _elements(operation)
    formats = [operation.attributes[name] for name in ("a_elem_type", "b_elem_type")]
    fits = [_SCALED_FORMATS.get(number) for number in formats] == [left, right] and total in {"f32", "f16", "bf16"}
    return "" if fits else f"{left} x {right} -> {total}"


def _elements(operation: Operation) -> list[str]:
    return [operand.type.element for operand in operation.operands[:3]]

"""C types and literals of TTIR's scalar types."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from types import MappingProxyType

from silo.errors import UnsupportedError
from silo.kinds.triton.front.mlir_text import FLOAT_FORMATS
from silo.kinds.triton.front.ssa import Type

__all__ = [
    "C_TYPES",
    "FLOATS",
    "FP8",
    "HALVES",
    "INTEGERS",
    "NARROW",
    "c_type",
    "element_bytes",
    "has_c_type",
    "literal",
    "zero",
]

# 8-bit floating-point types, with the bits of NaN.
FP8: Mapping[str, int] = MappingProxyType(
    {"f8E4M3FN": 0x7F, "f8E5M2": 0x7F, "f8E4M3FNUZ": 0x80, "f8E5M2FNUZ": 0x80, "f8E4M3B11FNUZ": 0x80}
)
# The C type a value of each element type is kept in, in registers and in memory. i1 is 0 or 1.
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
# Bits of each integer type.
INTEGERS: Mapping[str, int] = MappingProxyType({"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64})
HALVES = frozenset({"f16", "bf16"})
# Floating-point types that are kept as bits and computed in f32, with the piece that converts them.
NARROW: Mapping[str, str] = MappingProxyType({"f16": "half", "bf16": "half", **{name: name for name in FP8}})
FLOATS = frozenset({"f32", "f64", *NARROW})

_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_POINTER_BYTES = 8


def c_type(type_: Type) -> str:
    """The C type of one element of ``type_``; pointers are typed, those to pointers too.

    >>> c_type(Type("bf16", pointer=True)), c_type(Type("!tt.ptr<f32>", pointer=True))
    ('uint16_t *', 'float * *')
    """
    pointee = _pointee(type_.element)
    name = c_type(Type(pointee, pointer=True)) if pointee else C_TYPES.get(type_.element)
    if name is None:
        raise UnsupportedError(f"the CPU has no type for {type_.element}; use one of {', '.join(C_TYPES)}")
    return f"{name} *" if type_.pointer else name


def has_c_type(type_: Type) -> bool:
    """Whether values of ``type_`` exist on the CPU.

    >>> has_c_type(Type("!tt.ptr<i8>", pointer=True)), has_c_type(Type("i128"))
    (True, False)
    """
    element, pointer = type_.element, type_.pointer
    if element in C_TYPES:  # most are
        return True
    while pointee := _pointee(element):
        if not pointer:  # a pointer to a tensor, kept as its text
            return False
        element = pointee
    return element in C_TYPES


def element_bytes(element: str) -> int:
    """Size in bytes of one element: of a number, or of a pointer.

    >>> element_bytes("f8E5M2"), element_bytes("!tt.ptr<i8>")
    (1, 8)
    """
    return _POINTER_BYTES if _pointee(element) else _BYTES.get(element, 1)


def _pointee(element: str) -> str:
    """The type that a pointer element points to, else ""."""
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
    """The bits of a number that the format holds, as MLIR prints them."""
    form = FLOAT_FORMATS[element]
    if math.isnan(number):
        return FP8[element]
    sign = 0x80 if math.copysign(1.0, number) < 0 and not (form.nuz and number == 0) else 0
    if math.isinf(number) and not form.finite:
        return sign | ((1 << form.exponent) - 1) << form.mantissa
    fraction, exponent = math.frexp(abs(number))  # in [1/2, 1)
    exponent = max(exponent - 1, 1 - form.bias)
    units = math.ldexp(abs(number), form.mantissa - exponent)
    bits = int(units) + ((exponent + form.bias - 1) << form.mantissa) if fraction else 0
    if units != int(units) or bits >> 7 or (bits == FP8[element] and not form.nuz):
        raise UnsupportedError(f"{number!r} is not a number of type {element}")
    return sign | bits

"""C types and literals of TTIR's scalar types."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from types import MappingProxyType

from silo.errors import UnsupportedError
from silo.sources.triton.ssa import Type

__all__ = ["C_TYPES", "ELEMENT_BYTES", "FLOATS", "HALVES", "INTEGERS", "c_type", "literal"]

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
    }
)
ELEMENT_BYTES: Mapping[str, int] = MappingProxyType(
    {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
)
# Bits of each integer type.
INTEGERS: Mapping[str, int] = MappingProxyType({"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64})
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
HALVES = frozenset({"f16", "bf16"})


def c_type(type_: Type) -> str:
    """The C type of one element of ``type_``; pointers are typed.

    >>> c_type(Type("bf16", pointer=True))
    'uint16_t *'
    """
    name = C_TYPES.get(type_.element)
    if name is None:
        raise UnsupportedError(f"the CPU has no type for {type_.element}; use one of {', '.join(C_TYPES)}")
    return f"{name} *" if type_.pointer else name


def literal(value: float | bool, element: str) -> str:  # noqa: FBT001  # a bool is a value here
    """One constant of an element type as a C expression.

    >>> literal(1.5, "f32"), literal(-1, "i8"), literal(1.0, "bf16")
    ('0x1.8000000000000p+0f', '((int8_t)-1)', '((uint16_t)0x3f80)')
    """
    if element == "i1":
        return "((uint8_t)1)" if value else "((uint8_t)0)"
    if element in INTEGERS:
        return _integer(int(value), element)
    number = float(value)
    if element in HALVES:
        return f"((uint16_t)0x{_half_bits(number, element):04x})"
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

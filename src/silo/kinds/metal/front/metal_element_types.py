"""Metal's types by Silo's dtypes."""

from __future__ import annotations

from types import MappingProxyType

from silo.core.dtypes import DType, dtype

__all__ = ["SCALARS", "element_of", "scalar_of"]

_NAMES = {
    "bool": ("bool",),
    "int8": ("char", "int8_t"),
    "uint8": ("uchar", "uint8_t"),
    "int16": ("short", "int16_t"),
    "uint16": ("ushort", "uint16_t"),
    "int32": ("int", "int32_t"),
    "uint32": ("uint", "uint32_t", "unsigned", "unsigned int"),
    "int64": ("long", "int64_t", "ptrdiff_t"),
    "uint64": ("ulong", "uint64_t", "size_t"),
    "float16": ("half",),
    "bfloat16": ("bfloat",),
    "float32": ("float",),
}

SCALARS = MappingProxyType({name: dtype(own) for own, names in _NAMES.items() for name in names})
"""Dtypes by Metal's names for them."""

_WRAPPED = ("atomic", "_atomic", "vec", "packed_vec")


def scalar_of(text: str) -> DType | None:
    """Returns the dtype of a scalar type, None for any other type.

    >>> scalar_of("uint").short, scalar_of("float4")
    ('u32', None)
    """
    return SCALARS.get(text.removeprefix("metal::"))


def element_of(text: str) -> DType | None:
    """Returns the element dtype of an array with elements of that type; None for a struct.

    >>> element_of("packed_half3").short, element_of("atomic_uint").short, element_of("vec<float, 4>").short
    ('fp16', 'u32', 'fp32')
    """
    plain = text.removeprefix("metal::").removeprefix("packed_").removeprefix("atomic_")
    found = SCALARS.get(plain)
    if found is None and plain[-1:] in "234":
        found = SCALARS.get(plain[:-1])
    name, bracket, rest = plain.partition("<")
    if found is None and bracket and name.strip() in _WRAPPED:
        found = element_of(rest.rpartition(">")[0].partition(",")[0].strip())
    return found

"""Packs the arguments of a shader as torch does, and computes the value that a parameter of the kernel reads."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from silo.core.argument_descriptions import describe
from silo.core.dtypes import DType
from silo.errors import ArgumentError
from silo.kinds.metal.front.metal_source import scalar_of
from silo.kinds.metal.front.parser import MslParameter

__all__ = ["CASTS", "cast_of", "number_read", "packed"]

# The values of ``arg_casts``, as formats of Python's struct; a number without a cast is an int64 or a float32.
CASTS = {"int32": "<i", "int16": "<h", "int8": "<b", "uint8": "<B", "fp16": "<e", "bf16": "bf16"}
_PLAIN = {int: "<q", bool: "<q", float: "<f"}
_FORMS = {
    "bool": "<?",
    "int8": "<b",
    "uint8": "<B",
    "int16": "<h",
    "uint16": "<H",
    "int32": "<i",
    "uint32": "<I",
    "int64": "<q",
    "uint64": "<Q",
    "float16": "<e",
    "float32": "<f",
}


def cast_of(casts: str | Mapping[int, str] | None, index: int) -> str | None:
    """Returns the cast of one argument. Raises ValueError, as torch does, for an unknown cast."""
    found = casts if isinstance(casts, str) or casts is None else casts.get(index)
    if found is not None and found not in CASTS:
        raise ValueError(f"argument {index} is cast to {found!r}; torch casts to {', '.join(CASTS)}")
    return found


def packed(value: bool | float, cast: str | None) -> bytes:  # noqa: FBT001  # a number of any kind
    """Returns the bytes of a number for the kernel. Raises ValueError: it does not fit."""
    form = _PLAIN[type(value)] if cast is None else CASTS[cast]
    try:
        if form == "bf16":
            return _bfloat(float(value))
        return struct.pack(form, float(value) if form in ("<e", "<f") else int(value))
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{value!r} does not fit in {cast or form}: {error}") from None


def _bfloat(value: float) -> bytes:
    """Returns the nearest bfloat16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value != value:  # noqa: PLR0124  # NaN
        return struct.pack("<H", 0x7FC0)
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def number_read(kernel: str, parameter: MslParameter, value: Any, cast: str | None) -> bool | float:  # noqa: ANN401
    """Returns the number that a kernel reads if a call passes ``value``.

    Raises:
        ArgumentError: it would read a different number, or read past the end of its bytes.
    """
    if hasattr(value, "item"):
        return value.item()
    wanted = scalar_of(parameter.type)
    assert wanted is not None  # only parameters with a scalar type are numbers
    given = packed(value, cast)
    what = f"{kernel}: {parameter.name} is a {parameter.type}, and the call passes {describe(value)}"
    passed = cast or ("fp32" if isinstance(value, float) else "int64")
    if len(given) < wanted.itemsize:
        raise ArgumentError(f"{what} as {passed}, of {len(given)} bytes: the kernel reads {wanted.itemsize}")
    read = _read(given, wanted)
    if read != value and not _rounded(read, value, wanted):
        hint = _cast_for(wanted)
        raise ArgumentError(
            f"{what} as {passed}, of which the kernel reads {read!r}" + (f": cast it to {hint}" if hint else "")
        )
    return read


def _read(data: bytes, wanted: DType) -> bool | float:
    if wanted.name == "bfloat16":
        return struct.unpack("<f", b"\0\0" + data[:2])[0]
    return struct.unpack(_FORMS[wanted.name], data[: wanted.itemsize])[0]


def _rounded(read: float, value: float, wanted: DType) -> bool:
    """Whether ``read`` is ``value`` rounded to the wanted float type."""
    if wanted.kind.value != "float" or not isinstance(value, float):
        return wanted.kind.value == "float" and abs(read - value) <= abs(value) * 2**-7
    both_nan = read != read and value != value  # noqa: PLR0124
    return both_nan or abs(read - value) <= abs(value) * 2**-7 or abs(value) < 1e-30  # a subnormal


def _cast_for(wanted: DType) -> str | None:
    return {"float16": "fp16", "bfloat16": "bf16", "bool": "uint8"}.get(
        wanted.name, wanted.name if wanted.name in CASTS else None
    )

"""Floating-point constants, bit for bit, in every format that MLIR prints."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

__all__ = ["FLOAT_FORMATS", "FloatFormat", "float_from_bits", "round_to_format"]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """An IEEE-like binary format. ``finite`` formats spend the top exponent on numbers; ``nuz`` has no negative zero.

    ``nuz`` formats have one NaN, the pattern of negative zero. E8M0 has neither sign nor zero.
    """

    bits: int
    exponent: int
    mantissa: int
    bias: int
    finite: bool = False
    nuz: bool = False


FLOAT_FORMATS = {
    "f64": FloatFormat(64, 11, 52, 1023),
    "f32": FloatFormat(32, 8, 23, 127),
    "tf32": FloatFormat(19, 8, 10, 127),
    "f16": FloatFormat(16, 5, 10, 15),
    "bf16": FloatFormat(16, 8, 7, 127),
    "f8E5M2": FloatFormat(8, 5, 2, 15),
    "f8E4M3FN": FloatFormat(8, 4, 3, 7, finite=True),
    "f8E5M2FNUZ": FloatFormat(8, 5, 2, 16, finite=True, nuz=True),
    "f8E4M3FNUZ": FloatFormat(8, 4, 3, 8, finite=True, nuz=True),
    "f8E4M3B11FNUZ": FloatFormat(8, 4, 3, 11, finite=True, nuz=True),
    "f4E2M1FN": FloatFormat(4, 2, 1, 1, finite=True),
}


def float_from_bits(bits: int, name: str) -> float:
    """The number with these bits; ``ValueError`` where the format has fewer bits.

    >>> float_from_bits(0x7F800000, "f32"), float_from_bits(0x3FC0, "bf16")
    (inf, 1.5)
    """
    if name == "f8E8M0FNU":
        _check_width(bits, 8, name)
        return math.nan if bits == 0xFF else math.ldexp(1.0, bits - 127)
    form = FLOAT_FORMATS[name]
    _check_width(bits, form.bits, name)
    if name == "f64":
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    mantissa = bits & ((1 << form.mantissa) - 1)
    top = (1 << form.exponent) - 1
    exponent = bits >> form.mantissa & top
    sign = -1.0 if bits >> (form.bits - 1) else 1.0
    if form.nuz and bits == 1 << (form.bits - 1):
        return math.nan
    if exponent == top and not form.finite:
        return math.copysign(math.nan, sign) if mantissa else sign * math.inf
    if name == "f8E4M3FN" and exponent == top and mantissa == 7:
        return math.copysign(math.nan, sign)
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - form.bias - form.mantissa)
    return sign * math.ldexp(mantissa | 1 << form.mantissa, exponent - form.bias - form.mantissa)


def _check_width(bits: int, width: int, name: str) -> None:
    if bits < 0 or bits >> width:
        raise ValueError(f"{bits:#x} has more than the {width} bits of {name}")


def round_to_format(value: float, name: str) -> float:
    """``value`` rounded to nearest even in the format: what its decimal text stands for.

    >>> round_to_format(0.1, "f32")
    0.10000000149011612
    """
    form = FLOAT_FORMATS.get(name)
    if form is None or name == "f64" or value == 0 or not math.isfinite(value):
        return value
    top = (1 << form.exponent) - (1 if form.finite else 2)
    _, exponent = math.frexp(value)
    if exponent - 1 > top - form.bias:  # beyond the largest binade
        return math.copysign(math.nan if form.finite else math.inf, value)
    # The weight of the last mantissa bit: that of the number's own binade, or of the subnormals.
    unit = max(exponent - 1, 1 - form.bias) - form.mantissa
    rounded = math.ldexp(round(math.ldexp(value, -unit)), unit)
    limit = math.ldexp(2.0 - math.ldexp(1.0, -form.mantissa), top - form.bias)
    if not form.finite and abs(rounded) > limit:
        return math.copysign(math.inf, value)
    return rounded

"""Element types of random kernels: names in Triton, storage in numpy, and the conversions numpy lacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["FLOATS", "INTS", "KINDS", "TINY", "Kind", "from_float64", "to_float64"]


@dataclass(frozen=True)
class Kind:
    """One element type.

    ``tl`` is its name in ``triton.language``, ``library`` the one in array libraries, ``storage`` the numpy type of its
    bits (floats that numpy lacks lie in unsigned integers), ``precision`` the bits of a float's significand.
    """

    name: str
    tl: str
    library: str
    storage: str
    bits: int
    precision: int = 0
    signed: bool = True

    @property
    def floating(self) -> bool:
        """Whether it is a float."""
        return self.precision > 0

    @property
    def most(self) -> float:
        """The largest finite value."""
        return _MOST.get(self.name, 1.7e308)


_MOST = {"e4m3": 448.0, "e5m2": 57344.0, "f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}


KINDS = {
    kind.name: kind
    for kind in (
        Kind("i1", "int1", "bool", "uint8", 8, signed=False),
        Kind("i8", "int8", "int8", "int8", 8),
        Kind("i16", "int16", "int16", "int16", 16),
        Kind("i32", "int32", "int32", "int32", 32),
        Kind("i64", "int64", "int64", "int64", 64),
        Kind("u8", "uint8", "uint8", "uint8", 8, signed=False),
        Kind("u16", "uint16", "uint16", "uint16", 16, signed=False),
        Kind("u32", "uint32", "uint32", "uint32", 32, signed=False),
        Kind("u64", "uint64", "uint64", "uint64", 64, signed=False),
        Kind("f16", "float16", "float16", "float16", 16, 11),
        Kind("bf16", "bfloat16", "bfloat16", "uint16", 16, 8),
        Kind("f32", "float32", "float32", "float32", 32, 24),
        Kind("f64", "float64", "float64", "float64", 64, 53),
        Kind("e4m3", "float8e4nv", "float8_e4m3fn", "uint8", 8, 4),
        Kind("e5m2", "float8e5", "float8_e5m2", "uint8", 8, 3),
    )
}
INTS = tuple(name for name, kind in KINDS.items() if not kind.floating and name != "i1")
TINY = ("e4m3", "e5m2")  # kept in memory only: kernels compute with them as f32
FLOATS = tuple(name for name, kind in KINDS.items() if kind.floating and name not in TINY)


def _tiny_values(kind: str) -> np.ndarray:
    """What the bytes 0 to 127 are worth."""
    mantissa, bias = (3, 7) if kind == "e4m3" else (2, 15)
    codes = np.arange(128)
    exponent, fraction = codes >> mantissa, codes & ((1 << mantissa) - 1)
    normal = 2.0 ** (exponent - bias) * (1 + fraction / (1 << mantissa))
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias - mantissa), normal)
    values[values > _MOST[kind]] = np.nan
    if kind == "e5m2":
        values[0x7C] = np.inf
    return values


_TINY_VALUES = {kind: _tiny_values(kind) for kind in TINY}


def to_float64(array: np.ndarray, kind: str) -> np.ndarray:
    """The values of an array of ``kind`` (as it is stored) as float64."""
    if kind == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind in TINY:
        values = _TINY_VALUES[kind][array & 0x7F]
        return np.where(array & 0x80, -values, values)
    return array.astype(np.float64)


def from_float64(values: np.ndarray, kind: str) -> np.ndarray:
    """Values rounded once to ``kind``, to nearest even, as it is stored."""
    with np.errstate(all="ignore"):
        if kind in TINY:
            return _tiny_bytes(np.asarray(values, np.float64), kind)
        if kind != "bf16":
            return values.astype(KINDS[kind].storage)
        near = np.asarray(values, np.float64).astype(np.float32)
        # Rounded to odd, so that rounding again to bfloat16 is as if it had been the only one.
        error = np.asarray(values, np.float64) - near.astype(np.float64)
        bits = near.view(np.uint32).astype(np.int64)
        bits -= ((error != 0) & np.isfinite(near) & (np.signbit(error) != np.signbit(near))).astype(np.int64)
        bits |= ((error != 0) & np.isfinite(near)).astype(np.int64)
        return _bf16_bits(bits.astype(np.uint32).view(np.float32))


def _tiny_bytes(values: np.ndarray, kind: str) -> np.ndarray:
    """To nearest even; what is too large, infinities too, becomes the largest finite number."""
    table = _TINY_VALUES[kind]
    table = table[: int(np.argmax(table == _MOST[kind])) + 1]
    middles = (table[:-1] + table[1:]) / 2
    size = np.nan_to_num(np.abs(values), nan=0.0)
    below, above = np.searchsorted(middles, size, "left"), np.searchsorted(middles, size, "right")
    codes = np.where(below % 2 == 0, below, above)
    codes = np.where(np.isnan(values), 0x7F, codes)
    return (codes | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def _bf16_bits(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)

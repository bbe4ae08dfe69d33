"""The counter-based generator that fills case arrays: the same bits in Python, C and C++ on every machine.

Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011). The key is the seed,
the counter is (block number, stream); element ``i`` depends on the seed, the fill and ``i`` alone, so any part of an
array can be made alone. Only integer operations and correctly rounded double ``+ - *`` are used: no libm, no fused
multiply-add. Casts round to nearest even.

==========  ====================  =========================================================================
fill        elements per block    element
==========  ====================  =========================================================================
uniform     4 (2 for float64)     ``low + (high - low) * u``; u has 24 bits (53 for float64), in [0, 1)
normal      1                     ``mean + std * z``; z is the sum of the block's eight 16-bit integers, less
                                  its mean, times 1 / its deviation: unit variance, excess kurtosis -0.15,
                                  never beyond 4.9 deviations
integers    2                     ``low + (r * (high - low) >> 64)`` with r of 64 bits
==========  ====================  =========================================================================

``zeros``, ``full`` and ``arange`` (``start + step * i``) need no randomness; ``empty`` is filled with NaN, or 0xA5
bytes for integers and true for bools, so that unwritten elements are visible. After rounding to a narrow dtype, a
uniform element can equal ``high``.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from silo.core.host_arrays import numpy_dtype, round_to_bits
from silo.core.values import DType, DTypeKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Fill", "FillParams", "generate", "generate_bits", "philox", "sample_indices"]


class Fill(IntEnum):
    """The kinds of fills; ``generator.h`` has the same numbers (``SILO_FILL_...``), except the last one."""

    ZEROS = 0
    EMPTY = 1
    FULL = 2
    ARANGE = 3
    UNIFORM = 4
    NORMAL = 5
    INTEGERS = 6
    OWN = 7  # the author's literal data (:mod:`silo.core.literal_data`), for which no generator runs

    @property
    def word(self) -> str:
        """The fill's name in recipes."""
        return self.name.lower()


class FillParams(NamedTuple):
    """A fill's parameters besides the seed (``silo_fill_params`` in C). The fill decides what each one means.

    uniform: ``a`` is low, ``b`` is high. normal: ``a`` is the mean, ``b`` the standard deviation. integers: ``low`` is
    low, ``span`` is high - low. full: the value is ``a`` for floats, ``low`` otherwise. arange: start and step are
    ``a`` and ``b`` for floats, ``low`` and ``span`` (modulo 2**64) otherwise.
    """

    a: float = 0.0
    b: float = 0.0
    low: int = 0
    span: int = 0


_NO_PARAMS = FillParams()
_MASK32 = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

# The third word of the counter: different uses of one seed have different streams.
_STREAM_ELEMENTS = 0
_STREAM_SAMPLES = 1

_NORMAL_MEAN = 4 * 0xFFFF  # mean of the sum of eight 16-bit integers
# the reciprocal of the standard deviation of that sum, 1 / sqrt(8 * (2**32 - 1) / 12), rounded to nearest
_NORMAL_SCALE = float.fromhex("0x1.3988e1412ed76p-16")

# Elements made at a time, so that temporaries stay in the cache.
_CHUNK = 1 << 16


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Returns one block of four 32-bit words.

    >>> [f"{word:08x}" for word in philox((0, 0, 0, 0), (0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK32
        k0, k1 = (k0 + _WEYL[0]) & _MASK32, (k1 + _WEYL[1]) & _MASK32
    return c0, c1, c2, c3


def _blocks(seed: int, first: int, count: int) -> tuple[NDArray[np.uint64], ...]:
    """Returns the four words of blocks ``first ... first + count - 1`` of the elements' stream, as four arrays."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    u64 = np.uint64
    mask, half = u64(_MASK32), u64(32)
    index = np.arange(count, dtype=u64) + u64(first)
    c0, c1 = index & mask, index >> half
    c2, c3 = np.full(count, _STREAM_ELEMENTS, dtype=u64), np.zeros(count, dtype=u64)
    k0, k1 = seed & _MASK32, seed >> 32
    for _ in range(_ROUNDS):
        p0, p1 = c0 * u64(_MULTIPLIERS[0]), c2 * u64(_MULTIPLIERS[1])
        c0, c1 = (p1 >> half) ^ c1 ^ u64(k0), p1 & mask
        c2, c3 = (p0 >> half) ^ c3 ^ u64(k1), p0 & mask
        k0, k1 = (k0 + _WEYL[0]) & _MASK32, (k1 + _WEYL[1]) & _MASK32
    return c0, c1, c2, c3


def _words(seed: int, first: int, count: int, per_block: int) -> NDArray[np.uint64]:
    """Returns ``count`` words from number ``first`` on: 32-bit words (4 in a block) or 64-bit words (2 in a block)."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    start = first // per_block
    blocks = _blocks(seed, start, (first + count - 1) // per_block - start + 1)
    if per_block == 2:
        low, high = blocks[0::2], blocks[1::2]
        blocks = tuple(low[i] | (high[i] << np.uint64(32)) for i in range(2))
    words = np.stack(blocks, axis=1).reshape(-1)
    skip = first - start * per_block
    return words[skip : skip + count]


def _uniform(element: DType, seed: int, first: int, count: int, params: FillParams) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if element.bits == 64:
        unit = (_words(seed, first, count, 2) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    else:
        unit = (_words(seed, first, count, 4) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return params.a + (params.b - params.a) * unit


def _normal(seed: int, first: int, count: int, params: FillParams) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    total = np.zeros(count, dtype=np.uint64)
    for word in _blocks(seed, first, count):
        total += (word & np.uint64(0xFFFF)) + (word >> np.uint64(16))
    unit = (total.astype(np.int64) - _NORMAL_MEAN).astype(np.float64) * _NORMAL_SCALE
    return params.a + params.b * unit


def _integers(seed: int, first: int, count: int, params: FillParams) -> NDArray[np.uint64]:
    """Returns the elements of the fill ``integers``, modulo 2**64."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    u64 = np.uint64
    mask, half = u64(_MASK32), u64(32)
    r = _words(seed, first, count, 2)
    r_low, r_high = r & mask, r >> half
    s_low, s_high = u64(params.span & _MASK32), u64(params.span >> 32)
    # The upper half of the 128-bit product, computed from four 64-bit products.
    middle = r_high * s_low + ((r_low * s_low) >> half)
    lower = r_low * s_high + (middle & mask)
    return r_high * s_high + (middle >> half) + (lower >> half) + u64(params.low % (1 << 64))


def _chunk(fill: Fill, element: DType, seed: int, first: int, count: int, *, params: FillParams) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    is_float = element.kind is DTypeKind.FLOAT
    unsigned = np.dtype(f"uint{element.bits}")
    doubles: NDArray[np.float64]
    match fill:
        case Fill.UNIFORM:
            doubles = _uniform(element, seed, first, count, params)
        case Fill.NORMAL:
            doubles = _normal(seed, first, count, params)
        case Fill.EMPTY if is_float:
            doubles = np.full(count, math.nan)
        case Fill.FULL if is_float:
            doubles = np.full(count, params.a)
        case Fill.ARANGE if is_float:
            doubles = params.a + params.b * (np.arange(count, dtype=np.float64) + float(first))
        case Fill.ZEROS:
            return np.zeros(count, dtype=unsigned)
        case Fill.EMPTY:
            return np.full(count * unsigned.itemsize, 1 if element.kind is DTypeKind.BOOL else 0xA5, np.uint8).view(
                unsigned
            )
        case Fill.FULL:
            return np.full(count, params.low % (1 << 64), dtype=np.uint64).astype(unsigned)
        case _:
            if fill is Fill.INTEGERS:
                integers = _integers(seed, first, count, params)
            else:
                index = np.arange(count, dtype=np.uint64) + np.uint64(first)
                integers = index * np.uint64(params.span) + np.uint64(params.low % (1 << 64))
            if not is_float:
                return integers.astype(unsigned)
            doubles = integers.view(np.int64).astype(np.float64)
    return round_to_bits(doubles, element)


def generate_bits(
    fill: Fill,
    element: DType,
    seed: int,
    first: int,
    count: int,
    *,
    params: FillParams = _NO_PARAMS,
) -> NDArray[Any]:
    """Returns the bits of elements ``first ... first + count - 1``, as unsigned integers of the dtype's width.

    ``seed`` and ``first`` are 64-bit and not negative.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    out = np.empty(count, dtype=np.dtype(f"uint{element.bits}"))
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        out[start : start + size] = _chunk(fill, element, seed, first + start, size, params=params)
    return cast("NDArray[Any]", out)


def generate(
    fill: Fill,
    element: DType,
    seed: int,
    first: int,
    count: int,
    *,
    params: FillParams = _NO_PARAMS,
) -> NDArray[Any]:
    """Returns :func:`generate_bits` as an array of the dtype; raises ``CaseError`` if numpy lacks the dtype."""
    return generate_bits(fill, element, seed, first, count, params=params).view(numpy_dtype(element))


@lru_cache(256)  # one entry for each expected array of a case, for each target
def sample_indices(seed: int, count: int, total: int) -> tuple[int, ...]:
    """Returns at most ``count`` different element numbers below ``total``, ascending; 0 and ``total - 1`` are included.

    Returns all element numbers if ``total`` is at most ``count``.
    """
    if total <= count:
        return tuple(range(total))
    chosen = {0, total - 1}
    for index in range(count - 2):
        w0, w1, _, _ = philox((index & _MASK32, index >> 32, _STREAM_SAMPLES, 0), (seed & _MASK32, seed >> 32))
        chosen.add(((w1 << 32 | w0) * total) >> 64)
    return tuple(sorted(chosen))

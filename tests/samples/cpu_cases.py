"""Cases for kernels on the CPU: a call with the expected arrays; and random numbers for them."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

bf16 = ml_dtypes.bfloat16
INTS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64)
FLOATS = (np.float16, bf16, np.float32, np.float64)
RNG = np.random.default_rng(5)


@dataclass(frozen=True)
class Case:
    """One call of a kernel, and the expected contents of the arrays that it writes."""

    kernel: object
    arguments: dict[str, object]
    expected: dict[str, np.ndarray]
    grid: tuple[int, ...] = (1,)


def values(shape, dtype) -> np.ndarray:
    """Return small random numbers, whose sums and products are exact in every type."""
    low = 0 if np.dtype(dtype).kind == "u" else -4
    return RNG.integers(low, 5, shape).astype(dtype)

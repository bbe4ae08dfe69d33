"""Comparing host arrays. Loads numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silo.tune.check import Comparison

__all__ = ["TOLERANCES", "compare_arrays"]

# Relative tolerances between two configs of one kernel, which add in different orders. They also serve as absolute
# ones in units of the largest magnitude, since cancellation leaves an error of that size in small results.
TOLERANCES: Mapping[str, float] = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 4e-2,
    "float8_e4m3fn": 2e-1,
    "float8_e5m2": 4e-1,
}


def compare_arrays(
    expected: Mapping[str, NDArray[Any]], actual: Mapping[str, NDArray[Any]], relative: float | None = None
) -> Comparison:
    """Compare named host arrays. Integers and bools must be equal; NaN equals NaN, infinities only themselves.

    Floats may differ by ``relative`` (default by dtype, :data:`TOLERANCES`) of the expected value plus as much of the
    largest expected magnitude.
    """
    largest = 0.0
    for name, want in expected.items():
        got = actual[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            message = f"{name} is {got.dtype.name}{list(got.shape)}, expected {want.dtype.name}{list(want.shape)}"
            return Comparison(ok=False, message=message)
        if not want.size:
            continue
        floating = want.dtype.name in TOLERANCES or want.dtype.name.startswith(("float", "bfloat"))
        allowed = (TOLERANCES.get(want.dtype.name, 0.0) if relative is None else relative) if floating else 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            bad, error = _differences(want, got, allowed, floating=floating)
        largest = max(largest, error)
        if bad.any():
            return Comparison(ok=False, max_error=largest, message=_describe(name, want, got, bad))
    return Comparison(ok=True, max_error=largest)


def _differences(
    want: NDArray[Any], got: NDArray[Any], allowed: float, *, floating: bool
) -> tuple[NDArray[np.bool_], float]:
    if not floating:
        bad = want != got
        # In Python's integers: a difference of two int64 may not fit one.
        error = max((abs(int(a) - int(b)) for a, b in zip(want[bad][:64], got[bad][:64], strict=True)), default=0)
        return bad, float(error)
    a, b = want.astype(np.float64), got.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    difference = np.where(finite, np.abs(a - b), 0.0)
    magnitude = np.where(np.isfinite(a), np.abs(a), 0.0)
    bad = ~same & (~finite | (difference > allowed * (magnitude + magnitude.max())))
    return bad, float("inf") if (bad & ~finite).any() else float(difference.max())


def _describe(name: str, want: NDArray[Any], got: NDArray[Any], bad: NDArray[np.bool_]) -> str:
    place = tuple(int(index) for index in np.argwhere(bad)[0])
    return (
        f"{name}: {int(bad.sum())} of {want.size} values are wrong, first at {list(place)}: "
        f"{got[place]} where {want[place]} is expected"
    )

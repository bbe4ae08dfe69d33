"""Checks: whether an array holds what it should."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from silo.core.dtypes import DType, DTypeKind
from silo.core.host_arrays import dtype_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.recipes import ExpectedRecipe

__all__ = ["CheckResult", "check", "compare", "default_tolerance"]

# Relative tolerances by dtype, about 2000 (fp64: 10^5) units in the last place: sums in another order, not other sums.
_RTOL = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 2e-2}
_RTOL_FLOAT8 = 0.125

# Elements compared at one time, which bounds the memory for their doubles.
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one comparison.

    ``worst`` is the index of the element furthest out of tolerance, or nearest to the limit if all are within; None for
    an empty array. Errors are never NaN: a wrong NaN or infinity counts as inf.
    """

    ok: bool
    max_abs_error: float
    max_rel_error: float
    worst: tuple[int, ...] | None
    message: str

    def __bool__(self) -> bool:
        return self.ok


def default_tolerance(element: DType, scale: float) -> tuple[float, float]:
    """``(rtol, atol)`` for results of a dtype whose largest expected magnitude is ``scale``.

    ``atol`` is a tenth of ``rtol`` of the largest value: where terms cancel, the error is that of the terms. Integers
    and bools must be equal.
    """
    if element.kind is not DTypeKind.FLOAT:
        return 0.0, 0.0
    rtol = _RTOL.get(element.name, _RTOL_FLOAT8)
    return rtol, 0.1 * rtol * scale


def compare(
    actual: NDArray[Any], expected: NDArray[Any], rtol: float | None = None, atol: float | None = None
) -> CheckResult:
    """Whether ``|actual - expected| <= atol + rtol * |expected|`` everywhere, in double.

    NaN equals NaN only, an infinity the same infinity only. Tolerances not given are :func:`default_tolerance` of the
    less precise of the two dtypes. Shapes must agree.
    """
    if actual.shape != expected.shape:
        message = f"the shape is {actual.shape} and should be {expected.shape}"
        return CheckResult(ok=False, max_abs_error=math.inf, max_rel_error=math.inf, worst=None, message=message)
    return _compare_flat(
        actual.reshape(-1), expected.reshape(-1), shape=actual.shape, indices=None, rtol=rtol, atol=atol
    )


def check(actual: NDArray[Any], expected: ExpectedRecipe) -> CheckResult:
    """Compare an array with what its recipe expects, whole or sampled."""
    if actual.shape != expected.shape:
        message = f"the shape is {actual.shape} and should be {expected.shape}"
        return CheckResult(ok=False, max_abs_error=math.inf, max_rel_error=math.inf, worst=None, message=message)
    indices, flat = expected.indices(), actual.reshape(-1)
    chosen = flat if indices is None else flat[list(indices)]
    reference = expected.array().reshape(-1)
    return _compare_flat(
        chosen, reference, shape=expected.shape, indices=indices, rtol=expected.rtol, atol=expected.atol
    )


def _compare_flat(
    actual: NDArray[Any],
    expected: NDArray[Any],
    *,
    shape: tuple[int, ...],
    indices: tuple[int, ...] | None,
    rtol: float | None,
    atol: float | None,
) -> CheckResult:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    mine, theirs = dtype_named(actual.dtype), dtype_named(expected.dtype)
    if rtol is None or atol is None:
        coarse = max((mine, theirs), key=lambda element: default_tolerance(element, 1.0))
        default_rtol, default_atol = default_tolerance(coarse, _scale(expected))
        rtol, atol = default_rtol if rtol is None else rtol, default_atol if atol is None else atol
    exact = mine.kind is not DTypeKind.FLOAT and theirs.kind is not DTypeKind.FLOAT
    max_abs, max_rel, excess, worst, wrong = 0.0, 0.0, -math.inf, 0, 0
    for start in range(0, actual.size, _CHUNK):
        part, reference = actual[start : start + _CHUNK], expected[start : start + _CHUNK]
        x, y = part.astype(np.float64), reference.astype(np.float64)
        with np.errstate(all="ignore"):
            error = np.abs(x - y)
            same = (part == reference) if exact else (x == y) | (np.isnan(x) & np.isnan(y))
            error[same] = 0.0
            error[np.isnan(error)] = np.inf
            # Two different 64-bit integers can be one double.
            error[(error == 0.0) & ~same] = 1.0
            magnitude = np.abs(y)
            relative = np.where(error == 0.0, 0.0, error / magnitude)
            relative[np.isnan(relative)] = np.inf
            limit = atol + rtol * magnitude
            limit[~np.isfinite(limit)] = 0.0
            beyond = error - limit
        max_abs, max_rel = max(max_abs, float(error.max())), max(max_rel, float(relative.max()))
        wrong += int(np.count_nonzero(beyond > 0.0))
        at = int(beyond.argmax())
        if float(beyond[at]) > excess:
            excess, worst = float(beyond[at]), start + at
    if not actual.size:
        return CheckResult(ok=True, max_abs_error=0.0, max_rel_error=0.0, worst=None, message="no elements")
    place = np.unravel_index(worst if indices is None else indices[worst], shape)
    index = tuple(int(axis) for axis in place)
    within = f"rtol={rtol:g}, atol={atol:g}"
    if not wrong:
        return CheckResult(ok=True, max_abs_error=max_abs, max_rel_error=max_rel, worst=index, message=within)
    written = _unwritten(actual)
    message = (
        f"{wrong} of {actual.size} {'sampled ' if indices else ''}elements differ by more than {within};"
        f" worst at {list(index)}: {actual[worst]} and should be {expected[worst]}{written}"
    )
    return CheckResult(ok=False, max_abs_error=max_abs, max_rel_error=max_rel, worst=index, message=message)


def _scale(expected: NDArray[Any]) -> float:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    largest = 0.0
    for start in range(0, expected.size, _CHUNK):
        magnitude = np.abs(expected[start : start + _CHUNK].astype(np.float64))
        largest = max(largest, float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0)))
    return largest


def _unwritten(actual: NDArray[Any]) -> str:
    """A hint where NaN, with which ``make.empty`` fills, is left in the array."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if dtype_named(actual.dtype).kind is not DTypeKind.FLOAT:
        return ""
    count = int(np.count_nonzero(np.isnan(actual.astype(np.float64))))
    return f" ({count} are NaN: perhaps never written)" if count else ""

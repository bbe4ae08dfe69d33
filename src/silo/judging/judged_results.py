"""Compares a launch's arrays with the reference's results, and inputs with their original content."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from silo.core.checks import compare, default_tolerance, unchanged
from silo.core.host_arrays import numpy_dtype
from silo.core.values import DType, DTypeKind
from silo.errors import CaseError
from silo.judging.task import DrawnArray, DrawnCase, Role, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["expected_arrays", "scales_of", "wrong_results"]

_NO_SCALES: dict[str, float] = {}


def expected_arrays(case: DrawnCase) -> dict[str, NDArray[Any]]:
    """Computes the reference's results by name, in numpy.

    Raises:
        CaseError: the reference fails, leaves out an array, or returns an array of another shape.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    try:
        with np.errstate(all="ignore"):  # numpy would warn about drawn infinities and NaN
            given = dict(case.expected())
    except Exception as error:
        raise CaseError(f"the reference fails at {case.label}: {type(error).__name__}: {error}") from error
    arrays = case.arrays
    output_names = {name for name, array in arrays.items() if array.role in (Role.OUTPUT, Role.INOUT)}
    if set(given) != output_names:
        raise CaseError(
            f"{case.label}: the reference gives {', '.join(given) or 'nothing'}; expected are all arrays of draw.empty "
            f"and draw.inout: {', '.join(sorted(output_names))}"
        )
    host_arrays = {name: _host(value) for name, value in given.items()}
    for name, value in host_arrays.items():
        if value.shape != arrays[name].shape:
            raise CaseError(
                f"{case.label}: the reference gives {name} of shape {value.shape}, not {arrays[name].shape}"
            )
    return host_arrays


def _host(value: Any) -> NDArray[Any]:  # noqa: ANN401  # an array of numpy or torch
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    return np.asarray(value)


def scales_of(case: DrawnCase, expected: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Returns the largest finite magnitude of each expected array of floats, rounded to its dtype."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    scales: dict[str, float] = {}
    for name, values in expected.items():
        if case.arrays[name].dtype.kind is DTypeKind.FLOAT:
            with np.errstate(all="ignore"):
                size = np.abs(values.astype(numpy_dtype(case.arrays[name].dtype)).astype(np.float64))
            scales[name] = float(np.max(size, where=np.isfinite(size), initial=0.0))
    return scales


def wrong_results(
    task: Task,
    case: DrawnCase,
    expected: Mapping[str, NDArray[Any]],
    arrays: Sequence[DrawnArray],
    contents: Sequence[bytes],
    scales: Mapping[str, float] = _NO_SCALES,
) -> list[str]:
    """Returns the reasons why the bytes that a launch left in ``arrays`` are wrong; empty if they are right.

    ``scales`` are the magnitudes of the results of a large case with ordinary values. They set the tolerance of small
    cases too: in a small case, the terms of every sum may cancel, so that all results are small, while the rounding
    errors stay in proportion to the terms.

    Raises:
        ValueError: the number of arrays, or of their bytes, is not the case's.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if [len(item) for item in contents] != [array.host.nbytes for array in arrays]:
        raise ValueError("other arrays came back than were sent")
    differences: list[str] = []
    own = scales_of(case, expected)
    for item, content in zip(arrays, contents, strict=True):
        name = next(name for name, array in case.arrays.items() if array is item)
        actual = np.frombuffer(content, numpy_dtype(item.dtype)).reshape(item.shape)
        if item.role is Role.INPUT:
            result = unchanged(actual, item.host)
            if not result:
                differences.append(f"{case.label}: it changes {name}, which it must only read: {result.message}")
        elif item.role in (Role.OUTPUT, Role.INOUT):
            scale = max(own.get(name, 0.0), scales.get(name, 0.0) if case.ordinary else 0.0)
            reason = _difference(task, item.dtype, actual, expected[name], scale)
            if reason:
                differences.append(f"{case.label}: {name}: {reason}")
    return differences


def _difference(task: Task, element: DType, actual: NDArray[Any], exact: NDArray[Any], scale: float) -> str:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if element.kind is not DTypeKind.FLOAT:
        result = compare(actual, exact.astype(actual.dtype), 0.0, 0.0)
        return "" if result else result.message
    doubles = exact.astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = doubles.astype(actual.dtype)  # a value beyond the dtype's range becomes infinite
    smallest, largest = _range(actual.dtype)
    rtol, atol = default_tolerance(element, scale)
    rtol = rtol if task.rtol is None else task.rtol
    atol = (
        max(atol, 4 * smallest) if task.atol is None else task.atol
    )  # at least four times the smallest normal number, because code may flush denormal results to zero
    with np.errstate(all="ignore"):
        actual_values = actual.astype(np.float64)
        # near the largest value of the dtype, both a finite and an infinite result are right
        near = np.abs(np.abs(doubles) - largest) <= (rtol + 1e-3) * largest
        right = (
            near
            & (np.sign(actual_values) == np.sign(doubles))
            & (np.abs(actual_values) >= largest * (1 - 2 * rtol - 1e-3))
        )
    result = compare(np.where(right, rounded, actual), rounded, rtol, atol)
    return "" if result else result.message


def _range(wanted: Any) -> tuple[float, float]:  # noqa: ANN401  # a numpy dtype
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if wanted.type in (np.float64, np.float32, np.float16):
        info = cast("Any", np.finfo(wanted))
    else:
        import ml_dtypes  # noqa: PLC0415  # installed, because this package made the dtype

        info = cast("Any", ml_dtypes.finfo(wanted))
    smallest, largest = float(info.smallest_normal), float(info.max)
    return (smallest if math.isfinite(smallest) else 0.0), largest

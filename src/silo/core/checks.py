"""Compares an array with its expected values: numpy arrays in full, and without numpy the values stored in a recipe."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from silo.core.host_arrays import SMALL_FLOATS
from silo.core.values import DType, DTypeKind, dtype_named
from silo.frozen import frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.recipes import ExpectedRecipe

__all__ = [
    "CheckResult",
    "PlainArray",
    "check",
    "check_plain",
    "compare",
    "default_tolerance",
    "same_bits",
    "tolerance",
    "unchanged",
]

Answer = TypeVar("Answer")
Slice: TypeAlias = "slice[int, int, None]"

# Relative tolerances by dtype, about 2000 (fp64: 10^5) units in the last place. Sums of the same terms in another order
# pass; wrong results do not.
_RTOL = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 2e-2}
_RTOL_FLOAT8 = 0.125

# The elements that one thread compares at a time: few enough for their doubles to stay in a core's cache.
_CHUNK = 1 << 16
_PART = 1 << 20  # the elements that one thread compares at a time if it compares only bits


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one comparison.

    ``worst`` is the index of the element furthest out of tolerance, or nearest to the limit if all are within; None for
    an empty array, or if all have the expected bits. Errors are never NaN: a wrong NaN or infinity counts as inf.
    """

    ok: bool
    max_abs_error: float
    max_rel_error: float
    worst: tuple[int, ...] | None
    message: str

    def __bool__(self) -> bool:
        return self.ok


def default_tolerance(element: DType, scale: float) -> tuple[float, float]:
    """Returns ``(rtol, atol)`` for results of a dtype whose largest expected magnitude is ``scale``.

    ``atol`` is a tenth of ``rtol * scale``: where large terms cancel, the error stays as large as the terms' own
    errors. Integers and bools must be equal.
    """
    if element.kind is not DTypeKind.FLOAT:
        return 0.0, 0.0
    rtol = _RTOL.get(element.name, _RTOL_FLOAT8)
    return rtol, 0.1 * rtol * scale


def compare(
    actual: NDArray[Any], expected: NDArray[Any], rtol: float | None = None, atol: float | None = None
) -> CheckResult:
    """Compares two arrays in double: ``|actual - expected| <= atol + rtol * |expected|`` must hold everywhere.

    NaN equals only NaN, and an infinity only the same infinity. Tolerances default to those that
    :func:`default_tolerance` returns for the less precise of the two dtypes. The shapes must be equal.
    """
    if actual.shape != expected.shape:
        message = f"the shape is {actual.shape} and should be {expected.shape}"
        return CheckResult(ok=False, max_abs_error=math.inf, max_rel_error=math.inf, worst=None, message=message)
    return _compare_flat(
        actual.reshape(-1), expected.reshape(-1), shape=actual.shape, indices=None, rtol=rtol, atol=atol
    )


def same_bits(array: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays have one shape, one dtype and the same bits."""
    if array is other:
        return True
    if array.shape != other.shape or array.dtype != other.dtype:
        return False
    first, second = array.reshape(-1), other.reshape(-1)
    return all(_each(lambda at: _same_bits(first[at], second[at]), _slices(slice(0, first.size), _PART)))


def unchanged(actual: NDArray[Any], before: NDArray[Any]) -> CheckResult:
    """Compares an array's bits with those before a launch, for arrays that a kernel only reads."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if same_bits(actual, before):
        return CheckResult(ok=True, max_abs_error=0.0, max_rel_error=0.0, worst=None, message="the same bits")
    if actual.shape != before.shape or actual.dtype != before.dtype:
        message = f"it is {actual.dtype} {list(actual.shape)} and was {before.dtype} {list(before.shape)}"
        return CheckResult(ok=False, max_abs_error=math.inf, max_rel_error=math.inf, worst=None, message=message)
    now, then = np.ascontiguousarray(actual).reshape(-1), np.ascontiguousarray(before).reshape(-1)
    bits = now.view(np.uint8).reshape(now.size, -1) != then.view(np.uint8).reshape(now.size, -1)
    differs = np.flatnonzero(bits.any(axis=1))
    index = tuple(int(axis) for axis in np.unravel_index(int(differs[0]), actual.shape))
    message = (
        f"{differs.size} of {actual.size} elements changed; the first at {list(index)}: "
        f"{now[differs[0]]} and was {then[differs[0]]}"
    )
    return CheckResult(ok=False, max_abs_error=math.inf, max_rel_error=math.inf, worst=index, message=message)


def check(actual: NDArray[Any], expected: ExpectedRecipe) -> CheckResult:
    """Compares an array with its recipe's expected values: all elements, or only those that the recipe sampled."""
    if actual.shape != expected.shape:
        message = f"the shape is {actual.shape} and should be {expected.shape}"
        return CheckResult(ok=False, max_abs_error=math.inf, max_rel_error=math.inf, worst=None, message=message)
    indices, flat = expected.indices(), actual.reshape(-1)
    chosen = flat if indices is None else flat[list(indices)]
    reference = expected.array().reshape(-1)
    return _compare_flat(
        chosen, reference, shape=expected.shape, indices=indices, rtol=expected.rtol, atol=expected.atol
    )


def tolerance(expected: ExpectedRecipe, element: DType) -> tuple[float, float]:
    """Returns the ``(rtol, atol)`` with which :func:`check` compares an array of ``element``."""
    return _tolerance(element, expected.array().reshape(-1), expected.rtol, expected.atol)


def _tolerance(element: DType, expected: NDArray[Any], rtol: float | None, atol: float | None) -> tuple[float, float]:
    if rtol is not None and atol is not None:
        return rtol, atol
    coarse = max((element, dtype_named(expected.dtype)), key=lambda one: default_tolerance(one, 1.0))
    default_rtol, default_atol = default_tolerance(coarse, _scale(expected) if expected.size else 0.0)
    return default_rtol if rtol is None else rtol, default_atol if atol is None else atol


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

    if not actual.size:
        return CheckResult(ok=True, max_abs_error=0.0, max_rel_error=0.0, worst=None, message="no elements")
    mine, theirs = dtype_named(actual.dtype), dtype_named(expected.dtype)
    parts: list[Slice] = [slice(0, actual.size)]
    if mine == theirs:
        # Most results have exactly the expected bits. Comparing bits is fifty times faster than computing errors.
        parts = _slices(parts[0], _PART)
        same = _each(lambda at: _same_bits(actual[at], expected[at]), parts)
        parts = [at for at, equal in zip(parts, same, strict=True) if not equal]
        if not parts:
            return CheckResult(ok=True, max_abs_error=0.0, max_rel_error=0.0, worst=None, message="the same bits")
    rtol, atol = _tolerance(mine, expected, rtol, atol)
    limit, chunks = (rtol, atol), [chunk for part in parts for chunk in _slices(part, _CHUNK)]
    exact = mine.kind is not DTypeKind.FLOAT and theirs.kind is not DTypeKind.FLOAT
    chunk_errors = _each(lambda at: _errors(actual[at], expected[at], limit, exact=exact), chunks)
    wrong = sum(errors.wrong for errors in chunk_errors)
    furthest = max(range(len(chunk_errors)), key=lambda number: chunk_errors[number].excess)
    worst = chunks[furthest].start + chunk_errors[furthest].worst
    max_abs, max_rel = max(errors.absolute for errors in chunk_errors), max(errors.relative for errors in chunk_errors)
    position = np.unravel_index(worst if indices is None else indices[worst], shape)
    index = tuple(int(axis) for axis in position)
    within = f"rtol={rtol:g}, atol={atol:g}"
    if not wrong:
        return CheckResult(ok=True, max_abs_error=max_abs, max_rel_error=max_rel, worst=index, message=within)
    written = _unwritten(actual)
    message = (
        f"{wrong} of {actual.size} {'sampled ' if indices else ''}elements differ by more than {within};"
        f" worst at {list(index)}: {actual[worst]} and should be {expected[worst]}{written}"
    )
    return CheckResult(ok=False, max_abs_error=max_abs, max_rel_error=max_rel, worst=index, message=message)


@frozen
class _Errors:
    """The largest errors of a chunk, the number of elements out of tolerance, and the index of the worst element."""

    absolute: float
    relative: float
    wrong: int
    worst: int
    excess: float


def _errors(part: NDArray[Any], reference: NDArray[Any], tolerance: tuple[float, float], *, exact: bool) -> _Errors:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    x, y = part.astype(np.float64), reference.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(x - y)
        if exact:
            # Two different 64-bit integers can convert to the same double, so that their error is 0: make it 1.
            error[(error == 0.0) & (part != reference)] = 1.0
        elif not np.isfinite(error).all():
            error[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
            error[np.isnan(error)] = np.inf
        magnitude = np.abs(y)
        relative = np.divide(error, magnitude, out=np.zeros_like(error), where=error != 0.0)
        relative[np.isnan(relative)] = np.inf
        limit = tolerance[1] + tolerance[0] * magnitude
        limit[~np.isfinite(limit)] = 0.0
        beyond = error - limit
    at = int(beyond.argmax())
    return _Errors(
        float(error.max()), float(relative.max()), int(np.count_nonzero(beyond > 0.0)), at, float(beyond[at])
    )


def _same_bits(part: NDArray[Any], reference: NDArray[Any]) -> bool:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    return np.array_equal(_words(part), _words(reference))


def _words(array: NDArray[Any]) -> NDArray[Any]:
    """The bits of a flat array as unsigned integers."""
    return array.view(f"u{array.itemsize}") if array.itemsize in (1, 2, 4, 8) else array


def _slices(whole: Slice, size: int) -> list[Slice]:
    return [slice(start, min(start + size, whole.stop)) for start in range(whole.start, whole.stop, size)]


def _each(work: Callable[[Slice], Answer], chunks: Sequence[Slice]) -> list[Answer]:
    """Returns ``work(chunk)`` for each chunk, on all cores: numpy releases the interpreter's lock meanwhile."""
    if len(chunks) == 1:
        return [work(chunks[0])]
    with ThreadPoolExecutor() as threads:
        return list(threads.map(work, chunks))


def _scale(expected: NDArray[Any]) -> float:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    def largest(at: Slice) -> float:
        # A float32 represents each float of at most 16 bits exactly; wider dtypes need a float64.
        magnitude = np.abs(expected[at].astype(np.float64 if expected.itemsize > 2 else np.float32))
        maximum = float(magnitude.max(initial=0.0))
        return (
            maximum if math.isfinite(maximum) else float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))
        )

    return max(_each(largest, _slices(slice(0, expected.size), _CHUNK)))


def _unwritten(actual: NDArray[Any]) -> str:
    """Returns a hint if the array still contains the NaN of ``make.empty``, else ""."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if dtype_named(actual.dtype).kind is not DTypeKind.FLOAT:
        return ""
    count = int(np.count_nonzero(np.isnan(actual.astype(np.float64))))
    return f" ({count} are NaN: perhaps never written)" if count else ""


_FORMS = {"float16": "e", "float32": "f", "float64": "d", "bool": "B"}


@dataclass(frozen=True, slots=True)
class PlainArray:
    """An array without numpy: its elements as bytes, in C order and the machine's byte order, its dtype and shape."""

    data: bytes | bytearray | memoryview
    dtype: DType
    shape: tuple[int, ...]

    def element(self, number: int) -> float:
        """Returns one element, by its number in C order."""
        size = self.dtype.itemsize
        return _decoded(self.data[number * size : (number + 1) * size], self.dtype, "=")


def check_plain(actual: PlainArray, expected: ExpectedRecipe) -> CheckResult:
    """Compares an array with its recipe's expected values without numpy, by the same rule as :func:`check`.

    The rule is ``|actual - expected| <= atol + rtol * |expected|`` for every element.
    """
    if actual.shape != expected.shape:
        message = f"the shape is {actual.shape} and should be {expected.shape}"
        return CheckResult(ok=False, max_abs_error=math.inf, max_rel_error=math.inf, worst=None, message=message)
    size = expected.dtype.itemsize
    expected_values = [
        _decoded(expected.values[at : at + size], expected.dtype, "<") for at in range(0, len(expected.values), size)
    ]
    numbers = expected.indices() or range(len(expected_values))
    values = [actual.element(number) for number in numbers]
    rtol, atol = _recipe_tolerance(actual.dtype, expected, expected_values)
    errors = [_error(mine, theirs) for mine, theirs in zip(values, expected_values, strict=True)]
    beyond = [
        error - (atol + rtol * abs(theirs) if math.isfinite(theirs) else 0.0)
        for error, theirs in zip(errors, expected_values, strict=True)
    ]
    if not errors:
        return CheckResult(ok=True, max_abs_error=0.0, max_rel_error=0.0, worst=None, message="no elements")
    worst = max(range(len(beyond)), key=lambda number: beyond[number])
    wrong = sum(excess > 0 for excess in beyond)
    index = _index(numbers[worst], expected.shape)
    relative = max(_relative(error, theirs) for error, theirs in zip(errors, expected_values, strict=True))
    message = f"rtol={rtol:g}, atol={atol:g}"
    if wrong:
        sampled = "" if expected.indices() is None else "sampled "
        message = (
            f"{wrong} of {len(values)} {sampled}elements differ by more than {message};"
            f" worst at {list(index)}: {values[worst]} and should be {expected_values[worst]}"
        )
    return CheckResult(ok=not wrong, max_abs_error=max(errors), max_rel_error=relative, worst=index, message=message)


def _recipe_tolerance(actual: DType, expected: ExpectedRecipe, wanted: Sequence[float]) -> tuple[float, float]:
    coarse = max((actual, expected.dtype), key=lambda element: default_tolerance(element, 1.0))
    scale = max((abs(value) for value in wanted if math.isfinite(value)), default=0.0)
    rtol, atol = default_tolerance(coarse, scale)
    return rtol if expected.rtol is None else expected.rtol, atol if expected.atol is None else expected.atol


def _error(actual: float, expected: float) -> float:
    if actual == expected or (math.isnan(actual) and math.isnan(expected)):
        return 0.0
    error = abs(actual - expected)
    return math.inf if math.isnan(error) else error


def _relative(error: float, expected: float) -> float:
    if error == 0.0:
        return 0.0
    return math.inf if expected == 0 or not math.isfinite(expected) else error / abs(expected)


def _index(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for extent in reversed(shape):
        number, coordinate = divmod(number, extent)
        index.insert(0, coordinate)
    return tuple(index)


def _decoded(data: bytes | bytearray | memoryview, element: DType, order: str) -> float:
    if element.name in _FORMS:
        return struct.unpack(order + _FORMS[element.name], data)[0]
    little = order == "<" or struct.pack("=h", 1)[0] == 1
    code = int.from_bytes(data, "little" if little else "big", signed=element.kind is DTypeKind.INT)
    return code if element.kind is not DTypeKind.FLOAT else _small(code, element.name)


def _small(code: int, name: str) -> float:
    """Returns the value of a float of at most 16 bits from its bits."""
    form = SMALL_FLOATS[name]
    magnitude = code & (form.sign - 1)
    sign = -1.0 if code & form.sign else 1.0
    if form.infinity is not None and magnitude >= form.infinity:
        return sign * math.inf if magnitude == form.infinity else math.nan
    if magnitude > form.largest or (not form.has_negative_zero and code == form.nan):
        return math.nan
    exponent = magnitude >> form.mantissa_bits
    mantissa = magnitude & ((1 << form.mantissa_bits) - 1)
    if exponent:
        mantissa |= 1 << form.mantissa_bits
    return sign * math.ldexp(mantissa, max(exponent, 1) - form.bias - form.mantissa_bits)

"""Checks of results without numpy: the few values that a recipe expects, one by one."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from silo.core.checks import CheckResult, default_tolerance
from silo.core.dtypes import DType, DTypeKind
from silo.core.host_arrays import SMALL_FLOATS

if TYPE_CHECKING:
    from silo.core.recipes import ExpectedRecipe

__all__ = ["PlainArray", "check_plain"]

_FORMS = {"float16": "e", "float32": "f", "float64": "d", "bool": "B"}


@dataclass(frozen=True, slots=True)
class PlainArray:
    """Elements in C order and the machine's byte order, with their dtype."""

    data: bytes | bytearray | memoryview
    dtype: DType
    shape: tuple[int, ...]

    def element(self, number: int) -> float:
        """One element, by its number in C order."""
        size = self.dtype.itemsize
        return _decoded(self.data[number * size : (number + 1) * size], self.dtype, "=")


def check_plain(actual: PlainArray, expected: ExpectedRecipe) -> CheckResult:
    """As :func:`silo.core.checks.check`: within ``atol + rtol * |expected|`` everywhere."""
    if actual.shape != expected.shape:
        message = f"the shape is {actual.shape} and should be {expected.shape}"
        return CheckResult(ok=False, max_abs_error=math.inf, max_rel_error=math.inf, worst=None, message=message)
    size = expected.dtype.itemsize
    wanted = [
        _decoded(expected.values[at : at + size], expected.dtype, "<") for at in range(0, len(expected.values), size)
    ]
    numbers = expected.indices() or range(len(wanted))
    found = [actual.element(number) for number in numbers]
    rtol, atol = _tolerance(actual.dtype, expected, wanted)
    errors = [_error(mine, theirs) for mine, theirs in zip(found, wanted, strict=True)]
    beyond = [
        error - (atol + rtol * abs(theirs) if math.isfinite(theirs) else 0.0)
        for error, theirs in zip(errors, wanted, strict=True)
    ]
    if not errors:
        return CheckResult(ok=True, max_abs_error=0.0, max_rel_error=0.0, worst=None, message="no elements")
    worst = max(range(len(beyond)), key=lambda number: beyond[number])
    wrong = sum(excess > 0 for excess in beyond)
    index = _index(numbers[worst], expected.shape)
    relative = max(_relative(error, theirs) for error, theirs in zip(errors, wanted, strict=True))
    message = f"rtol={rtol:g}, atol={atol:g}"
    if wrong:
        sampled = "" if expected.indices() is None else "sampled "
        message = (
            f"{wrong} of {len(found)} {sampled}elements differ by more than {message};"
            f" worst at {list(index)}: {found[worst]} and should be {wanted[worst]}"
        )
    return CheckResult(ok=not wrong, max_abs_error=max(errors), max_rel_error=relative, worst=index, message=message)


def _tolerance(actual: DType, expected: ExpectedRecipe, wanted: Sequence[float]) -> tuple[float, float]:
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
        number, place = divmod(number, extent)
        index.insert(0, place)
    return tuple(index)


def _decoded(data: bytes | bytearray | memoryview, element: DType, order: str) -> float:
    if element.name in _FORMS:
        return struct.unpack(order + _FORMS[element.name], data)[0]
    little = order == "<" or struct.pack("=h", 1)[0] == 1
    code = int.from_bytes(data, "little" if little else "big", signed=element.kind is DTypeKind.INT)
    return code if element.kind is not DTypeKind.FLOAT else _small(code, element.name)


def _small(code: int, name: str) -> float:
    """The value of a float of at most 16 bits by its code."""
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

"""Values that the judge draws for arrays: ordinary values, and values at which wrong kernels fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from silo.core.host_arrays import numpy_dtype
from silo.core.values import DType, DTypeKind

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

__all__ = ["VALUES", "draw_integers", "draw_values", "poison"]

VALUES = ("normal", "zeros", "repeated", "integers", "wide", "large", "huge", "denormal", "nan", "infinite")
"""The ways to draw floats. ``large`` values can be multiplied and summed without an overflow; ``huge`` ones cannot."""

# Magnitudes of large, huge and denormal values, which fit the exponent of each dtype.
_LARGE = {"float64": 1e75, "float32": 1e9, "bfloat16": 1e9, "float16": 50.0}
_HUGE = {"float64": 1.7e308, "float32": 3.3e38, "bfloat16": 3.3e38, "float16": 65000.0}
_DENORMAL = {"float64": 1e-310, "float32": 1e-40, "bfloat16": 1e-39, "float16": 1e-6}
_EVERY = 7  # on average, one of this many elements is NaN or infinite


def draw_values(how: str, element: DType, shape: tuple[int, ...], rng: Generator) -> NDArray[Any]:
    """Draws an array of floats; ``how`` is one of :data:`VALUES`."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    normal = rng.standard_normal(shape)
    match how:
        case "normal":
            values = normal
        case "zeros":
            values = np.where(rng.random(shape) < 0.5, 0.0, -0.0)
        case "repeated":
            values = np.full(shape, rng.standard_normal())
        case "integers":
            values = rng.integers(-8, 9, shape).astype(np.float64)
        case "wide":
            values = normal * 10.0 ** rng.uniform(-4, 4, shape)
        case "large" | "huge" | "denormal":
            scale = {"large": _LARGE, "huge": _HUGE, "denormal": _DENORMAL}[how].get(element.name, 4.0)
            values = np.sign(normal) * rng.uniform(0.1, 1.0, shape) * scale
        case "nan" | "infinite":
            special = np.full(shape, np.nan) if how == "nan" else np.sign(normal) * np.inf
            values = np.where(rng.random(shape) < 1 / _EVERY, special, normal)
        case _:
            raise ValueError(f"no values are drawn as {how!r}")
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(values.astype(numpy_dtype(element)))


def draw_integers(low: int, high: int, element: DType, shape: tuple[int, ...], rng: Generator) -> NDArray[Any]:
    """Draws integers from ``low`` to ``high``, both included."""
    return rng.integers(low, high, shape, endpoint=True).astype(numpy_dtype(element))


def poison(element: DType, shape: tuple[int, ...], rng: Generator) -> NDArray[Any]:
    """Returns the content of an output before the launch: NaN for floats, random bytes for other dtypes."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    numpy_type = numpy_dtype(element)
    if element.kind is DTypeKind.FLOAT:
        return np.full(shape, np.nan).astype(numpy_type)
    if element.kind is DTypeKind.BOOL:
        return rng.integers(0, 2, shape).astype(numpy_type)
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(rng.bytes(count * numpy_type.itemsize), numpy_type).reshape(shape).copy()

"""The numpy dtype of each Silo dtype, and rounding of doubles to a dtype.

bfloat16 and the 8-bit floats are numpy dtypes only if ml_dtypes is installed; the rounding here makes their bits
without ml_dtypes.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from silo.core.values import DType, DTypeKind
from silo.errors import CaseError, PackageError
from silo.frozen import frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "SMALL_FLOATS",
    "SmallFloat",
    "has_numpy",
    "numpy_dtype",
    "require_numpy",
    "round_to_bits",
    "strided",
]


def has_numpy() -> bool:
    """Whether numpy is installed. Does not import it."""
    if "numpy" in sys.modules:
        return sys.modules["numpy"] is not None  # pyright: ignore[reportUnnecessaryComparison]  # None: it is blocked
    import importlib.util  # noqa: PLC0415  # rarely asked

    return importlib.util.find_spec("numpy") is not None


def require_numpy(purpose: str) -> None:
    """Raises ``PackageError`` if numpy is not installed; the message names ``purpose``, the feature that needs it."""
    if not has_numpy():
        raise PackageError(f"{purpose} needs numpy, which is not installed: pip install 'kernel-silo[numpy]'")


@frozen
class SmallFloat:
    """A float format in at most 16 bits.

    ``largest``, ``infinity`` and ``nan`` are bit patterns; ``largest`` is the largest finite value.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int
    infinity: int | None  # None if values that are too large become NaN
    nan: int
    has_negative_zero: bool = True

    @property
    def sign(self) -> int:
        """The bit pattern in which only the sign bit is set."""
        return 1 << (self.exponent_bits + self.mantissa_bits)


# By dtype name. float8: OCP OFP8 (fn, e5m2) and the AMD/Graphcore forms (fnuz), as in ml_dtypes.
SMALL_FLOATS = {
    "float16": SmallFloat(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "bfloat16": SmallFloat(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "float8_e5m2": SmallFloat(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e4m3fn": SmallFloat(4, 3, 7, 0x7E, None, 0x7F),
    "float8_e5m2fnuz": SmallFloat(5, 2, 16, 0x7F, None, 0x80, has_negative_zero=False),
    "float8_e4m3fnuz": SmallFloat(4, 3, 8, 0x7F, None, 0x80, has_negative_zero=False),
    "float8_e4m3b11fnuz": SmallFloat(4, 3, 11, 0x7F, None, 0x80, has_negative_zero=False),
}


def numpy_dtype(element: DType) -> np.dtype[Any]:
    """Returns the numpy dtype; raises ``CaseError`` if it needs ml_dtypes and ml_dtypes is not installed."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if element.name != "bfloat16" and not element.name.startswith("float8"):
        return np.dtype(element.name)
    try:
        module = importlib.import_module("ml_dtypes")
    except ImportError:
        raise CaseError(f"numpy arrays of {element} need the package ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(getattr(module, element.name))


def round_to_bits(values: NDArray[np.float64], element: DType) -> NDArray[Any]:
    """Rounds doubles to nearest even in a float dtype and returns the bits as unsigned integers.

    All NaNs get one pattern.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if element.kind is not DTypeKind.FLOAT:
        raise CaseError(f"{element} is not a float dtype")
    if element.bits >= 32:
        wide = np.dtype(f"float{element.bits}")
        with np.errstate(over="ignore", under="ignore"):
            rounded = values.astype(wide)
        rounded[np.isnan(rounded)] = np.nan
        return rounded.view(np.dtype(f"uint{element.bits}"))
    form = SMALL_FLOATS[element.name]
    u64 = np.uint64
    bits = np.ascontiguousarray(values).view(u64)
    exponent = ((bits >> u64(52)) & u64(0x7FF)).astype(np.int64) - 1023
    mantissa = (bits & u64((1 << 52) - 1)) | u64(1 << 52)
    min_exponent = 1 - form.bias
    scale = np.maximum(exponent, min_exponent)
    # A shift by more than 54 leaves zero, and a shift by 64 or more is undefined.
    shift = np.minimum(52 - form.mantissa_bits + (scale - exponent), 54).astype(u64)
    quotient = mantissa >> shift
    fraction = mantissa & ((u64(1) << shift) - u64(1))
    half = u64(1) << (shift - u64(1))
    quotient += ((fraction > half) | ((fraction == half) & ((quotient & u64(1)) == u64(1)))).astype(u64)
    # Adding the quotient, with its implicit leading bit, adds one to the exponent field; so does a carry out of the
    # mantissa.
    code = (np.clip(scale - min_exponent, 0, 1 << 12).astype(u64) << u64(form.mantissa_bits)) + quotient
    too_large = code > u64(form.largest)
    code[too_large] = form.nan if form.infinity is None else form.infinity
    negative = (bits >> u64(63)) == u64(1)
    if not form.has_negative_zero:
        negative &= code != u64(0)
    code[negative] |= u64(form.sign)
    nan = np.isnan(values) | (too_large if form.infinity is None else np.False_)
    code[nan] = np.where(
        negative[nan] & ~np.isnan(values[nan]) & form.has_negative_zero, form.nan | form.sign, form.nan
    )
    return code.astype(np.dtype(f"uint{element.bits}"))


def strided(values: NDArray[Any], strides: tuple[int, ...], gap: NDArray[Any]) -> NDArray[Any]:
    """Returns a copy that lies in memory with these strides (in elements, none negative).

    ``gap`` fills the memory between the elements.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    last = sum((extent - 1) * stride for extent, stride in zip(values.shape, strides, strict=True))
    storage = np.full(1 + last if values.size else 0, gap, dtype=values.dtype)
    steps = [stride * storage.itemsize for stride in strides]
    # as_strided is not used, because it does not support the dtypes of ml_dtypes.
    view: NDArray[Any] = np.ndarray(values.shape, values.dtype, buffer=storage.view(np.uint8), strides=steps)
    view[...] = values
    return view

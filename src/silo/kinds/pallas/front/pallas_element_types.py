"""Silo's dtypes from objects of jax and numpy, recognised by their names, without importing either."""

from __future__ import annotations

from typing import Any

from silo.core.dtypes import DType, dtype
from silo.errors import ArgumentError

__all__ = ["WIDE", "dtype_of", "refuse_wide"]

WIDE = frozenset({"int64", "uint64", "float64"})
"""Dtypes that jax silently narrows to 32 bits, unless a setting of the whole process enables them."""

_MODULES = ("jax", "numpy", "ml_dtypes", "jaxlib")


def dtype_of(value: Any) -> DType | None:  # noqa: ANN401
    """Returns the dtype of a library's object: ``jnp.float32``, ``np.dtype("int8")``, ``ml_dtypes.bfloat16``; or None.

    >>> import numpy as np
    >>> str(dtype_of(np.float32)), str(dtype_of(np.dtype("int8"))), dtype_of(np), dtype_of(np.float32(1))
    ('float32', 'int8', None, None)
    """
    kind = value if isinstance(value, type) else type(value)
    named = kind.__module__.partition(".")[0] in _MODULES or type(kind).__module__.startswith("jax")
    if not named:
        return None
    if isinstance(value, type):
        name = value.__name__
    elif hasattr(value, "itemsize") and hasattr(value, "kind") and isinstance(getattr(value, "name", None), str):
        name = value.name  # a numpy.dtype
    elif (inner := getattr(value, "dtype", None)) is not None and not hasattr(value, "shape"):
        return dtype_of(inner)  # jax.numpy.float32 is an object with a dtype
    else:
        return None
    try:
        return dtype("bool" if name == "bool_" else name)
    except KeyError:
        return None


def refuse_wide(kernel: str, name: str, element: DType) -> None:
    """Raises ArgumentError for a dtype of 64 bits."""
    if element.name in WIDE:
        narrow = element.name.replace("64", "32")
        raise ArgumentError(
            f"{kernel}: {name} is {element}, which jax narrows to {narrow} without a word unless jax_enable_x64 is "
            f"set, and TPUs have no 64-bit vectors: convert it to {narrow}"
        )

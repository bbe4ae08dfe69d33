"""The DSL's numeric types by Silo's dtypes."""

from __future__ import annotations

from typing import Any

from silo.core.dtypes import DTYPES, DType, dtype
from silo.errors import SourceError
from silo.kinds.cute.front.cute_installation import dsl_module

__all__ = ["dsl_type", "dtype_named", "dtype_of"]

_OTHERWISE = {
    "bool": "Boolean",
    "bfloat16": "BFloat16",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e4m3b11fnuz": "Float8E4M3B11FNUZ",
    "float8_e5m2": "Float8E5M2",
}
_WITHOUT = ("float8_e4m3fnuz", "float8_e5m2fnuz")
_NAMES = {
    one.name: _OTHERWISE.get(one.name, one.name.capitalize()) for one in DTYPES if one.name not in _WITHOUT
}  # int32: Int32
_BY_NAME = {name: dtype(own) for own, name in _NAMES.items()}


def dtype_named(name: str) -> DType | None:
    """Returns the dtype of the DSL's type name; None if Silo has no such dtype.

    >>> dtype_named("BFloat16"), dtype_named("Tensor")
    (DType(name='bfloat16', short='bf16', kind=<DTypeKind.FLOAT: 'float'>, bits=16, code=4), None)
    """
    return _BY_NAME.get(name)


def dtype_of(value: object) -> DType | None:
    """Returns the dtype of a numeric type of the DSL; None for any other object."""
    if isinstance(value, type) and value.__module__.partition(".")[0] == "cutlass":
        return dtype_named(value.__name__)
    return None


def dsl_type(element: DType) -> Any:  # noqa: ANN401  # a class of the DSL
    """Returns ``cutlass.Float32`` for float32. Raises SourceError if the DSL lacks the type."""
    if element.name not in _NAMES:
        raise SourceError(f"the CuTe DSL has no type for {element}")
    return getattr(dsl_module("cutlass"), _NAMES[element.name])

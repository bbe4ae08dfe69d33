"""Data types: a name each, with the short spelling of signatures and the DLPack code (1.x, ``DLDataTypeCode``)."""

from __future__ import annotations

from enum import Enum

from silo.errors import CaseError
from silo.frozen import frozen

__all__ = ["DTYPES", "DType", "DTypeKind", "dtype", "dtype_named", "from_dlpack"]


class DTypeKind(Enum):
    """The meaning of the bits."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"


@frozen
class DType:
    """One element type.

    ``name`` is the array libraries' name (``float32``), ``short`` the name in kernels' signatures (``fp32``), ``bits``
    the width in memory, ``code`` the DLPack type code.

    >>> dtype("fp32") is dtype("float32")
    True
    >>> dtype("bfloat16").bits
    16
    """

    name: str
    short: str
    kind: DTypeKind
    bits: int
    code: int

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


# DLPack codes: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 e4m3fn, 11 e4m3fnuz, 12 e5m2, 13 e5m2fnuz, 9 e4m3b11fnuz.
DTYPES: tuple[DType, ...] = (
    DType("bool", "i1", DTypeKind.BOOL, 8, 6),
    DType("int8", "i8", DTypeKind.INT, 8, 0),
    DType("int16", "i16", DTypeKind.INT, 16, 0),
    DType("int32", "i32", DTypeKind.INT, 32, 0),
    DType("int64", "i64", DTypeKind.INT, 64, 0),
    DType("uint8", "u8", DTypeKind.UINT, 8, 1),
    DType("uint16", "u16", DTypeKind.UINT, 16, 1),
    DType("uint32", "u32", DTypeKind.UINT, 32, 1),
    DType("uint64", "u64", DTypeKind.UINT, 64, 1),
    DType("float16", "fp16", DTypeKind.FLOAT, 16, 2),
    DType("bfloat16", "bf16", DTypeKind.FLOAT, 16, 4),
    DType("float32", "fp32", DTypeKind.FLOAT, 32, 2),
    DType("float64", "fp64", DTypeKind.FLOAT, 64, 2),
    DType("float8_e4m3fn", "fp8e4nv", DTypeKind.FLOAT, 8, 10),
    DType("float8_e4m3fnuz", "fp8e4b8", DTypeKind.FLOAT, 8, 11),
    DType("float8_e4m3b11fnuz", "fp8e4b11", DTypeKind.FLOAT, 8, 9),
    DType("float8_e5m2", "fp8e5", DTypeKind.FLOAT, 8, 12),
    DType("float8_e5m2fnuz", "fp8e5b16", DTypeKind.FLOAT, 8, 13),
)

_BY_NAME = {key: value for value in DTYPES for key in (value.name, value.short)}
_BY_NAME["u1"] = _BY_NAME["bool"]
_BY_DLPACK = {(value.code, value.bits): value for value in DTYPES}


def dtype(name: str) -> DType:
    """The dtype called ``name`` (long or short); ``KeyError`` lists the known names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        names = ", ".join(value.name for value in DTYPES)
        raise KeyError(f"unknown dtype {name!r}; known: {names}") from None


def dtype_named(value: object) -> DType:
    """The dtype of a name, a :class:`DType`, or a dtype of numpy, torch or Triton; ``CaseError`` otherwise.

    >>> dtype_named("torch.bfloat16").name
    'bfloat16'
    """
    if isinstance(value, DType):
        return value
    name = value if isinstance(value, str) else getattr(value, "name", None) or getattr(value, "__name__", None)
    name = (name if isinstance(name, str) else str(value)).removeprefix("torch.")
    try:
        return dtype(name)
    except KeyError as error:
        raise CaseError(str(error.args[0])) from None


def from_dlpack(code: int, bits: int) -> DType | None:
    """The dtype with this DLPack code and width in bits, or None."""
    return _BY_DLPACK.get((code, bits))

"""``silo.Buffer``: arrays for programs that load no array library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from silo.core.dtypes import DType
from silo.core.host_arrays import dtype_named, numpy_dtype
from silo.errors import ArgumentError
from silo.launch.native import HostBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Buffer"]


class Buffer(HostBuffer):
    """An array in host memory: zeroed, row-major, aligned to 64 bytes.

    Kernels take it, and so does everything that reads DLPack or (except bfloat16 and 8-bit floats, for which it has no
    format) the buffer protocol; ``raw`` is its bytes.

    >>> buffer = Buffer((2, 3), "float32")
    >>> buffer.shape, buffer.strides, buffer.nbytes
    ((2, 3), (3, 1), 24)
    """

    __slots__ = ()

    def __new__(cls, shape: int | Sequence[int], dtype: str | DType = "float32") -> Self:
        """Args: ``shape``, one extent or several; ``dtype``, a name or a :class:`DType`. Raises ArgumentError."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        return super().__new__(cls, extents, str(dtype_named(dtype)))

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, dtype: str | DType, shape: Sequence[int] | None = None) -> Buffer:
        """A buffer that holds a copy of ``data``, which must have the size of the shape.

        Raises:
            ArgumentError: it has not.
        """
        element, view = dtype_named(dtype), memoryview(data).cast("B")
        extents = (view.nbytes // element.itemsize,) if shape is None else tuple(shape)
        buffer = cls(extents, element)
        if buffer.nbytes != view.nbytes:
            raise ArgumentError(
                f"a Buffer of shape {extents} and {element} has {buffer.nbytes} bytes, not {view.nbytes}"
            )
        buffer.raw[:] = view
        return buffer

    def numpy(self) -> NDArray[Any]:
        """The same memory as a numpy array (ml_dtypes for bfloat16 and 8-bit floats); needs numpy."""
        import numpy as np  # noqa: PLC0415  # numpy is optional

        flat = np.frombuffer(self.raw, dtype=np.uint8)
        return cast("NDArray[Any]", flat.view(numpy_dtype(dtype_named(self.dtype))).reshape(self.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401, FBT001  # numpy's protocol
        import numpy as np  # noqa: PLC0415  # numpy is calling

        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a Buffer without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Buffer({list(self.shape)}, {self.dtype})"

"""The addresses, shapes and strides of arrays of any library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from silo.core.dtypes import DType, from_dlpack
from silo.core.host_arrays import numpy_dtype
from silo.errors import ArgumentError
from silo.frozen import frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ALIGNMENT", "ArrayExtent", "extent_of"]

# Copies keep the address modulo this many bytes: kernels are specialised on it, and vector loads may need it.
ALIGNMENT = 16


@frozen
class ArrayExtent:
    """The place of an array in memory.

    ``strides`` are in elements; ``low`` and ``high`` are the bytes before and from its first element that its elements
    reach (``low`` is not 0 only with negative strides).
    """

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int

    @property
    def start(self) -> int:
        """The lowest address of its bytes."""
        return self.address - self.low

    @property
    def size(self) -> int:
        """Bytes from the lowest to the highest one."""
        return self.low + self.high

    def view(self, memory: memoryview) -> NDArray[Any]:
        """The array over other ``memory`` of :attr:`size` bytes, as unsigned integers of its element's width."""
        import numpy as np  # noqa: PLC0415  # numpy is optional

        kind = np.dtype(f"uint{self.dtype.bits}")
        steps = [stride * kind.itemsize for stride in self.strides]
        return np.ndarray(self.shape, kind, buffer=memory, offset=self.low, strides=steps)

    def typed(self, bits: NDArray[Any]) -> NDArray[Any]:
        """An array of :meth:`view` with its own dtype (ml_dtypes for bfloat16 and 8-bit floats)."""
        return bits.view(numpy_dtype(self.dtype))


def extent_of(array: object) -> ArrayExtent:
    """An array as the driver sees it.

    Raises:
        ArgumentError: a dtype that no kernel knows.
    """
    from silo.launch import native  # noqa: PLC0415  # a bundle's listing needs no native module

    address, code, width, _, _, shape, strides = native.read(array)
    element = from_dlpack(code, width)
    if element is None:
        raise ArgumentError(f"an array of DLPack type {code} with {width} bits has a dtype that no kernel knows")
    if not all(shape):
        return ArrayExtent(address, element, shape, strides, 0, 0)
    reach = [(extent - 1) * stride * element.itemsize for extent, stride in zip(shape, strides, strict=True)]
    low = -sum(step for step in reach if step < 0)
    high = sum(step for step in reach if step > 0) + element.itemsize
    return ArrayExtent(address, element, shape, strides, low, high)

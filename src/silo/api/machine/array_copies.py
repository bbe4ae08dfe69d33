"""Copies of a caller's arrays, of any library and in any memory, for comparing and duplicating."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from silo.core.dtypes import DType, from_dlpack
from silo.core.host_arrays import numpy_dtype
from silo.errors import ArgumentError
from silo.launch.buffers import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Extent",
    "array_behind",
    "duplicate",
    "extent_of",
    "host_bits",
    "host_bytes",
    "is_array",
    "is_device_memory",
    "library_of",
    "to_host",
]

# Copies keep the address modulo this many bytes: what kernels are specialised on, and what vector loads may need.
_ALIGNMENT = 16


def is_array(value: object) -> bool:
    """Whether a value is an array of some library: it has extents and elements."""
    return hasattr(value, "shape") and any(
        hasattr(value, name) for name in ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
    )


def array_behind(value: Any) -> Any:  # noqa: ANN401  # any library's array
    """The array that a kernel reads or writes through an argument: itself, a tensor descriptor's base, or None."""
    if is_array(value):
        return value
    from silo.launch.descriptors import is_descriptor  # noqa: PLC0415  # a bundle's listing needs no native module

    return value.base if is_descriptor(value) and is_array(value.base) else None


@dataclass(frozen=True, slots=True)
class Extent:
    """Where an array lies.

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


def extent_of(array: object) -> Extent:
    """What an array is to the driver.

    Raises:
        ArgumentError: a dtype that no kernel knows.
    """
    from silo.launch import native  # noqa: PLC0415  # a bundle's listing needs no native module

    address, code, width, _, _, shape, strides = native.read(array)
    element = from_dlpack(code, width)
    if element is None:
        raise ArgumentError(f"an array of DLPack type {code} with {width} bits has a dtype that no kernel knows")
    if not all(shape):
        return Extent(address, element, shape, strides, 0, 0)
    reach = [(extent - 1) * stride * element.itemsize for extent, stride in zip(shape, strides, strict=True)]
    low = -sum(step for step in reach if step < 0)
    high = sum(step for step in reach if step > 0) + element.itemsize
    return Extent(address, element, shape, strides, low, high)


def library_of(value: object) -> str:
    """The package that an array is of."""
    return type(value).__module__.partition(".")[0]


def _torch_bits(tensor: Any) -> Any:  # noqa: ANN401  # a tensor
    import torch  # noqa: PLC0415  # the array is torch's, so it is loaded

    plain = tensor.detach()
    return plain if plain.dtype is torch.bool else plain.view(_torch_integers(torch)[plain.element_size()])


def _torch_integers(torch: Any) -> dict[int, Any]:  # noqa: ANN401
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def host_bits(array: Any) -> NDArray[Any]:  # noqa: ANN401  # any library's array
    """A numpy array of its elements' bits, as integers of their width; a view where the memory is on the host.

    Needs no ml_dtypes. Arrays on a device are copied when what was enqueued before is done.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if library_of(array) == "torch":
        host = cast("NDArray[Any]", _torch_bits(array).cpu().numpy())
    elif isinstance(array, Buffer):
        extent = extent_of(array)
        return extent.view(host_bytes(array))
    else:
        host = to_host(array)
    return host.view(np.dtype(f"uint{8 * host.dtype.itemsize}"))


def host_bytes(buffer: Buffer) -> memoryview:
    """The bytes of a buffer: its own memory on the host, a copy of a device's."""
    return buffer.raw if buffer.device == "cpu" else memoryview(_copied(buffer))


def _copied(buffer: Buffer) -> bytearray:
    out = bytearray(buffer.nbytes)
    buffer.copy_to(out)
    return out


def to_host(array: Any) -> NDArray[Any]:  # noqa: ANN401  # any library's array
    """A numpy array of the same elements; a view where the memory is on the host, else a copy.

    bfloat16 and the 8-bit floats come as ml_dtypes' types.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if isinstance(array, np.ndarray):
        return cast("NDArray[Any]", array)
    library = library_of(array)
    if library == "torch":
        bits = host_bits(array)
        return bits.view(numpy_dtype(extent_of(array).dtype))
    if isinstance(array, Buffer):
        return array.numpy()
    if library == "cupy":
        return cast("NDArray[Any]", array.get())
    if hasattr(array, "copy_to_host"):  # numba's arrays on a device
        return cast("NDArray[Any]", array.copy_to_host())
    if hasattr(array, "__array__") or hasattr(array, "__array_interface__"):
        return np.asarray(array)
    return cast("NDArray[Any]", np.from_dlpack(array))


def duplicate(array: Any) -> Any:  # noqa: ANN401
    """A copy of the same library, device, dtype, shape, strides and alignment (address modulo 16).

    Elements between those of a slice with gaps are not copied.

    Raises:
        ArgumentError: elements lie on one another (a broadcast), or a library whose arrays cannot be copied so.
    """
    extent = extent_of(array)
    if any(stride == 0 and size > 1 for size, stride in zip(extent.shape, extent.strides, strict=True)):
        raise ArgumentError("an array with repeats in memory cannot be copied with its layout")
    library = library_of(array)
    if library == "torch":
        return _torch_duplicate(array, extent)
    if isinstance(array, Buffer):
        return Buffer.of(_copied(array), array.dtype, array.shape, array.device)
    if library == "cupy":
        copy = array.copy(order="K")
        if copy.strides != array.strides or (copy.data.ptr - array.data.ptr) % _ALIGNMENT:
            raise ArgumentError("a cupy array with gaps or an odd address cannot be copied with its layout")
        return copy
    if is_device_memory(array):
        raise ArgumentError(f"arrays of {type(array).__module__} on a device cannot be copied; torch's and cupy's can")
    return _host_duplicate(to_host(array), extent)


def is_device_memory(array: Any) -> bool:  # noqa: ANN401
    """Whether an array says that it is in no memory of the host's."""
    if hasattr(array, "__dlpack_device__"):
        return array.__dlpack_device__()[0] != 1
    return hasattr(array, "__cuda_array_interface__")


def _torch_duplicate(tensor: Any, extent: Extent) -> Any:  # noqa: ANN401
    import torch as library  # noqa: PLC0415  # the array is torch's, so it is loaded

    torch: Any = library  # its stubs are partial
    width = extent.dtype.itemsize
    spare = _ALIGNMENT // width if width < _ALIGNMENT else 0
    storage = torch.zeros(extent.size // width + spare, dtype=tensor.dtype, device=tensor.device)
    # Storages are aligned to more than 16 bytes, and tensors to their element.
    first = (tensor.data_ptr() - storage.data_ptr()) % _ALIGNMENT // width
    copy = storage.as_strided(tuple(tensor.shape), tuple(tensor.stride()), first)
    copy.copy_(tensor.detach())
    return copy


def _host_duplicate(host: NDArray[Any], extent: Extent) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    storage = np.zeros(extent.size + _ALIGNMENT, dtype=np.uint8)
    first = (extent.start - storage.ctypes.data) % _ALIGNMENT
    steps = [stride * host.itemsize for stride in extent.strides]
    copy: NDArray[Any] = np.ndarray(host.shape, host.dtype, storage.data, first + extent.low, steps)
    copy[...] = host
    return copy

"""``silo.Buffer``: arrays in host or device memory for programs that load no array library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from silo.core.plugins import driver_kinds
from silo.core.values import DType, dtype_named
from silo.errors import ArgumentError
from silo.launch import native
from silo.launch.native import has_driver, open_driver

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Buffer", "BytesLike", "split_device"]

BytesLike: TypeAlias = bytes | bytearray | memoryview


def split_device(device: str) -> tuple[str, int]:
    """Splits the name of a device into kind and index.

    Raises:
        ArgumentError: the name has another form, or the kind of device has no buffers.

    >>> split_device("cuda:1"), split_device("cpu")
    (('cuda', 1), ('cpu', 0))
    """
    kind, _, index_text = device.partition(":")
    if not (kind == "cpu" or has_driver(kind)) or not (index_text.isdecimal() or index_text == ""):
        kinds = ", ".join(filter(has_driver, driver_kinds()))
        raise ArgumentError(f"a Buffer lies on cpu, {kinds} or one of several as cuda:1, not on {device!r}")
    return kind, int(index_text or 0)


class Buffer:
    """An array in host or device memory: zeroed, row-major, aligned to 64 bytes (256 on a device).

    Kernels accept a buffer, and so do all readers of DLPack or ``__cuda_array_interface__``. In host memory, ``raw``
    gives access to the bytes, and the object has the buffer protocol (except for bfloat16 and 8-bit floats, which that
    protocol cannot describe). Device memory is allocated by the driver; it is freed once the last reference is gone and
    all work that uses it is done.

    >>> buffer = Buffer((2, 3), "float32")
    >>> buffer.shape, buffer.strides, buffer.nbytes, buffer.device
    ((2, 3), (3, 1), 24, 'cpu')
    """

    __slots__ = ()

    def __new__(cls, shape: int | Sequence[int], dtype: str | DType = "float32", device: str = "cpu") -> Buffer:  # noqa: PYI034  # one of two
        """Allocates zeroed memory.

        Args:
            shape: one extent or several.
            dtype: a name or a :class:`DType`.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``hip``.

        Raises:
            ArgumentError: an unknown dtype or kind of device, or an invalid shape.
            DeviceError: the device is missing, or its memory is exhausted.
        """
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        element = str(dtype_named(dtype))
        kind, index = split_device(device)
        if kind == "cpu":
            return _HostArray(extents, element)
        open_driver(kind)
        return _DeviceArray(extents, element, kind, index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each axis."""
        raise NotImplementedError

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance, in elements, between neighbours along each axis."""
        raise NotImplementedError

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """The size of the buffer in bytes."""
        raise NotImplementedError

    @property
    def raw(self) -> memoryview:
        """The bytes of a buffer in host memory, readable and writable.

        A buffer on a device raises ``AttributeError``.
        """
        raise AttributeError(f"a Buffer on {self.device} has no bytes here: numpy() and copy_to() copy them")

    @classmethod
    def of(cls, data: BytesLike, dtype: str | DType, shape: Sequence[int] | None = None, device: str = "cpu") -> Buffer:
        """Makes a buffer that holds a copy of ``data``. Without ``shape`` it is one-dimensional.

        Raises:
            ArgumentError: ``data`` does not have the size of the shape.
        """
        element, view = dtype_named(dtype), memoryview(data).cast("B")
        extents = (view.nbytes // element.itemsize,) if shape is None else tuple(shape)
        size = math.prod(extents) * element.itemsize
        if size != view.nbytes:
            raise ArgumentError(f"a Buffer of shape {extents} and {element} has {size} bytes, not {view.nbytes}")
        buffer = cls(extents, element, device)
        buffer.copy_from(view)
        return buffer

    @property
    def device(self) -> str:
        """The name of the buffer's device, such as ``cpu`` or ``cuda:0``."""
        raise NotImplementedError

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        raise NotImplementedError

    def copy_from(self, data: BytesLike | Buffer, stream: int = 0, at: int = -1) -> None:
        """Copies the bytes of ``data`` to the whole buffer, which must have the same size.

        On a device the copy runs after earlier work in ``stream``.

        With ``at``, the bytes are copied to the part of the buffer that begins at byte ``at``. Raises ``ArgumentError``
        if ``data`` is longer than the rest of the buffer.
        """
        raise NotImplementedError

    def copy_to(self, out: BytesLike, stream: int = 0, at: int = -1) -> None:
        """Copies the whole buffer to ``out``, which must have the same size.

        From a device the copy runs after earlier work in ``stream``.

        With ``at``, ``out`` is filled with the bytes from byte ``at`` of the buffer on. Raises ``ArgumentError`` if the
        buffer ends before ``out`` is full.
        """
        raise NotImplementedError

    def fill(self, byte: int, stream: int = 0) -> None:
        """Sets every byte of the buffer to ``byte``. On a device this happens after earlier work in ``stream``."""
        raise NotImplementedError

    def numpy(self) -> NDArray[Any]:
        """Returns a numpy array: a view of host memory, a copy of device memory.

        Types that numpy lacks come from ml_dtypes.
        """
        from silo.core.host_arrays import numpy_dtype, require_numpy  # noqa: PLC0415  # launches need neither

        require_numpy("a numpy array of a silo.Buffer")
        import numpy as np  # noqa: PLC0415  # numpy is optional

        flat = np.frombuffer(self._host_bytes(), dtype=np.uint8)
        return cast("NDArray[Any]", flat.view(numpy_dtype(dtype_named(self.dtype))).reshape(self.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401, FBT001  # numpy's protocol
        import numpy as np  # noqa: PLC0415  # numpy is calling

        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def _host_bytes(self) -> BytesLike:
        raise NotImplementedError

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a Buffer without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        where = "" if self.device == "cpu" else f", {self.device}"
        return f"Buffer({list(self.shape)}, {self.dtype}{where})"


def _recorded() -> ModuleType:
    from silo.launch import plan_copies  # noqa: PLC0415  # only while a plan is recorded

    return plan_copies


def _refuse_recording(label: str) -> None:
    if native.recording() is not None:
        raise ArgumentError(
            f"a plan does not record {label}() of a Buffer: it records copy_from another Buffer and fill; end the plan"
            " before it"
        )


# The native type is the first base, so its members and its constructor override the members of Buffer.
class _HostArray(native.HostBuffer, Buffer):  # pyright: ignore[reportIncompatibleMethodOverride]  # the stubs say more
    __slots__ = ()

    __repr__ = Buffer.__repr__

    @property
    def device(self) -> str:
        return "cpu"

    def copy_from(self, data: BytesLike | Buffer, stream: int = 0, at: int = -1) -> None:
        if native.recording() is not None:
            _recorded().copy(self, data, stream, at)
        elif isinstance(data, Buffer):
            data.copy_to(self._part(at, data.nbytes), stream)
        else:
            view = memoryview(data).cast("B")
            self._part(at, view.nbytes)[:] = view

    def copy_to(self, out: BytesLike, stream: int = 0, at: int = -1) -> None:
        del stream
        _refuse_recording("copy_to")
        view = memoryview(out).cast("B")
        view[:] = self._part(at, view.nbytes)

    def _part(self, at: int, size: int) -> memoryview:
        """Returns ``size`` bytes from byte ``at`` on.

        If ``at`` is -1, returns the whole buffer, which must have ``size`` bytes.
        """
        if at == -1:
            if size != self.nbytes:
                raise ArgumentError(f"a Buffer of {self.nbytes} bytes is copied from and to as many, not {size}")
            return self.raw
        if not 0 <= at <= self.nbytes - size:
            raise ArgumentError(f"a Buffer of {self.nbytes} bytes has no part of {size} bytes at byte {at}")
        return self.raw[at : at + size]

    def fill(self, byte: int, stream: int = 0) -> None:
        if native.recording() is not None:
            _recorded().fill(self, byte, stream)
        else:
            self.raw[:] = bytes([byte]) * self.nbytes

    def _host_bytes(self) -> BytesLike:
        return self.raw


class _DeviceArray(native.GpuBuffer, Buffer):  # pyright: ignore[reportIncompatibleMethodOverride]
    __slots__ = ()

    __repr__ = Buffer.__repr__

    @property
    def device(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  # the pair behind it is native
        kind, index = super().device
        return f"{kind}:{index}"

    def data_ptr(self) -> int:
        return self.address

    def copy_from(self, data: object, stream: int = 0, at: int = -1) -> None:
        if native.recording() is not None:
            _recorded().copy(self, data, stream, at)
        else:
            super().copy_from(data.raw if isinstance(data, _HostArray) else data, stream, at)

    def copy_to(self, out: object, stream: int = 0, at: int = -1) -> None:
        _refuse_recording("copy_to")
        super().copy_to(out, stream, at)

    def fill(self, byte: int, stream: int = 0) -> None:
        if native.recording() is not None:
            _recorded().fill(self, byte, stream)
        else:
            super().fill(byte, stream)

    def _host_bytes(self) -> BytesLike:
        out = bytearray(self.nbytes)
        self.copy_to(out)
        return out

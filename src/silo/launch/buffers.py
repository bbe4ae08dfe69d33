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
    """Kind and index of a device's name.

    Raises:
        ArgumentError: it has another form, or its kind lacks buffers.

    >>> split_device("cuda:1"), split_device("cpu")
    (('cuda', 1), ('cpu', 0))
    """
    kind, _, rest = device.partition(":")
    if not (kind == "cpu" or has_driver(kind)) or not (rest.isdecimal() or rest == ""):
        kinds = ", ".join(filter(has_driver, driver_kinds()))
        raise ArgumentError(f"a Buffer lies on cpu, {kinds} or one of several as cuda:1, not on {device!r}")
    return kind, int(rest or 0)


class Buffer:
    """An array in host or device memory: zeroed, row-major, aligned to 64 bytes (256 on a device).

    Kernels take it, and so do all readers of DLPack or ``__cuda_array_interface__``. In host memory ``raw`` is its
    bytes and it has the buffer protocol (except bfloat16 and 8-bit floats, which the protocol cannot describe). Memory
    of a device comes from its driver and is freed, after all work on it, with the last reference.

    >>> buffer = Buffer((2, 3), "float32")
    >>> buffer.shape, buffer.strides, buffer.nbytes, buffer.device
    ((2, 3), (3, 1), 24, 'cpu')
    """

    __slots__ = ()

    def __new__(cls, shape: int | Sequence[int], dtype: str | DType = "float32", device: str = "cpu") -> Buffer:  # noqa: PYI034  # one of two
        """Zeroed memory.

        Args:
            shape: one extent or several.
            dtype: a name or a :class:`DType`.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``hip``.

        Raises:
            ArgumentError: no such dtype, shape or kind of device.
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
        """Extents."""
        raise NotImplementedError

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one to the next along each axis."""
        raise NotImplementedError

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        raise NotImplementedError

    @property
    def raw(self) -> memoryview:
        """Its bytes, to read and write; of buffers in host memory only."""
        raise AttributeError(f"a Buffer on {self.device} has no bytes here: numpy() and copy_to() copy them")

    @classmethod
    def of(cls, data: BytesLike, dtype: str | DType, shape: Sequence[int] | None = None, device: str = "cpu") -> Buffer:
        """A buffer that holds a copy of ``data``, which must have the size of the shape.

        Raises:
            ArgumentError: it has not.
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
        """Its device, as ``cpu`` or ``cuda:0``."""
        raise NotImplementedError

    def data_ptr(self) -> int:
        """The address of its first element."""
        raise NotImplementedError

    def copy_from(self, data: BytesLike | Buffer, stream: int = 0, at: int = -1) -> None:
        """Copy the bytes of ``data``, which has the same size; on a device after earlier work in ``stream``.

        With ``at`` they become the part of the buffer that begins at that byte. ``ArgumentError`` if they do not fit.
        """
        raise NotImplementedError

    def copy_to(self, out: BytesLike, stream: int = 0, at: int = -1) -> None:
        """Write the bytes to ``out``, which has the same size; from a device after earlier work in ``stream``.

        With ``at`` they are a part of the buffer, which begins at that byte. ``ArgumentError`` if there are fewer.
        """
        raise NotImplementedError

    def fill(self, byte: int, stream: int = 0) -> None:
        """Set every byte; on a device after earlier work in ``stream``."""
        raise NotImplementedError

    def numpy(self) -> NDArray[Any]:
        """A numpy array (with ml_dtypes if numpy lacks the type): the same memory on the host, a device's copied."""
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


def _refuse_recording(what: str) -> None:
    if native.recording() is not None:
        raise ArgumentError(
            f"a plan does not record {what}() of a Buffer: it records copy_from another Buffer and fill; end the plan"
            " before it"
        )


# Each has the native type first, whose members and constructor are the object's own; Buffer adds the rest.
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
        """The bytes from ``at`` on, or all; their number must be ``size``."""
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

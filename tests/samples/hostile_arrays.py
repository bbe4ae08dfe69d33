"""Arrays that describe themselves wrongly, by every protocol."""

from __future__ import annotations

import ctypes
from typing import Any

from dlpack_structs import DLManagedTensor, DLTensor, new_capsule

CPU = 1
FLOAT32 = (2, 32, 1)
INT32_MIN = -(1 << 31)


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


_READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(DLTensor))


class Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", _READ),
        ("current_stream", ctypes.c_void_p),
    )


# Impossible descriptions of an array, each with a part of the error.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"ndim": INT32_MIN}, "-2147483648 dimensions"),
    ({"ndim": -1}, "-1 dimensions"),
    ({"ndim": 33}, "33 dimensions"),
    ({"ndim": (1 << 31) - 1}, "2147483647 dimensions"),
    ({"ndim": 2, "shape": None}, "2 dimensions and no shape"),
    ({"shape": (4, -1)}, "extent 1 is -1, which is negative"),
    ({"shape": (-(1 << 63),)}, "extent 0 is -9223372036854775808"),
    ({"shape": (1 << 40, 1 << 40)}, "beyond any memory"),
    ({"shape": (1 << 62,)}, "beyond any memory"),
    ({"shape": (4, 4), "strides": (1 << 62, 1)}, "beyond any memory"),
    ({"shape": (4, 4), "strides": (1, -(1 << 62))}, "beyond any memory"),
    ({"shape": (4,), "strides": (-(1 << 63),)}, "beyond any memory"),
    ({"byte_offset": (1 << 64) - 8}, "byte offset 18446744073709551608"),
]
# Unusual descriptions that are possible.
RIGHT: list[dict[str, Any]] = [
    {"ndim": 0, "shape": None},
    {"shape": (1 << 40, 0, 1 << 40)},
    {"shape": (1 << 40, 1), "strides": (0, 1 << 62)},
    {"shape": (4, 4), "strides": (-1, 0)},
    {"byte_offset": 16},
]


def memory(count: int, **said: Any) -> tuple[DLTensor, list[Any]]:
    """Return a DLPack tensor of ``count`` float32 described by ``said``, and the objects that hold its memory."""
    cells = (ctypes.c_float * count)()
    shape, strides = said.get("shape", (count,)), said.get("strides")
    extents = (ctypes.c_int64 * max(len(shape or ()), 1))(*(shape or ()))
    steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
    tensor = DLTensor(
        ctypes.addressof(cells),
        said.get("device", CPU),
        0,
        said.get("ndim", len(shape or ())),
        *FLOAT32,
        None if shape is None else ctypes.addressof(extents),
        None if steps is None else ctypes.addressof(steps),
        said.get("byte_offset", 0),
    )
    return tensor, [cells, extents, steps]


class Capsule:
    """An array that is read by a DLPack capsule, of the old form or (with ``major``) of the versioned one."""

    def __init__(self, *, major: int = 0, **said: Any) -> None:
        tensor, self._kept = memory(16, **said)
        self._device = tensor.device_type
        self._made = Versioned(major, 0, None, None, 0, tensor) if major else DLManagedTensor(tensor, None, None)
        self._name = b"dltensor_versioned" if major else b"dltensor"

    def __dlpack__(self, **_: object) -> object:
        return new_capsule(ctypes.addressof(self._made), self._name, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0


def exchanged(**said: Any) -> object:
    """Return an array that is read by the DLPack C exchange API of its type."""
    tensor, kept = memory(16, **said)

    def read(_: int, out: Any) -> int:
        ctypes.memmove(out, ctypes.addressof(tensor), ctypes.sizeof(tensor))
        return 0

    api = Exchange(1, 3, None, None, None, None, _READ(read), None)
    capsule = new_capsule(ctypes.addressof(api), b"dlpack_exchange_api", None)
    return type("Exchanged", (), {"__dlpack_c_exchange_api__": capsule, "kept": (api, tensor, kept)})()


class CudaDict:
    """An array that is read by its ``__cuda_array_interface__``."""

    __cuda_array_interface__ = None  # the attribute must also exist on the type

    def __init__(self, **said: Any) -> None:
        self.__cuda_array_interface__ = {"data": (4096, False), "typestr": "<f4", "version": 3, **said}


class Duck:
    """An array with only an address, a dtype and a shape."""

    def __init__(self, address: int = 4096, shape: tuple[int, ...] = (4,), dtype: object = "float32") -> None:
        self.address, self.shape, self.dtype = address, shape, dtype
        self.device = "cpu"

    def data_ptr(self) -> int:
        return self.address

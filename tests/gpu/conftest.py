"""A minimal NVIDIA driver binding in plain ctypes, so that these tests prove artifacts and not a framework."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo
from silo.settings import override

_FORMATS = {
    AbiType.POINTER: "<Q",
    AbiType.SCRATCH: "<Q",
    AbiType.PROFILE: "<Q",
    AbiType.I1: "<i",
    AbiType.I8: "<b",
    AbiType.I16: "<h",
    AbiType.I32: "<i",
    AbiType.I64: "<q",
    AbiType.U8: "<B",
    AbiType.U16: "<H",
    AbiType.U32: "<I",
    AbiType.U64: "<Q",
    AbiType.FP16: "<e",
    AbiType.FP32: "<f",
    AbiType.FP64: "<d",
}

_MAX_DYNAMIC_SHARED = 8
_ATTRIBUTE_COOPERATIVE = 2
_ATTRIBUTE_CLUSTER = 4
_ATTRIBUTE_PROGRAMMATIC = 6


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def pack(kind: AbiType, value) -> bytes:
    """One parameter as the binary reads it, in exactly the bytes that its ABI type has."""
    if kind is AbiType.BF16:
        return struct.pack("<f", value)[2:]  # exact for the values used here
    return struct.pack(_FORMATS[kind], value)


class DriverError(Exception):
    pass


@dataclass
class Kernel:
    handle: ctypes.c_void_p
    launch: LaunchInfo


class Cuda:
    """One device and its primary context. Memory is freed with the context, at the end of the process."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        count = ctypes.c_int()
        self.check("cuDeviceGetCount", ctypes.byref(count))
        if count.value < 1:
            raise DriverError("the driver sees no device")
        self.device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(self.device), 0)
        context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.check("cuCtxSetCurrent", context)
        self.capability = 10 * self.attribute(75) + self.attribute(76)

    @property
    def target(self) -> Target:
        return Target("cuda", f"sm_{self.capability}")

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.check("cuDeviceGetAttribute", ctypes.byref(value), number, self.device)
        return value.value

    def check(self, name: str, *arguments) -> None:
        code = getattr(self.lib, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(code, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'?').decode()} ({code})")

    def alloc(self, size: int) -> int:
        pointer = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 16)))
        return pointer.value

    def upload(self, data: bytes) -> int:
        pointer = self.alloc(len(data))
        self.check("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), data, ctypes.c_size_t(len(data)))
        return pointer

    def download(self, pointer: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.check("cuMemcpyDtoH_v2", data, ctypes.c_uint64(pointer), ctypes.c_size_t(size))
        return data.raw

    def load(self, blob: bytes, launch: LaunchInfo) -> Kernel:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("cuModuleLoadData", ctypes.byref(module), blob)
        self.check("cuModuleGetFunction", ctypes.byref(function), module, launch.entry.encode())
        if launch.shared_bytes > 48 * 1024:
            self.check("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, launch.shared_bytes)
        return Kernel(function, launch)

    def function_attribute(self, kernel: Kernel, number: int) -> int:
        value = ctypes.c_int()
        self.check("cuFuncGetAttribute", ctypes.byref(value), number, kernel.handle)
        return value.value

    def run(self, kernel: Kernel, grid: tuple[int, int, int], **arguments) -> None:
        """Launch with the parameters that the layout lists, in its order and of its types, and wait."""
        launch = kernel.launch
        programs = grid[0] * grid[1] * grid[2]
        assert launch.profile_bytes == 0
        scratch = 0
        if launch.scratch_bytes:
            room = self.alloc(programs * launch.scratch_bytes + launch.scratch_align)
            scratch = -(-room // launch.scratch_align) * launch.scratch_align
        values = {**arguments, AbiType.SCRATCH: scratch, AbiType.PROFILE: 0}
        packed = [pack(slot.type, values[slot.name or slot.type]) for slot in launch.layout]
        buffers = [ctypes.create_string_buffer(data, len(data)) for data in packed]
        parameters = (ctypes.c_void_p * len(buffers))(*[ctypes.addressof(buffer) for buffer in buffers])
        attributes = self._attributes(launch)
        config = _Config(
            (ctypes.c_uint * 3)(grid[0] * launch.cluster[0], *grid[1:]),
            (ctypes.c_uint * 3)(*launch.block),
            launch.shared_bytes,
            None,
            (_Attribute * max(1, len(attributes)))(*attributes),
            len(attributes),
        )
        self.check("cuLaunchKernelEx", ctypes.byref(config), kernel.handle, parameters, None)
        self.check("cuCtxSynchronize")

    def _attributes(self, launch: LaunchInfo) -> list[_Attribute]:
        made = []
        if launch.cluster != (1, 1, 1):
            made.append(_Attribute(_ATTRIBUTE_CLUSTER, 0, (ctypes.c_uint * 16)(*launch.cluster)))
        if launch.cooperative:
            made.append(_Attribute(_ATTRIBUTE_COOPERATIVE, 0, (ctypes.c_uint * 16)(1)))
        if launch.pdl:
            made.append(_Attribute(_ATTRIBUTE_PROGRAMMATIC, 0, (ctypes.c_uint * 16)(1)))
        return made


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    try:
        return Cuda()
    except OSError as error:
        pytest.skip(f"no NVIDIA driver here: {error}")
    except DriverError as error:
        pytest.skip(f"no usable NVIDIA device: {error}")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A store of the module's own, and no tuning."""
    with override(home=tmp_path_factory.mktemp("store"), tune="off"):
        yield

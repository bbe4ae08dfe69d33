"""Memory of a device: GpuBuffer."""

from __future__ import annotations

import pytest

import gpu_stub

HEAD = """
import gc
import pytest
from gpu_stub import open_drivers, stub
from silo.errors import ArgumentError, DeviceError
from silo.launch import native
from silo.launch.native import GpuBuffer
open_drivers()
"""


def test_made_zeroed_aligned_and_freed():
    gpu_stub.run(
        HEAD
        + """
for kind in ("cuda", "hip"):
    buffer = GpuBuffer((2, 3), "float32", kind, 1)
    assert (buffer.shape, buffer.strides, buffer.dtype, buffer.nbytes) == ((2, 3), (3, 1), "float32", 24)
    assert buffer.device == (kind, 1) and buffer.address % 256 == 0 and buffer.address
    assert native.gpu_locate(kind, buffer.address)[1] == 1
    out = bytearray(b"x" * 24)
    buffer.copy_to(out)
    assert out == bytes(24) and stub.count("bytes") == 24
    del buffer
    assert stub.count("allocations") == 0
    free = native.gpu_free_memory(kind, 1)
    held = GpuBuffer((1 << 20,), "uint8", kind, 1)
    assert free - native.gpu_free_memory(kind, 1) == 1 << 20
    del held
empty = GpuBuffer((3, 0), "int8", "cuda", 0)
assert (empty.address, empty.nbytes, empty.shape) == (0, 0, (3, 0)) and stub.count("allocations") == 0
empty.copy_from(b"")
empty.copy_to(bytearray())
empty.fill(3)
assert GpuBuffer((), "float64", "cuda", 0).nbytes == 8
assert stub.context() is None
""",
        devices=2,
    )


def test_copies():
    gpu_stub.run(
        HEAD
        + """
import numpy as np
data = np.arange(12, dtype=np.int16)
for kind in ("cuda", "hip"):
    a, b = GpuBuffer((12,), "int16", kind, 0), GpuBuffer((3, 4), "bfloat16", kind, 0)
    stream = native.GpuStream(kind, 0)
    a.copy_from(data, stream=stream.handle)
    b.copy_from(a)
    out = np.zeros(12, np.int16)
    b.copy_to(out, stream.handle)
    assert (out == data).all()
    a.fill(0xAB)
    a.copy_to(b)
    host = native.HostBuffer((12,), "bfloat16")
    b.copy_to(host)
    assert bytes(host.raw) == b"\\xab" * 24
    for wrong in (bytes(23), bytes(25), GpuBuffer((5,), "int8", kind, 0)):
        with pytest.raises(ArgumentError, match="a Buffer of 24 bytes is copied from and to as many, not"):
            a.copy_from(wrong)
    part = np.zeros(3, np.int16)
    a.copy_from(data)
    a.copy_to(part, at=8)
    assert (part == data[4:7]).all()
    a.copy_from(part, at=0)
    a.copy_to(out)
    assert (out == [4, 5, 6, *data[3:]]).all()
    a.copy_to(bytearray(), at=24)
    for at in (-2, 19, 25):
        with pytest.raises(ArgumentError, match=f"a Buffer of 24 bytes has no part of 6 bytes at byte {at}"):
            a.copy_to(part, at=at)
    with pytest.raises((BufferError, TypeError)):
        a.copy_to(bytes(24))  # read-only
    with pytest.raises((BufferError, ValueError)):
        a.copy_from(np.zeros((12, 2), np.int16)[:, 0])  # not contiguous
    with pytest.raises(TypeError):
        a.copy_from(3)
    with pytest.raises((OverflowError, ValueError)):
        a.fill(256)
stub.fail("cuMemcpyAsync", 719)
with pytest.raises(DeviceError, match="cannot copy a Buffer: CUDA_ERROR_LAUNCH_FAILED"):
    GpuBuffer((1,), "int8", "cuda", 0).copy_from(b"1")
"""
    )


def test_what_cannot_be_made():
    gpu_stub.run(
        HEAD
        + """
stub.memory(1 << 30)
for shape in ((-1,), (2**40, 2**40), (2**62,), (1,) * 33):
    with pytest.raises(ArgumentError):
        GpuBuffer(shape, "float32", "cuda", 0)
with pytest.raises(ArgumentError, match="float31"):
    GpuBuffer((1,), "float31", "cuda", 0)
with pytest.raises(DeviceError, match=r"cannot allocate 2147483648 bytes .2.000 GiB. on cuda:0, Stub H100 with 1.0 GiB "
                                      r"of memory: CUDA_ERROR_OUT_OF_MEMORY: out of memory .2."):
    GpuBuffer((2**31,), "int8", "cuda", 0)
with pytest.raises(DeviceError, match="no device hip:1"):
    GpuBuffer((1,), "int8", "hip", 1)
stub.fail("cuMemsetD8Async", 719)
with pytest.raises(DeviceError, match="LAUNCH_FAILED"):
    GpuBuffer((1,), "int8", "cuda", 0)
assert stub.count("allocations") == 0
"""
    )


def test_dlpack():
    gpu_stub.run(
        HEAD
        + """
import ctypes
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
for kind, number in (("cuda", 2), ("hip", 10)):
    buffer = GpuBuffer((2, 3), "float32", kind, 0)
    assert buffer.__dlpack_device__() == (number, 0)
    assert capsule_name(buffer.__dlpack__()) == b"dltensor"
    assert capsule_name(buffer.__dlpack__(max_version=(1, 1), stream=7, dl_device=(number, 0))) == b"dltensor_versioned"
    for stream in (None, -1, 0, 1, 2):
        buffer.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="stays there; copy_to copies it"):
        buffer.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="without a copy"):
        buffer.__dlpack__(copy=True)
    for wrong in ({"dl_device": 3}, {"max_version": 3}, {"stream": "x"}):
        with pytest.raises(TypeError):
            buffer.__dlpack__(**wrong)
    address, kept = buffer.address, buffer.__dlpack__(max_version=(1, 1))
    assert native.read(buffer) == (address, 2, 32, 0, (number, 0), (2, 3), (3, 1))
    assert native.adapter(type(buffer)) == "exchange"
    del buffer
    gc.collect()
    assert stub.count("allocations") == 1
    del kept
    gc.collect()
    assert stub.count("allocations") == 0
"""
    )


def test_the_cuda_array_interface():
    gpu_stub.run(
        HEAD
        + """
for dtype, name in (("float32", "<f4"), ("int8", "|i1"), ("uint16", "<u2"), ("bool", "|b1"), ("float64", "<f8")):
    buffer = GpuBuffer((2, 3), dtype, "cuda", 0)
    assert buffer.__cuda_array_interface__ == {
        "shape": (2, 3), "typestr": name, "data": (buffer.address, False), "strides": None, "version": 3}
for dtype, kind in (("bfloat16", "cuda"), ("float8_e4m3fn", "cuda"), ("float32", "hip")):
    assert not hasattr(GpuBuffer((2,), dtype, kind, 0), "__cuda_array_interface__")
"""
    )


def test_subclasses():
    gpu_stub.run(
        HEAD
        + """
class Mine(GpuBuffer):
    __slots__ = ()
    def __new__(cls, n):
        return super().__new__(cls, (n,), "int32", "cuda", 0)
mine = Mine(5)
assert type(mine) is Mine and mine.nbytes == 20 and native.adapter(Mine) == "exchange"
assert native.read(mine)[0] == mine.address
GpuBuffer((5,), "int32", "cuda", 0).copy_from(mine)
del mine
gc.collect()
assert stub.count("allocations") == 0
"""
    )


def test_making_memory_does_not_break_a_capture_of_another_thread():
    gpu_stub.run(
        HEAD
        + """
for kind in ("cuda", "hip"):
    stub.capture(0x77)
    buffer = GpuBuffer((5,), "int32", kind, 0)
    buffer.copy_from(bytes(20))
    del buffer
    assert stub.count("broken") == stub.count("allocations") == 0
    stub.capture(0x77, 0)
"""
    )


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_time(kind):
    gpu_stub.run(
        HEAD
        + f"""
kind = {kind!r}
stream = native.GpuStream(kind, 0)
begin, end = native.GpuEvent(kind, 0), native.GpuEvent(kind, 0)
with pytest.raises(DeviceError, match="never recorded"):
    end.elapsed_ns(begin)
begin.record(stream.handle)
with pytest.raises(DeviceError, match="never recorded"):
    end.elapsed_ns(begin)
stub.advance(1_500_000)
end.record(stream=stream.handle)
end.synchronize()
stream.synchronize()
assert end.query() is True
assert end.elapsed_ns(begin) == 1_500_000 and begin.elapsed_ns(end) == -1_500_000 and end.elapsed_ns(begin=end) == 0
symbol = "cuEvent" if kind == "cuda" else "hipEvent"
stub.fail(symbol + "Query", 600)
assert end.query() is False
stub.fail(symbol + "ElapsedTime", 600)
with pytest.raises(DeviceError, match="not done yet"):
    end.elapsed_ns(begin)
for call in ("Query", "Synchronize", "Record", "ElapsedTime"):
    stub.fail(symbol + call, 719)
    with pytest.raises(DeviceError, match="719"):
        {{"Query": end.query, "Synchronize": end.synchronize, "Record": end.record,
          "ElapsedTime": lambda: end.elapsed_ns(begin)}}[call]()
other = native.GpuEvent(kind, 1)
other.record()
with pytest.raises(DeviceError, match="two devices"):
    other.elapsed_ns(begin)
with pytest.raises(TypeError):
    end.elapsed_ns(3)
assert stub.lib.hipPeekAtLastError() == 0  # others see no error of ours
assert (stub.count("events"), stub.count("streams")) == (3, 1)
del begin, end, other, stream, call
gc.collect()
assert (stub.count("events"), stub.count("streams")) == (0, 0) and stub.context() is None
stub.fail("cuStreamCreate" if kind == "cuda" else "hipStreamCreateWithFlags", 2)
with pytest.raises(DeviceError, match="cannot make a stream"):
    native.GpuStream(kind, 0)
""",
        devices=2,
    )


def test_pinned_memory():
    gpu_stub.run(
        HEAD
        + """
from silo.launch.native import PinnedMemory
for kind, type_ in (("cuda", 3), ("hip", 11)):
    pinned = PinnedMemory(24, kind, 1)
    assert pinned.nbytes == 24 and bytes(pinned) == bytes(24) and stub.count("bytes") == 24
    buffer = GpuBuffer((24,), "uint8", kind, 1)
    view = memoryview(pinned)
    view[:] = bytes(range(24))
    buffer.copy_from(pinned)
    pinned_address = __import__("ctypes").addressof(__import__("ctypes").c_char.from_buffer(pinned))
    assert native.gpu_locate(kind, pinned_address)[0] == type_
    buffer.fill(7)
    buffer.copy_to(pinned)
    assert bytes(view) == b"\\x07" * 24
    with pytest.raises(ArgumentError, match="a Buffer of 24 bytes is copied from and to as many, not 3"):
        buffer.copy_from(PinnedMemory(3, kind, 1))
    del pinned, buffer
    gc.collect()
    assert bytes(view) == b"\\x07" * 24 and stub.count("allocations") == 1  # the view keeps it
    del view
    gc.collect()
    assert stub.count("allocations") == 0
empty = PinnedMemory(0, "cuda", 0)
assert bytes(empty) == b"" and stub.count("allocations") == 0
with pytest.raises(ArgumentError, match="pinned memory of -1 bytes"):
    PinnedMemory(-1, "cuda", 0)
for symbol, kind in (("cuMemHostAlloc", "cuda"), ("hipHostMalloc", "hip")):
    stub.fail(symbol, 2)
    with pytest.raises(DeviceError, match=f"cannot lock 4096 bytes of host memory for {kind}:1: .*[(]2[)]"):
        PinnedMemory(4096, kind, 1)
    assert stub.count("allocations") == 0 and stub.context() is None
with pytest.raises(DeviceError, match="no device cuda:7"):
    PinnedMemory(1, "cuda", 7)
""",
        devices=2,
    )


def test_a_producer_that_takes_no_stream_for_unordered_is_asked_for_its_default():
    gpu_stub.run(
        HEAD
        + """
class LikeJax:
    def __init__(self):
        self.buffer, self.asked = GpuBuffer((2, 3), "float32", "cuda", 0), []

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **keywords):
        self.asked.append(keywords)
        if keywords.get("stream") == -1:
            raise self.error
        return self.buffer.__dlpack__(**keywords)

array = LikeJax()
array.error = RuntimeError("CUDA_ERROR_INVALID_HANDLE: invalid resource handle")
assert native.read(array) == (array.buffer.address, 2, 32, 0, (2, 0), (2, 3), (3, 1))
assert array.asked[:2] == [{"stream": -1}, {}]
array.error = TypeError("not this")
with pytest.raises((TypeError, ArgumentError)):
    native.read(array)
"""
    )

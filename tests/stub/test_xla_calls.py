"""The handler that XLA calls on CUDA, against the stub of libcuda: streams, devices, scratch memory, batches."""

import struct

import numpy as np
import pytest
from gpu_launchers import aligned, binding

from silo.launch import native
from xla_frames import EXECUTE, FLOAT32, INITIALIZE, INSTANTIATE, Xla, resolver

POINTER, INT = 1, 4


def keep(name, types, *, digest, device=0, shape=(16,), grid=(3, 1, 1), **options):
    made = binding(name, types, writes=(1,), index=device, **options)
    parameters = ((POINTER, 2, 32, None), (POINTER, 2, 32, None), (INT, 0, 32, 7))
    operands = (("x", 0, FLOAT32, 4, shape, True, -1),)
    native.xla_keep(digest, device, made, parameters, operands, (("out", 1, FLOAT32, 4, shape, True, -1),), grid)


def test_a_launch_on_xlas_stream(stub):
    keep("xla_plain", ("ptr", "ptr", "i32"), digest="1" * 64)
    x, out = aligned(16, "f4"), aligned(16, "f4")
    xla = Xla("cuda", stream=0x1230)
    assert xla.call("1" * 64, (x,), (out,)) == ""
    last = stub.last("xla_plain")
    assert (last.count, last.grid, last.stream) == (1, (3, 1, 1), 0x1230)
    assert last.parameters == (
        struct.pack("<Q", x.ctypes.data),
        struct.pack("<Q", out.ctypes.data),
        struct.pack("<i", 7),
    )


def test_each_device_has_its_own_code(stub):
    asked = []

    def resolve(digest, platform, device):
        asked.append((platform, device))
        keep(f"xla_on_{device}", ("ptr", "ptr", "i32"), digest=digest, device=device)

    with resolver(resolve):
        x, out = aligned(16, "f4"), aligned(16, "f4")
        for device in (1, 0):
            xla = Xla("cuda", device=device, stream=0x10)
            assert xla.call("2" * 64, (), (), stage=INSTANTIATE) == ""  # of no device
            assert xla.call("2" * 64, (), (), stage=INITIALIZE) == ""
            assert xla.call("2" * 64, (x,), (out,), stage=EXECUTE) == ""
            assert stub.last(f"xla_on_{device}").device == device
        assert asked == [("cuda", 1), ("cuda", 0)]


def test_scratch_memory_is_taken_for_each_launch(stub):
    keep("xla_scratch", ("ptr", "ptr", "i32", "scratch"), digest="3" * 64, scratch_bytes=64, scratch_align=16)
    before = stub.count("allocations")
    x, out = aligned(64, "f4").reshape(4, 16), aligned(64, "f4").reshape(4, 16)
    seen = set()
    xla = Xla("cuda", stream=0x20)
    assert xla.call("3" * 64, (x,), (out,)) == ""
    last = stub.last("xla_scratch")
    assert last.count == 4
    assert last.parameters[:2] == (struct.pack("<Q", x[3].ctypes.data), struct.pack("<Q", out[3].ctypes.data))
    (address,) = struct.unpack("<Q", last.parameters[3])
    seen.add(address)
    assert address % 16 == 0
    assert address != 0
    assert stub.count("allocations") == before


def test_errors_of_the_driver(stub):
    keep("xla_fails", ("ptr", "ptr", "i32"), digest="4" * 64)
    x, out = aligned(16, "f4"), aligned(16, "f4")
    xla = Xla("cuda", stream=0x30)
    assert xla.call("4" * 64, (x,), (out,)) == ""
    stub.fail("cuLaunchKernelEx", 1)
    assert xla.call("4" * 64, (x,), (out,)).startswith("silo: xla_fails: CUDA_ERROR_INVALID_VALUE")


def test_a_captured_stream_keeps_its_code(stub):
    keep("xla_captured", ("ptr", "ptr", "i32"), digest="5" * 64)
    x, out = aligned(16, "f4"), aligned(16, "f4")
    xla = Xla("cuda", stream=0x40)
    stub.capture(0x40)
    try:
        assert xla.call("5" * 64, (x,), (out,)) == ""
    finally:
        stub.capture(0x40, 0)
    assert stub.count("broken") == 0


def test_an_xla_that_does_not_say_the_device():
    xla = Xla("cuda")
    xla._api.size -= 8
    said = xla.call("6" * 64, (np.zeros(16, "f4"),), (np.zeros(16, "f4"),))
    assert "this jaxlib is too old for kernels on GPUs" in said


@pytest.mark.parametrize("device", [0, 1])
def test_calls_of_other_devices_are_unknown(device):
    with resolver():
        said = Xla("cuda", device=device).call("7" * 64, (), ())
        assert f"nobody keeps the call {'7' * 64} on cuda:{device}" in said

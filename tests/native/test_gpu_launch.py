"""Launching: contexts, streams, threads, errors, and the bytes that arrive."""

from __future__ import annotations

import gpu_stub

HEAD = """
import threading
import pytest
from gpu_stub import launcher, open_drivers, stub, text
from silo.errors import DeviceError, LaunchError
from silo.launch import native
open_drivers()
def kernel(kind="cuda", index=0, params="8,4", **options):
    return native.LoadedKernel(native.GpuModule(kind, index, text("k", params=params)), "k", **options)
def in_thread(body):
    failed = []
    def run():
        try:
            body()
        except BaseException as error:
            failed.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
"""


def test_bytes_and_streams():
    gpu_stub.run(
        HEAD
        + """
import struct
types = ("ptr", "i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64")
sizes = "8,1,1,2,4,8,1,2,4,8,2,2,4,8"
values = (2**63 + 5, True, -3, -300, -70000, -2**40, 250, 65000, 2**32 - 2, 2**64 - 3, 1.5, -2.5, 0.1, 0.1)
expected = (struct.pack("<Q", values[0]), b"\\1", struct.pack("<b", -3), struct.pack("<h", -300),
            struct.pack("<i", -70000), struct.pack("<q", -2**40), b"\\xfa", struct.pack("<H", 65000),
            struct.pack("<I", 2**32 - 2), struct.pack("<Q", 2**64 - 3), struct.pack("<e", 1.5),
            struct.pack("<f", -2.5)[2:], struct.pack("<f", 0.1), struct.pack("<d", 0.1))
for kind in ("cuda", "hip"):
    launch = launcher(kernel(kind, params=sizes, block=(64, 1, 1), shared_bytes=128), *types, grid=(5, 4, 3))
    stream = native.GpuStream(kind, 0)
    launch(*values, stream=stream.handle)
    last = stub.last("k")
    assert last.parameters == expected
    assert (last.grid, last.block, last.shared, last.stream) == ((5, 4, 3), (64, 1, 1), 128, stream.handle)
    launch(*values)
    assert stub.last("k").stream == 0
"""
    )


def test_no_arguments_and_very_many():
    gpu_stub.run(
        HEAD
        + """
launcher(kernel(params=""))()
assert stub.last("k").parameters == ()
count = 200
launcher(kernel(params=",".join(["8"] * count)), *["i64"] * count)(*range(count))
assert [int.from_bytes(one, "little") for one in stub.last("k").parameters] == list(range(count))
"""
    )


def test_a_thread_without_a_context_keeps_the_one_of_the_device():
    gpu_stub.run(
        HEAD
        + """
launch = launcher(kernel(), "ptr", "i32")
def body():
    assert stub.context() is None
    launch(0, 1)
    launch(0, 2)
    assert stub.context() == stub.primary() and native.gpu_current("cuda") == 0
in_thread(body)
assert stub.last("k").count == 2 and stub.last("k").context == stub.primary() and stub.context() is None
"""
    )


def test_another_context_is_put_back():
    gpu_stub.run(
        HEAD
        + """
zero, one = (launcher(kernel("cuda", index), "ptr", "i32") for index in (0, 1))
zero(0, 1)
assert stub.context() == stub.primary(0)
one(0, 1)
assert stub.last("k").context == stub.primary(1) and stub.last("k").device == 1
assert stub.context() == stub.primary(0)
other = stub.other_context()
stub.set_context(other)
zero(0, 1)
assert stub.last("k").context == stub.primary(0) and stub.context() == other
stub.fail("cuLaunchKernelEx", 719)
with pytest.raises(LaunchError):
    zero(0, 1)
assert stub.context() == other
stub.fail("cuCtxPushCurrent_v2", 2)
with pytest.raises(LaunchError, match="OUT_OF_MEMORY"):
    zero(0, 1)
""",
        devices=2,
    )


def test_a_lost_context_is_made_current_once():
    gpu_stub.run(
        HEAD
        + """
launch = launcher(kernel(), "ptr", "i32")
launch(0, 1)
stub.fail("cuLaunchKernelEx", 201)
launch(0, 2)
stub.fail("cuCtxGetCurrent", 201)
launch(0, 3)
assert stub.last("k").count == 3
stub.fail("cuLaunchKernelEx", 201, 2)
with pytest.raises(LaunchError, match="CUDA_ERROR_INVALID_CONTEXT"):
    launch(0, 4)
stub.fail("cuCtxGetCurrent", 4)
with pytest.raises(LaunchError, match="unknown CUDA error"):
    launch(0, 4)
""",
        devices=2,
    )


def test_one_device_is_launched_on_without_looking_at_the_context():
    gpu_stub.run(
        HEAD
        + """
launch = launcher(kernel(), "ptr", "i32")
launch(0, 1)
stub.fail("cuCtxGetCurrent", 4, -1)
launch(0, 2)
stub.fail_no_more()
for code in (201, 400, 709):
    stub.fail("cuLaunchKernelEx", code)
    launch(0, 3)
assert stub.last("k").count == 5
stub.set_context(stub.other_context(0))
launch(0, 4)
assert stub.last("k").count == 6 and stub.last("k").context == stub.primary(0)
assert stub.context() == stub.other_context(0)
stub.fail("cuLaunchKernelEx", 400, 2)
with pytest.raises(LaunchError, match="CUDA_ERROR_INVALID_HANDLE"):
    launch(0, 4)
"""
    )


def test_hip_launches_on_the_device_of_the_kernel():
    gpu_stub.run(
        HEAD
        + """
one = launcher(kernel("hip", 1), "ptr", "i32")
one(0, 1)
assert stub.last("k").device == 1 and native.gpu_current("hip") == 0
stub.lib.hipSetDevice(1)
one(0, 1)
assert stub.last("k").count == 2 and native.gpu_current("hip") == 1
launcher(kernel("hip", 0, cooperative=True), "ptr", "i32")(0, 1)
assert stub.last("k").cooperative and native.gpu_current("hip") == 1
stub.fail("hipModuleLaunchKernel", 719)
with pytest.raises(LaunchError, match="hipErrorLAUNCH_FAILED: .*earlier kernel"):
    one(0, 1)
assert stub.lib.hipPeekAtLastError() == 0
stub.fail("hipSetDevice", 101)
with pytest.raises(DeviceError, match="invalid device ordinal"):
    launcher(kernel("hip", 0), "ptr", "i32")
""",
        devices=2,
    )


def test_errors_say_what_they_mean():
    gpu_stub.run(
        HEAD
        + """
launch = launcher(kernel(), "ptr", "i32")
def said(code):
    stub.fail("cuLaunchKernelEx", code)
    with pytest.raises(LaunchError) as caught:
        launch(0, 1)
    return str(caught.value)
for code in (700, 710, 714, 715, 716, 717, 718, 719):
    assert "may come from an earlier kernel" in said(code) and "unusable from now on" in said(code)
    assert f"(code {code})" in said(code) and "'k'" in said(code)
assert "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access" in said(700)
assert "earlier kernel" not in said(1) and "CUDA_ERROR_INVALID_VALUE: invalid argument" in said(1)
assert "more registers or threads than the device has" in said(701)
launch(0, 1)
"""
    )


def test_many_threads_on_two_devices():
    gpu_stub.run(
        HEAD
        + """
launches = [launcher(kernel("cuda", index), "ptr", "i32") for index in (0, 1)]
def body():
    for turn in range(500):
        launches[turn % 2](0, turn)
threads = [threading.Thread(target=body) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert stub.last("k").count == 2000 and stub.count("contexts") == 2
""",
        devices=2,
    )


def test_the_stub_runs_python_in_place_of_a_kernel():
    gpu_stub.run(
        HEAD
        + """
import ctypes
buffer = native.GpuBuffer((4,), "int32", "cuda", 0)
def body(launch):
    address, value = (int.from_bytes(one, "little") for one in launch.parameters)
    (ctypes.c_int32 * 4).from_address(address)[:] = [value] * 4
stub.run("k", body)
launcher(kernel(), "ptr", "i32")(buffer, 7)
out = bytearray(16)
buffer.copy_to(out)
assert list(memoryview(out).cast("i")) == [7] * 4
"""
    )

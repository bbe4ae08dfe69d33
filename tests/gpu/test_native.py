"""The native GPU layer on a real NVIDIA GPU, without any array library: what only a driver can show."""

import ctypes
import gc
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from gpu_stub import launcher
from silo.errors import DeviceError
from silo.launch import native
from silo.launch.native import open_driver

PTX = b"""\
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
// out[0] = value after so many nanoseconds
.visible .entry spin(.param .u64 out, .param .u64 nanoseconds, .param .u32 value)
{
    .reg .pred %p1;
    .reg .b32 %r1;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [nanoseconds];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u64 %rd3, %globaltimer;
again:
    mov.u64 %rd4, %globaltimer;
    sub.u64 %rd5, %rd4, %rd3;
    setp.lt.u64 %p1, %rd5, %rd2;
    @%p1 bra again;
    st.global.u32 [%rd1], %r1;
    ret;
}
// out[0] = a value that went through the last bytes of dynamic shared memory
.visible .entry shared(.param .u64 out, .param .u32 bytes, .param .u32 value)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd1;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [bytes];
    ld.param.u32 %r2, [value];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r3, dynamic;
    add.u32 %r3, %r3, %r1;
    st.volatile.shared.u32 [%r3+-4], %r2;
    ld.volatile.shared.u32 %r2, [%r3+-4];
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


@pytest.fixture(scope="module", autouse=True)
def device(cuda):
    return open_driver("cuda") and native.gpu_attributes("cuda", 0)


def spin():
    return launcher(native.LoadedKernel(native.GpuModule("cuda", 0, PTX), "spin"), "ptr", "i64", "i32")


def value_of(buffer, stream=0):
    out = bytearray(4)
    buffer.copy_to(out, stream)
    return int.from_bytes(out, "little", signed=True)


def test_attributes(cuda, device):
    assert device["arch"] == f"sm_{cuda.capability}"
    assert (device["sm_count"], device["shared_per_block_optin"]) == (cuda.attribute(16), cuda.attribute(97))
    assert device["total_memory"] > 2**30
    assert len(device["uuid"]) == 32
    assert device["uuid"] != "0" * 32


def test_unloading_waits_for_the_kernels():
    out, run, read = (
        native.GpuBuffer((1,), "int32", "cuda", 0),
        native.GpuStream("cuda", 0),
        native.GpuStream("cuda", 0),
    )
    launch = spin()
    launch(out, 0, 1, stream=run.handle)
    run.synchronize()
    begun = time.perf_counter()
    launch(out, 300_000_000, 7, stream=run.handle)
    assert value_of(out, read.handle) == 1  # still running
    del launch
    gc.collect()
    assert time.perf_counter() - begun > 0.25
    assert value_of(out, read.handle) == 7


def test_freeing_memory_waits_for_the_kernels():
    out, run = native.GpuBuffer((1,), "int32", "cuda", 0), native.GpuStream("cuda", 0)
    launch = spin()
    launch(out, 300_000_000, 7, stream=run.handle)
    begun = time.perf_counter()
    del out
    assert time.perf_counter() - begun > 0.2
    run.synchronize()


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread-local", "relaxed"])
@pytest.mark.parametrize("same_thread", [True, False])
def test_a_capture_survives_loading_unloading_and_allocating(cuda, mode, same_thread):
    stream, out = native.GpuStream("cuda", 0), native.GpuBuffer((1,), "int32", "cuda", 0)
    kept, dropped = spin(), [spin()]
    kept(out, 0, 1, stream=stream.handle)
    stream.synchronize()
    handle, graph, executable = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), ctypes.c_void_p()
    gc.collect()  # else memory of other libraries, left by other tests, is freed within the capture, which ends it
    cuda.check("cuStreamBeginCapture_v2", handle, mode)

    def work():
        dropped.clear()
        gc.collect()
        other = native.GpuBuffer((1000,), "int32", "cuda", 0)
        loaded = spin()
        del other, loaded
        gc.collect()

    if same_thread:
        work()
    else:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert native.gpu_capturing("cuda", 0, stream.handle)
    kept(out, 0, 9, stream=stream.handle)
    cuda.check("cuStreamEndCapture", handle, ctypes.byref(graph))
    cuda.check("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
    del kept
    gc.collect()
    native.GpuModule("cuda", 0, PTX)  # sweeps: what was captured stays loaded
    assert value_of(out) == 1
    cuda.check("cuGraphLaunch", executable, handle)
    stream.synchronize()
    assert value_of(out) == 9


def test_shared_memory_to_the_last_byte(device):
    module, limit = native.GpuModule("cuda", 0, PTX), device["shared_per_block_optin"]
    out = native.GpuBuffer((1,), "int32", "cuda", 0)
    for size in (4, 48 * 1024, 48 * 1024 + 4, limit):
        kernel = native.LoadedKernel(module, "shared", shared_bytes=size)
        launcher(kernel, "ptr", "i32", "i32")(out, size, size)
        assert value_of(out) == size
    with pytest.raises(DeviceError, match=f"needs {limit + 1} bytes .* the device has {limit}"):
        native.LoadedKernel(module, "shared", shared_bytes=limit + 1)


def test_time():
    out, begin, end = (native.GpuBuffer((1,), "int32", "cuda", 0), *(native.GpuEvent("cuda", 0) for _ in range(2)))
    launch, stream = spin(), native.GpuStream("cuda", 0)
    launch(out, 0, 1, stream=stream.handle)
    begin.record(stream.handle)
    launch(out, 50_000_000, 1, stream=stream.handle)
    end.record(stream.handle)
    assert not end.query()
    with pytest.raises(DeviceError, match="not done yet"):
        end.elapsed_ns(begin)
    end.synchronize()
    assert 49_000_000 < end.elapsed_ns(begin) < 200_000_000


def test_where_memory_is(cuda):
    buffer, pinned = native.GpuBuffer((64,), "int8", "cuda", 0), ctypes.c_void_p()
    host = ctypes.create_string_buffer(64)
    cuda.check("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(64), 1)
    managed = ctypes.c_uint64()
    cuda.check("cuMemAllocManaged", ctypes.byref(managed), ctypes.c_size_t(64), 1)
    assert native.gpu_locate("cuda", buffer.address + 63) == (2, 0)
    assert native.gpu_locate("cuda", pinned.value) == (3, 0)
    assert native.gpu_locate("cuda", managed.value)[0] == 13
    assert native.gpu_locate("cuda", ctypes.addressof(host)) == (1, 0)
    found = []
    thread = threading.Thread(target=lambda: found.append(native.gpu_locate("cuda", buffer.address)))
    thread.start()
    thread.join()
    assert found == [(2, 0)]
    cuda.check("cuMemFreeHost", pinned)
    cuda.check("cuMemFree_v2", managed)


def test_code_that_does_not_load(device):
    with pytest.raises(DeviceError, match=r"text, taken for PTX.*(?s:.)*line"):
        native.GpuModule("cuda", 0, PTX.replace(b"st.global.u32", b"st.globe.u32"))
    with pytest.raises(DeviceError, match="device kernel image is invalid"):
        native.GpuModule("cuda", 0, b"\0\1\2\3" * 100)
    with pytest.raises(DeviceError, match=r"'spun'.*as it stands in the binary"):
        native.LoadedKernel(native.GpuModule("cuda", 0, PTX), "spun")
    with pytest.raises(DeviceError, match=r"cannot allocate 1125899906842624 bytes.*OUT_OF_MEMORY"):
        native.GpuBuffer((2**50,), "int8", "cuda", 0)


def test_a_fault_is_told_and_the_process_ends_in_order():
    """In a process of its own, whose context the fault destroys."""
    code = f"""
        from gpu_stub import launcher
        from silo.errors import SiloError
        from silo.launch import native
        from silo.launch.native import open_driver
        open_driver("cuda")
        module = native.GpuModule("cuda", 0, {PTX!r})
        launch = launcher(native.LoadedKernel(module, "spin"), "ptr", "i64", "i32")
        buffer, event, stream = (native.GpuBuffer((9,), "int8", "cuda", 0), native.GpuEvent("cuda", 0),
                                 native.GpuStream("cuda", 0))
        launch(256, 0, 1)
        for act in (lambda: native.gpu_synchronize("cuda", 0), lambda: launch(buffer, 0, 1)):
            try:
                act()
            except SiloError as error:
                print(error)
        del launch, module, buffer, event, stream
        print("end")
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n" + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("end\n")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout
    assert done.stdout.count("may come from an earlier kernel") == 2

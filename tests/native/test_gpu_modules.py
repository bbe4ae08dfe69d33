"""Loading code on a device, and unloading it when nobody needs it any more."""

from __future__ import annotations

import gpu_stub

HEAD = """
import gc
import pytest
from gpu_stub import launcher, open_drivers, stub, text
from silo.errors import DeviceError
from silo.launch import native
open_drivers()
code = text("add", "mul", params="8,4")
"""


def test_a_module_lives_as_long_as_its_kernels():
    gpu_stub.run(
        HEAD
        + """
module = native.GpuModule("cuda", 0, code)
assert (module.kind, module.index, stub.count("modules"), stub.count("contexts")) == ("cuda", 0, 1, 1)
add, mul = native.LoadedKernel(module, "add"), native.LoadedKernel(module, "mul")
assert add.driver == "cuda" and add.name == "add"
launch = launcher(add, "ptr", "i32")
del module, add, mul
gc.collect()
assert stub.context() is None
launch(0, 3)
assert stub.context() == stub.primary()  # a thread without a context keeps the device's
assert stub.count("modules") == 1 and stub.count("unloads") == 0
del launch
gc.collect()
assert stub.count("modules") == 0 and stub.count("unloads") == 1 and stub.count("allocations") == 0
"""
    )


def test_both_drivers_and_both_devices():
    gpu_stub.run(
        HEAD
        + """
for kind in ("cuda", "hip"):
    modules = [native.GpuModule(kind, index, code) for index in (0, 1)]
    for index, module in enumerate(modules):
        assert (module.kind, module.index) == (kind, index)
        launcher(native.LoadedKernel(module, "add"), "ptr", "i32")(0, 3)
        assert stub.last("add").device == index
    del module, modules
    gc.collect()
    assert stub.count("modules") == 0
assert stub.count("contexts") == 2 and stub.last("add").count == 4
""",
        devices=2,
    )


def test_retiring_does_not_break_a_capture_of_another_thread():
    gpu_stub.run(
        HEAD
        + """
for kind in ("cuda", "hip"):
    first = native.GpuModule(kind, 0, code)
    stub.capture(0x77)
    second = native.GpuModule(kind, 0, code)
    assert stub.count("modules") == 2
    del first
    assert stub.count("broken") == 0 and stub.count("modules") == 1
    stub.capture(0x77, 0)
    del second
    assert stub.count("modules") == 0
"""
    )


def test_a_module_that_cannot_be_unloaded_now_is_unloaded_later():
    gpu_stub.run(
        HEAD
        + """
one, two = native.GpuModule("cuda", 0, code), native.GpuModule("cuda", 0, code)
stub.fail("cuMemAlloc_v2", 900)  # no waiting for the device
del one
assert stub.count("modules") == 2
stub.fail("cuModuleUnload", 900, 2)
del two
assert stub.count("modules") == 2
three = native.GpuModule("cuda", 0, code)  # sweeps first
assert stub.count("modules") == 1 and stub.count("unloads") == 2
"""
    )


def test_a_captured_module_stays():
    gpu_stub.run(
        HEAD
        + """
stream = native.GpuStream("cuda", 0)
launch = launcher(native.LoadedKernel(native.GpuModule("cuda", 0, code), "add"), "ptr", "i32")
stub.capture(stream.handle)
launch(0, 3, stream=stream.handle)
stub.capture(stream.handle, 0)
del launch
gc.collect()
assert stub.count("modules") == 1 and stub.count("unloads") == 0
"""
    )


def test_after_a_fault_and_at_the_end_nothing_crashes():
    done = gpu_stub.run(
        HEAD
        + """
one, two, three = (native.GpuModule("cuda", 0, code) for _ in range(3))
buffer = native.GpuBuffer((4,), "int8", "cuda", 0)
event, stream = native.GpuEvent("cuda", 0), native.GpuStream("cuda", 0)
for symbol in ("cuModuleUnload", "cuMemFree_v2", "cuMemAlloc_v2", "cuCtxPushCurrent_v2", "cuEventDestroy_v2"):
    stub.fail(symbol, 719, -1)
del one
stub.fail_no_more()
for symbol in ("cuModuleUnload", "cuMemFree_v2", "cuMemAlloc_v2", "cuStreamDestroy_v2", "cuEventDestroy_v2"):
    stub.fail(symbol, 4, -1)
del two
kept = [three, buffer, event, stream]
kept.append(kept)
print("end")
"""
    )
    assert done == "end\n"


def test_what_is_current_is_put_back():
    gpu_stub.run(
        HEAD
        + """
other = stub.other_context()
stub.set_context(other)
module = native.GpuModule("cuda", 0, code)
kernel = native.LoadedKernel(module, "add")
buffer = native.GpuBuffer((4,), "int8", "cuda", 0)
buffer.copy_from(b"abcd")
native.GpuStream("cuda", 0).synchronize()
native.gpu_synchronize("cuda", 0)
del kernel, module, buffer
assert stub.context() == other and stub.count("modules") == stub.count("allocations") == 0
with pytest.raises(DeviceError):
    native.GpuModule("cuda", 0, b"junk")
assert stub.context() == other
"""
    )


def test_code_that_does_not_load():
    gpu_stub.run(
        HEAD
        + r"""
def refused(data, kind="cuda"):
    with pytest.raises(DeviceError) as caught:
        native.GpuModule(kind, 0, data)
    return str(caught.value)
said = refused(text("add", arch="sm_80"))
assert "on cuda:0, which is Stub H100 (sm_90): CUDA_ERROR_NO_BINARY_FOR_GPU" in said and "(209)" in said
assert "compile it for this device" in said
said = refused(text("add", error=1))
assert "CUDA_ERROR_INVALID_PTX" in said and "line 7; error   : Unknown opcode" in said and "taken for PTX" in said
said = refused(b"\0\1\2 junk")
assert "CUDA_ERROR_INVALID_IMAGE" in said and "8 bytes, of no format that is known here" in said
hsaco = b"\x7fELF" + bytes(14) + (224).to_bytes(2, "little") + bytes(64)
assert "an ELF object" in refused(hsaco) and "another kind of device" in refused(hsaco)
said = refused(b"junk", "hip")
assert "hip:0, which is Stub MI300 (gfx942:sramecc+:xnack-)" in said
assert stub.count("modules") == 0
assert "no device cuda:7" in (lambda: pytest.raises(DeviceError, native.GpuModule, "cuda", 7, code))().value.args[0]
with pytest.raises(TypeError):
    native.GpuModule("cuda", 0, "text")
with pytest.raises(DeviceError, match="'add2'.*as it stands in the binary"):
    native.LoadedKernel(native.GpuModule("cuda", 0, code), "add2")
stub.fail("cuDevicePrimaryCtxRetain", 2)
assert native.GpuModule("cuda", 0, code).kind == "cuda"  # the context was there before
"""
    )


def test_a_context_that_cannot_be_made():
    gpu_stub.run(
        HEAD
        + """
stub.fail("cuDevicePrimaryCtxRetain", 2)
with pytest.raises(DeviceError, match="cannot use device cuda:0: CUDA_ERROR_OUT_OF_MEMORY"):
    native.GpuModule("cuda", 0, code)
assert native.GpuModule("cuda", 0, code).index == 0
"""
    )


def test_many_threads_load_and_drop():
    gpu_stub.run(
        HEAD
        + """
import threading
def work():
    for _ in range(50):
        launcher(native.LoadedKernel(native.GpuModule("cuda", 0, code), "add"), "ptr", "i32")(0, 3)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
native.GpuModule("cuda", 0, code)
assert stub.count("modules") == 0 and stub.count("unloads") == 201 and stub.last("add").count == 200
"""
    )


def test_code_of_a_newer_cuda_than_the_driver():
    gpu_stub.run(
        HEAD
        + r"""
def made_by(release):
    return code + f"\n// Cuda compilation tools, release {release}, V{release}.59".encode()

for release, said in (("14.1", "made by CUDA 14 and the driver is for CUDA 13: update"), ("13.4", "damaged")):
    stub.fail("cuModuleLoadDataEx", 200, -1)
    with pytest.raises(DeviceError, match=said):
        native.GpuModule("cuda", 0, made_by(release))
    stub.fail_no_more()
    assert native.GpuModule("cuda", 0, made_by(release))  # the driver knows better
"""
    )

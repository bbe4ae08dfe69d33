"""Opening drivers, and what they say of their devices."""

from __future__ import annotations

import pytest

import gpu_stub

ERROR = """
import os, sys
from gpu_stub import stub
from silo.errors import DeviceError
from silo.launch import native
for number, code in PREPARE:
    stub.fail(number, code)
try:
    native.gpu_open("cuda", PATH or os.environ["SILO_TEST_STUB"])
except DeviceError as error:
    print(error)
"""


def error(*defines: str, prepare: object = (), path: str = "", devices: int = 1) -> str:
    return gpu_stub.run(ERROR.replace("PREPARE", repr(prepare)).replace("PATH", repr(path)), *defines, devices=devices)


def test_no_library():
    said = error(path="/nowhere/libcuda.so.1")
    assert "no cuda driver here: /nowhere/libcuda.so.1: cannot open" in said
    assert "SILO_CUDA_LIBRARY" in said


def test_an_old_library_is_named_with_the_missing_function():
    said = error("-DSTUB_OLD")
    assert "has no function cuLaunchKernelEx" in said
    assert "11.8" in said
    assert "libcuda.so.1" in said


def test_a_machine_without_a_device():
    said = error(devices=0)
    assert "CUDA_ERROR_NO_DEVICE" in said
    assert "(100)" in said
    assert "CUDA_VISIBLE_DEVICES" in said


def test_a_driver_that_does_not_start():
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in error(prepare=[("cuInit", 803)])
    assert "restart the machine" in error(prepare=[("cuInit", 803)])
    assert "'spawn'" in error(prepare=[("cuInit", 3)])
    assert "unknown CUDA error" in error(prepare=[("cuInit", 12345)])


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_a_driver_that_failed_can_be_opened_later(kind):
    gpu_stub.run(f"""
        import os
        from gpu_stub import stub
        from silo.errors import DeviceError
        from silo.launch import native
        path = os.environ["SILO_TEST_STUB"]
        symbol = "cuInit" if {kind!r} == "cuda" else "hipInit"
        stub.fail(symbol, 803)
        for _ in range(2):
            try:
                assert native.gpu_open({kind!r}, path) == 1
            except DeviceError as error:
                assert "does not start" in str(error)
                failed = True
        assert failed and native.gpu_open({kind!r}) == 1
    """)


def test_one_library_a_process():
    gpu_stub.run("""
        import os
        import pytest
        from silo.errors import DeviceError
        from silo.launch import native
        path = os.environ["SILO_TEST_STUB"]
        assert native.gpu_open("cuda", path) == native.gpu_open("cuda", path) == native.gpu_open("cuda", None) == 1
        with pytest.raises(DeviceError, match="was opened from .* and cannot be opened from '/other/libcuda.so'"):
            native.gpu_open("cuda", "/other/libcuda.so")
        with pytest.raises(DeviceError, match="no GPU driver 'vulkan'; there are 'cuda' and 'hip'"):
            native.gpu_open("vulkan")
    """)


def test_attributes_make_no_context():
    gpu_stub.run(
        """
        import pytest
        from gpu_stub import open_drivers, stub
        from silo.errors import DeviceError
        from silo.launch import native
        stub.attribute(16, 78, device=1)
        stub.attribute(120, 0, device=1)
        open_drivers()
        one, two = native.gpu_attributes("cuda", 0), native.gpu_attributes("cuda", 1)
        assert one == {
            "name": "Stub H100", "arch": "sm_90", "features": "", "total_memory": 1 << 36, "sm_count": 132,
            "warp_size": 32, "max_threads_per_block": 1024, "max_threads_per_sm": 2048, "registers_per_block": 65536,
            "registers_per_sm": 65536, "shared_per_block": 49152, "shared_per_block_optin": 232448,
            "shared_per_sm": 233472, "l2_bytes": 52428800, "clock_khz": 1980000, "memory_clock_khz": 2619000,
            "memory_bus_bits": 5120, "compute_capability_major": 9, "compute_capability_minor": 0,
            "cluster_launch": 1, "cooperative_launch": 1, "programmatic_launch": 1, "driver_version": 13000,
            "pci_bus_id": "0000:1a:00.0", "uuid": "000102030405060708090a0b0c0d0e0f",
        }
        assert two["sm_count"] == 78 and two["cluster_launch"] == 0 and two["uuid"].startswith("1011")
        hip = native.gpu_attributes("hip", 1)
        assert (hip["arch"], hip["features"], hip["warp_size"]) == ("gfx942", "sramecc+:xnack-", 64)
        assert hip["cluster_launch"] == hip["programmatic_launch"] == 0 and set(hip) == set(one)
        assert stub.count("contexts") == 0 and stub.context() is None
        with pytest.raises(DeviceError, match="no device cuda:2; there are cuda:0 to cuda:1"):
            native.gpu_attributes("cuda", 2)
        with pytest.raises(DeviceError, match="no device cuda:-1"):
            native.gpu_attributes("cuda", -1)
        stub.fail("cuDeviceGetAttribute", 1)  # the first one, which Silo cannot do without
        with pytest.raises(DeviceError, match="cannot describe device cuda:0: CUDA_ERROR_INVALID_VALUE"):
            native.gpu_attributes("cuda", 0)
        stub.fail("cuDeviceGetAttribute", 719)
        with pytest.raises(DeviceError, match=r"cannot describe device cuda:0: CUDA_ERROR_LAUNCH_FAILED.*719"):
            native.gpu_attributes("cuda", 0)
        """,
        devices=2,
    )


@pytest.mark.parametrize(("kind", "clock", "bus"), [("cuda", 13, 33), ("hip", 5, 67)])
def test_what_a_driver_does_not_know(kind, clock, bus):
    gpu_stub.run(f"""
        from gpu_stub import open_drivers, stub
        from silo.launch import native
        stub.unknown({clock})
        stub.unknown({bus})
        open_drivers()
        found = native.gpu_attributes({kind!r}, 0)
        assert found["clock_khz"] == -1 and found["pci_bus_id"] == "" and native.GpuEvent({kind!r}, 0)
        assert stub.lib.hipPeekAtLastError() == 0
    """)


def test_warps_of_32_on_hip():
    gpu_stub.run(
        """
        from gpu_stub import open_drivers, stub
        from silo.launch import native
        stub.attribute(87, 32)
        open_drivers()
        found = native.gpu_attributes("hip", 0)
        assert (found["warp_size"], found["arch"], found["features"]) == (32, "gfx1100", "")
        """,
        STUB_HIP_ARCH="gfx1100",
    )


def test_threads_that_come_first_together_make_one_context():
    gpu_stub.run("""
        import threading
        from gpu_stub import open_drivers, stub
        from silo.launch import native
        barrier, made = threading.Barrier(8), []
        def first():
            barrier.wait()
            open_drivers()
            made.append(native.GpuEvent("cuda", 0))
            assert native.gpu_current("cuda") is None  # what was current is put back: nothing
        threads = [threading.Thread(target=first) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(made) == 8 and stub.count("contexts") == 1
        stub.set_context(stub.primary())
        assert native.gpu_current("cuda") == 0
    """)


def test_where_memory_is():
    gpu_stub.run(
        """
        import ctypes
        from gpu_stub import MANAGED, PINNED, open_drivers, stub
        from silo.launch import native
        open_drivers()
        host = ctypes.create_string_buffer(4096)
        address = ctypes.addressof(host)
        for kind, device, pinned, managed in (("cuda", 2, 3, 13), ("hip", 10, 11, 10)):
            buffer = native.GpuBuffer((64,), "int8", kind, 1)
            assert native.gpu_locate(kind, buffer.address + 63) == (device, 1)
            assert native.gpu_locate(kind, buffer.address + 64 if buffer.nbytes else 0) == (1, 0)
            assert native.gpu_locate(kind, address) == native.gpu_locate(kind, 0) == (1, 0)
            stub.register(address, 1024, PINNED)
            stub.register(address + 1024, 1024, MANAGED, 1)
            assert native.gpu_locate(kind, address + 5) == (pinned, 0)
            assert native.gpu_locate(kind, address + 1500) == (managed, 1)
            address += 2048
        assert stub.lib.hipPeekAtLastError() == 0  # others see no error of ours
        stub.fail("cuPointerGetAttributes", 201)  # once: without a context, then with one
        assert native.gpu_locate("cuda", address - 4096 + 5) == (3, 0)
        """,
        devices=2,
    )


def test_capturing():
    gpu_stub.run("""
        from gpu_stub import open_drivers, stub
        from silo.launch import native
        open_drivers()
        for kind in ("cuda", "hip"):
            stream = native.GpuStream(kind, 0)
            assert not native.gpu_capturing(kind, 0, stream.handle)
            stub.capture(stream.handle)
            assert native.gpu_capturing(kind, 0, stream.handle) and not native.gpu_capturing(kind, 0, 0)
            stub.capture(stream.handle, 0)
        stub.fail("cuStreamIsCapturing", 906)
        assert native.gpu_capturing("cuda", 0, 0)
        native.gpu_synchronize("cuda", 0)
        native.gpu_synchronize("hip", 0)
    """)

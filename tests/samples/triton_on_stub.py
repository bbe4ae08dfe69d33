"""Triton's own launches on the stub of libcuda: Triton compiles for sm_90, and Triton's launcher calls the stub.

It is used in separate processes, whose environment :func:`environment` makes::

    triton_on_stub.run(CODE)             # CODE begins with: from triton_on_stub import *
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import textwrap
from pathlib import Path

import gpu_stub
import warm_python

__all__ = ["DRIVER", "array", "driver_class", "environment", "install", "run", "stub"]

DRIVER: list[object] = []
AT_IMPORT = {"SILO_ACCELERATE", "SILO_BUNDLE", "SILO_RECORD", "SILO_TRITON"}
"""Environment variables that take effect when a program imports Triton."""


def environment(*, devices: int = 2, **more: str) -> dict[str, str]:
    """Return the environment of a process in which Triton and Silo use the stub."""
    links = str(gpu_stub.library().parent)  # the folder in which the linker and the loader find the stub as libcuda
    given = gpu_stub.environment(devices=devices, LD_LIBRARY_PATH=links, TRITON_LIBCUDA_PATH=links)
    return {**given, "TRITON_DEFAULT_FP_FUSION": "1", "SILO_TRITON": "off", **more}


def run(code: str, *arguments: str, devices: int = 2, timeout: float = 240, **more: str) -> str:
    """Run a program in a process with the stub; return its output. The test fails if the program fails.

    The program has its own store, so that no other program has decided for its tuners. It compiles each config when the
    config is needed, unless ``SILO_COMPILE_AHEAD="1"`` is given.
    """
    with tempfile.TemporaryDirectory(prefix="silo-program-") as folder:
        file = Path(folder, "program.py")  # a file, because Triton reads a kernel's source from its file
        file.write_text(textwrap.dedent(code))
        more.setdefault("SILO_HOME", str(Path(folder, "home")))
        # because the workers that compile ahead take longer to start than most programs run
        more.setdefault("SILO_COMPILE_AHEAD", "0")
        done = warm_python.run(
            [sys.executable, str(file), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment(devices=devices, **more),
            timeout=timeout,
            more=warm_python.TORCH if AT_IMPORT & more.keys() else warm_python.TRITON,
        )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-3000:]}{done.stderr[-5000:]}"
    return done.stdout + done.stderr


def driver_class():
    """Return a subclass of Triton's driver for NVIDIA's GPUs, whose current device and stream a test sets."""
    import triton.backends.nvidia.driver as nvidia
    from triton.backends.compiler import GPUTarget

    class StubDriver(nvidia.CudaDriver):
        def __init__(self):
            self.utils = nvidia.CudaUtils()
            self.launcher_cls = nvidia.CudaLauncher
            self.device, self.stream = 0, 0
            self.get_current_device = lambda: self.device
            self.get_current_stream = lambda device: self.stream
            self.get_device_capability = lambda device: (9, 0)

        def set_current_device(self, device):
            self.device = device

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

    return StubDriver


def install():
    """Make the stub's driver Triton's active driver, and return it."""
    from triton.runtime.driver import driver

    made = driver_class()()
    DRIVER.append(made)
    driver.set_active(made)
    return made


class Array:
    """Device memory with the attributes that Triton reads.

    The memory is the host's, and is registered with the stub.
    """

    def __init__(self, address: int, dtype: object, device: str, owner: object = None) -> None:
        self.address, self.dtype, self.device, self.owner = address, dtype, device, owner

    def data_ptr(self) -> int:
        return self.address

    def at(self, offset: int) -> Array:
        """Return the same memory from ``offset`` bytes on."""
        return Array(self.address + offset, self.dtype, self.device, self.owner)


def array(nbytes: int = 4096, dtype: object = None, device: int = 0) -> Array:
    """Return new device memory, aligned to 64 bytes."""
    import torch

    memory = ctypes.create_string_buffer(nbytes + 64)
    address = -(-ctypes.addressof(memory) // 64) * 64
    stub().register(address, nbytes, gpu_stub.DEVICE, device)
    return Array(address, torch.float32 if dtype is None else dtype, f"cuda:{device}", memory)


def stub():
    """Return the object that controls the stub in this process."""
    return gpu_stub.stub


if "SILO_TEST_STUB" in os.environ:
    ctypes.CDLL(os.environ["SILO_TEST_STUB"], mode=ctypes.RTLD_GLOBAL)

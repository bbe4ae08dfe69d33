"""Launches without a GPU: all of Silo is real, but the driver returns at once.

torch's CPU tensors stand for GPU tensors: Silo reads them through torch's own C functions, except that
``torch_as_gpu.c`` answers for the device (CUDA, index 0). Their memory is registered with the stub driver as a
device's.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.launch.cases import ELEMENTS, Case
from bench.launch.peers import Context

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "native"
DEVICE_MEMORY = 2  # stub_register's number for device memory
HOW = (
    "stub driver: cuLaunchKernelEx returns at once. torch CPU tensors, read by torch's own C functions; that they are "
    "on a GPU is what the bench says (torch_as_gpu.c). The figure is the minimum over bursts."
)
HOW_WITHOUT_TORCH = "stub driver: cuLaunchKernelEx returns at once. silo.Buffer arguments."


def build(folder: Path) -> Path:
    """Build the stub driver and return its path."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("the stub driver needs a C compiler (gcc or cc)")
    output = folder / "libcuda.so.1"
    flags = ["-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]
    sources = sorted(str(path) for path in SOURCES.glob("stub_*.c"))
    subprocess.run([compiler, *flags, *sources, "-o", str(output), "-ldl"], check=True)
    return output


def environment(library: Path) -> dict[str, str]:
    """Return the environment variables that make Silo use the stub driver only."""
    return {"SILO_CUDA_LIBRARY": str(library), "SILO_HIP_LIBRARY": "/nonexistent", "STUB_DEVICES": "1"}


def _torch_as_gpu(folder: Path) -> None:
    """From now on, make Silo read torch's CPU tensors as GPU tensors."""
    import torch

    from silo.launch import native

    home = Path(torch.__file__).parent / "lib"
    output = folder / "torch_as_gpu.so"
    # Linked against torch, so that a function that this library does not define is found in torch.
    link = ["-Wl,--no-as-needed", f"-L{home}", "-ltorch_cpu", f"-Wl,-rpath,{home}"]
    source = Path(__file__).with_name("torch_as_gpu.c")
    command = ["gcc", "-std=gnu11", "-O2", "-shared", "-fPIC", str(source), "-o", str(output), *link, "-ldl"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(output))
    native.connect_loaded()  # comes first: it would otherwise connect torch's real functions later
    if library.torch_as_gpu_open(str(home / "libtorch_cpu.so").encode()):
        raise RuntimeError(f"torch {torch.__version__}: its C functions do not fit")
    tensor = torch.empty(1)
    aoti: Any = torch._C._aoti  # noqa: SLF001  # pyright: ignore[reportAttributeAccessIssue]
    handle = aoti.unsafe_alloc_void_ptr_from_tensor(tensor)
    types = (torch.Tensor, torch.nn.Parameter)
    opened = native.torch_open(str(output), tensor, handle, False, types)  # noqa: FBT003
    aoti.alloc_tensor_by_stealing_from_void_ptr(handle)
    if not opened or not native.torch_open_stream(str(output)):
        raise RuntimeError("Silo did not take the replaced functions")
    if hasattr(native, "probes"):  # a compared older build may lack this function
        native.torch_probe(native.probes(torch))


class Device:
    """The stub's device 0."""

    def __init__(self, folder: Path) -> None:
        self.library = os.environ["SILO_CUDA_LIBRARY"]
        self.stub = ctypes.CDLL(self.library)
        self.stub.stub_last.restype = ctypes.POINTER(ctypes.c_uint64)
        try:
            import torch
        except ImportError:
            self.torch: Any = None
            self.how = HOW_WITHOUT_TORCH
        else:
            self.torch = torch
            self.how = HOW
            _torch_as_gpu(folder)

    def context(self, case: Case, folder: Path) -> Context:
        """Return the case with its arrays on this device."""
        return Context(case, folder, tensors={name: self._array() for name in case.pointer_names})

    def _array(self) -> object:
        if self.torch is None:
            import silo

            return silo.Buffer((ELEMENTS,), "float32", device="cuda")
        tensor = self.torch.zeros(ELEMENTS)
        address = ctypes.c_uint64(tensor.data_ptr())
        self.stub.stub_register(address, ctypes.c_uint64(4 * ELEMENTS), DEVICE_MEMORY, 0)
        return tensor

    def launches(self, case: Case) -> int:
        """Return the number of launches of the case's kernel that the driver has seen while it recorded."""
        return self.stub.stub_last(case.kernel.encode())[0]

    def record(self, *, on: bool) -> None:
        """Make the driver record launches or not; it is slower while it records."""
        self.stub.stub_record(int(on))

    def verify(self, _row: object, _context: Context) -> str:
        """Return "ok": each row's launches were counted by the driver during the warm-up."""
        return "ok"

    def synchronize(self) -> None:
        """Do nothing: launches are done when they return."""

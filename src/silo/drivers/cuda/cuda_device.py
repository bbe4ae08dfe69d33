"""NVIDIA GPUs as devices, through their driver alone: no toolkit, no framework."""

from __future__ import annotations

from collections.abc import Sequence

from silo.core.device import Memory
from silo.launch.gpu import GpuDevice, Vendor, gpu_devices

__all__ = ["VENDOR", "devices"]

VENDOR = Vendor("cuda", "nvidia", ("cubin", "ptx"), Memory((2, 3, 13)))  # its own, pinned, managed


def devices() -> Sequence[GpuDevice]:
    """The NVIDIA GPUs this process may use. Raises DeviceError with the reason where there is none."""
    return gpu_devices(VENDOR)

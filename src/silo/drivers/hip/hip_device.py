"""AMD GPUs as devices, through their driver alone: no toolkit, no framework."""

from __future__ import annotations

from collections.abc import Sequence

from silo.core.device import Memory
from silo.launch.gpu import GpuDevice, Vendor, gpu_devices

__all__ = ["VENDOR", "devices"]

VENDOR = Vendor("hip", "amd", ("hsaco",), Memory((10, 11)))  # its own, pinned


def devices() -> Sequence[GpuDevice]:
    """The AMD GPUs this process may use. Raises DeviceError with the reason where there is none."""
    return gpu_devices(VENDOR)

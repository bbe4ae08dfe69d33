"""NVIDIA GPUs as devices, using only their driver: no toolkit, no framework."""

from __future__ import annotations

from collections.abc import Sequence

from silo.drivers.cuda import DRIVER
from silo.launch.gpu import GpuDevice, gpu_devices

__all__ = ["devices"]


def devices() -> Sequence[GpuDevice]:
    """Returns the NVIDIA GPUs that this process may use. Raises DeviceError with the reason if it finds none."""
    return gpu_devices(DRIVER)

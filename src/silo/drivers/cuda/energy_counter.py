"""The energy counter of an NVIDIA GPU, read through NVML (``libnvidia-ml.so.1``), which comes with the driver."""

from __future__ import annotations

import ctypes

from silo.core.decisions import Rejected
from silo.settings import settings

__all__ = ["NvmlCounter", "energy_counter"]

_LIBRARY = "libnvidia-ml.so.1"
_FUNCTIONS = (
    "nvmlInit_v2",
    "nvmlErrorString",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetTotalEnergyConsumption",
)


class NvmlCounter:
    """Implements :class:`silo.core.protocols.EnergyMeter`: millijoules since the driver was loaded."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle

    def millijoules(self) -> int:
        """Returns the counter, which advances in steps of 20 to 100 milliseconds. Raises OSError if NVML fails now."""
        reading = ctypes.c_ulonglong()
        if error := self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(reading)):
            raise OSError(f"NVML reads no energy: {_message(self._library, error)}")
        return reading.value


def energy_counter(bus_id: str) -> NvmlCounter | Rejected:
    """Returns the energy counter of the GPU at a PCI bus id, or why it cannot be read."""
    name = settings().nvml_library or _LIBRARY
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return Rejected(f"NVML, which counts the energy of NVIDIA GPUs, is not loaded: {error}")
    missing = [function for function in _FUNCTIONS if not hasattr(library, function)]
    if missing:
        return Rejected(f"{name} has no {', '.join(missing)}")
    library.nvmlErrorString.restype = ctypes.c_char_p
    library.nvmlErrorString.argtypes = [ctypes.c_int]
    library.nvmlDeviceGetTotalEnergyConsumption.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_ulonglong)]
    library.nvmlDeviceGetHandleByPciBusId_v2.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
    if error := library.nvmlInit_v2():
        return Rejected(f"NVML does not start: {_message(library, error)}")
    handle = ctypes.c_void_p()
    if error := library.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(handle)):
        return Rejected(f"NVML does not find the GPU at {bus_id}: {_message(library, error)}")
    counter = NvmlCounter(library, handle)
    try:
        counter.millijoules()
    except OSError as error:  # for example a slice of a GPU (MIG), or a GPU older than Volta
        return Rejected(str(error))
    return counter


def _message(library: ctypes.CDLL, error: int) -> str:
    text: bytes | None = library.nvmlErrorString(error)
    return f"{text.decode(errors='replace') if text else 'no message'} (error {error})"

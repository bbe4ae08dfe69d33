"""The devices that a program can be shown if the CPU serves ``cuda``: names, capabilities, sizes."""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import Final

from silo.errors import SettingsError
from silo.frozen import frozen

__all__ = ["DEVICES", "PretendedDevice", "device_for"]

_GIB = 1 << 30
_MIB = 1 << 20


@frozen
class PretendedDevice:
    """The properties of a device that ``torch.cuda.get_device_properties`` returns; sizes are in bytes.

    ``processors`` is the number of streaming multiprocessors. If ``processors`` is None, the number of CPUs that this
    process may use is reported; if ``memory_bytes`` is None, the memory that it may use.
    """

    name: str
    capability: tuple[int, int]
    processors: int | None = None
    memory_bytes: int | None = None
    l2_bytes: int = 40 * _MIB
    shared_bytes: int = 166912  # the maximum of one block
    processor_shared_bytes: int = 167936
    processor_threads: int = 2048


# Used without --pretend. Capability 8.0 has the bfloat16 and the tensor cores that programs expect. Programs rarely
# choose inline PTX for this capability; most inline PTX cannot run on the CPU.
_PLAIN: Final = PretendedDevice("CPU (stand-in for a CUDA device)", (8, 0))

DEVICES: Final = MappingProxyType(
    {
        "v100": PretendedDevice("Tesla V100-SXM2-16GB", (7, 0), 80, 16 * _GIB, 6 * _MIB, 98304, 98304),
        "t4": PretendedDevice("Tesla T4", (7, 5), 40, 15 * _GIB, 4 * _MIB, 65536, 65536, 1024),
        "a100": PretendedDevice("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80 * _GIB),
        "a10g": PretendedDevice("NVIDIA A10G", (8, 6), 80, 22 * _GIB, 6 * _MIB, 101376, 102400, 1536),
        "rtx4090": PretendedDevice("NVIDIA GeForce RTX 4090", (8, 9), 128, 24 * _GIB, 72 * _MIB, 101376, 102400, 1536),
        "l4": PretendedDevice("NVIDIA L4", (8, 9), 58, 22 * _GIB, 48 * _MIB, 101376, 102400, 1536),
        "l40s": PretendedDevice("NVIDIA L40S", (8, 9), 142, 44 * _GIB, 96 * _MIB, 101376, 102400, 1536),
        "h100": PretendedDevice("NVIDIA H100 80GB HBM3", (9, 0), 132, 80 * _GIB, 50 * _MIB, 232448, 233472),
        "h200": PretendedDevice("NVIDIA H200", (9, 0), 132, 141 * _GIB, 50 * _MIB, 232448, 233472),
        "b200": PretendedDevice("NVIDIA B200", (10, 0), 148, 180 * _GIB, 126 * _MIB, 232448, 233472),
        "rtx5090": PretendedDevice("NVIDIA GeForce RTX 5090", (12, 0), 170, 32 * _GIB, 96 * _MIB, 101376, 102400, 1536),
    }
)


def device_for(name: str | None) -> PretendedDevice:
    """Returns the device that ``--pretend`` or ``SILO_PRETEND`` names; for None, a generic device of capability 8.0.

    Raises:
        SettingsError: no device has this name; the message lists the names.

    >>> device_for("H100").capability
    (9, 0)
    """
    if name is None:
        return _PLAIN
    device = DEVICES.get(name.strip().lower())
    if device is None:
        near = difflib.get_close_matches(name.strip().lower(), DEVICES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingsError(f"--pretend (SILO_PRETEND) knows no device {name!r}: {', '.join(DEVICES)}{hint}")
    return device

"""What a driver declares of its kind of devices: facts that others need without opening it, and the devices' memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from silo.frozen import frozen

__all__ = ["EXTENSION_MEMORY", "HOST_MEMORY", "DriverDeclaration", "Memory", "memory_name"]

HOST_MEMORY = 1  # DLPack's device type
EXTENSION_MEMORY = 12  # what it has for devices that it does not know, such as TPUs

# DLPack's device types (DLPack 1.x, ``DLDeviceType``), in the words of messages.
_MEMORY_NAMES = MappingProxyType(
    {
        1: "cpu",
        2: "cuda",
        3: "cuda (pinned host memory)",
        4: "opencl",
        7: "vulkan",
        8: "metal",
        9: "vpi",
        10: "rocm",
        11: "rocm (pinned host memory)",
        12: "a device that DLPack has no number for",
        13: "cuda (managed memory)",
        14: "xpu",
        15: "webgpu",
        16: "hexagon",
        17: "maia",
        18: "trainium",
    }
)


def memory_name(device_type: int) -> str:
    """A DLPack device type in words, for messages.

    >>> memory_name(8), memory_name(99)
    ('metal', 'an unknown device')
    """
    return _MEMORY_NAMES.get(device_type, "an unknown device")


@frozen
class Memory:
    """The memory that a device's code reads and writes.

    ``types`` are DLPack's device types, that of the device's own memory first: a call whose arrays are in one of them
    may run there. ``names`` says what an array library calls the device, where DLPack's type does not tell it:
    ``{"torch": "npu"}``.

    >>> Memory((1,)).is_host, Memory((2, 3)).is_host
    (True, False)
    """

    types: tuple[int, ...]
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def is_host(self) -> bool:
        """Whether the device's own memory is the host's, where it needs no index."""
        return self.types[0] == HOST_MEMORY


_ANY_ARCH = r"[a-z0-9][a-z0-9._-]*"


@frozen
class DriverDeclaration:
    """The facts about one kind of devices that others need before, or without, opening its driver.

    The package of a driver, ``silo.drivers.<kind>``, has it as ``DRIVER``. It imports nothing that opens the driver:
    targets of the kind are read and compiled for on machines without such a device. Every default is that of a kind
    which no driver here is for.

    Attributes:
        kind: the kind of targets, which is the name of the driver's folder.
        memory: the memory that code of this kind reads and writes.
        vendor: the maker's name in device models; "" if the device states it.
        preference: the place of this kind, least first, among those that a call without arrays may run on; None: no
            such call runs there, and its memory alone does not choose it before plug-ins.
        arch: the pattern of an arch, and ``example`` an arch for messages.
        suffixes: letters at the end of an arch which name what code may use and not another device (``sm_90a``).
        warps: patterns of archs with the lanes of a warp; the first that the whole arch fits counts, else 32 lanes.
        units: multiprocessors, compute units or cores of the most common device of an arch, ``usual_units`` of others.
        blobs: the kinds of code that the driver loads, finished machine code first.
        code_forms: the forms of code that exist for this kind of targets and not for all kinds.
        library: the setting that names the library of the native module's driver; "" if the native module has none.
        torch_build: the member of ``torch.version`` that a build of torch for this driver has; "" if there is none.
        least_flush: bytes that a timer writes at least to empty the caches, whatever size the driver states.
        spills: the most 32-bit values that a config of a heuristic may spill to be measured with the others.

    >>> DriverDeclaration("toy", Memory((1,)), suffixes="x", warps=(("t[12]", 64),)).warp_size("t2")
    64
    """

    kind: str
    memory: Memory = Memory((EXTENSION_MEMORY,))
    vendor: str = ""
    preference: int | None = None
    arch: str = _ANY_ARCH
    example: str = "ARCH"
    suffixes: str = ""
    warps: tuple[tuple[str, int], ...] = ()
    units: Mapping[str, int] = MappingProxyType({})
    usual_units: int = 8
    blobs: tuple[str, ...] = ()
    code_forms: tuple[str, ...] = ()
    library: str = ""
    torch_build: str = ""
    least_flush: int = 0
    spills: int = 16

    def is_arch(self, arch: str) -> bool:
        """Whether ``arch`` has the form of this kind's archs."""
        return re.fullmatch(self.arch, arch) is not None

    def warp_size(self, arch: str) -> int:
        """The lanes of a warp on devices of ``arch``."""
        return next((lanes for pattern, lanes in self.warps if re.fullmatch(pattern, arch)), 32)

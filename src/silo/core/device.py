"""Devices as data: a driver's declaration of its kind, its memory, and the model that measurements are kept under."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from silo.core.json_reader import NATURAL, TEXT, Persisted
from silo.frozen import field, frozen

__all__ = [
    "DEVICE_FACTS",
    "EXTENSION_MEMORY",
    "HOST",
    "HOST_MEMORY",
    "DeviceModel",
    "DriverDeclaration",
    "Measuring",
    "Memory",
    "Place",
    "available_sms",
    "memory_name",
    "place_of",
]


HOST_MEMORY = 1  # DLPack's device type
EXTENSION_MEMORY = 12  # DLPack's type for devices outside of its list, such as TPUs

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

    ``types`` are DLPack's device types, beginning with the device's own memory: a call whose arrays are in one of them
    may run there. ``names`` maps array libraries to their names of the device, if DLPack's type does not determine
    them: ``{"torch": "npu"}``.

    >>> Memory((1,)).is_host, Memory((2, 3)).is_host
    (True, False)
    """

    types: tuple[int, ...]
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def is_host(self) -> bool:
        """Whether the device's own memory is the host's, which needs no index."""
        return self.types[0] == HOST_MEMORY


_ANY_ARCH = r"[a-z0-9][a-z0-9._-]*"


@frozen
class DriverDeclaration:
    """The facts about one kind of devices that others need before, or without, opening its driver.

    The package of a driver, ``silo.drivers.<kind>``, has it as ``DRIVER``. It imports nothing that opens the driver:
    targets of the kind are read and compiled for on machines without the device. The defaults describe a kind of device
    without a driver here.

    Attributes:
        kind: the kind of targets, which is the name of the driver's folder.
        memory: the memory that code of this kind reads and writes.
        vendor: the maker's name in device models; "" if the device itself reports it.
        preference: the place of this kind, least first, among those that a call without arrays may run on; None: calls
            without arrays never run there, and its memory alone does not choose it before plug-ins.
        arch: the pattern of an arch, and ``example`` an arch for messages.
        suffixes: letters at the end of an arch which name what code may use and not another device (``sm_90a``).
        warps: patterns of archs with the lanes of a warp; the first that the whole arch fits counts, else 32 lanes.
        units: multiprocessors, compute units or cores of the most common device of an arch, ``usual_units`` of others.
        blobs: the kinds of code that the driver loads, finished machine code first.
        code_forms: the forms of code that exist for this kind of targets and not for all kinds.
        library: the setting that names the library of the native module's driver; "" without a driver in the native
        module.
        energy: the place, as ``module:function``, of the function that opens the energy counter of the device at a PCI
            bus id; None if no counter is known.
        torch_build: the member of ``torch.version`` that a build of torch for this driver has; "" without a build of
        torch.
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
    energy: str | None = None
    torch_build: str = ""
    least_flush: int = 0
    spills: int = 16

    def is_arch(self, arch: str) -> bool:
        """Whether ``arch`` has the form of this kind's archs."""
        return re.fullmatch(self.arch, arch) is not None

    def warp_size(self, arch: str) -> int:
        """The lanes of a warp on devices of ``arch``."""
        return next((lanes for pattern, lanes in self.warps if re.fullmatch(pattern, arch)), 32)


@frozen
class Place:
    """The memory of a device, in which arrays are made.

    ``name`` is what :class:`silo.Buffer` calls it, ``device_type`` DLPack's number of such memory; ``names`` are array
    libraries' names of the device, if DLPack's number does not determine it.
    """

    name: str
    device_type: int
    index: int = 0
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def is_host(self) -> bool:
        """Whether it is the host's memory."""
        return self.device_type == HOST_MEMORY


HOST = Place("cpu", HOST_MEMORY)


class _OfKind(Protocol):
    @property
    def kind(self) -> str: ...


class _Owner(Protocol):
    """A device as an owner of memory: the part that array libraries need."""

    @property
    def memory(self) -> Memory: ...

    @property
    def target(self) -> _OfKind: ...

    @property
    def index(self) -> int: ...


def place_of(device: _Owner | None) -> Place:
    """The place of a device's own memory; the host's without a device."""
    if device is None or device.memory.is_host:
        return HOST
    memory = device.memory
    return Place(f"{device.target.kind}:{device.index}", memory.types[0], device.index, memory.names)


class Measuring(Enum):
    """In which process candidates are run and timed."""

    CONFINED = "a process of its own"  # code that faults or never ends harms only its own process
    HERE = "the process that tunes"


# Numbers a device states of itself, leaves of the expression language. Every device has the first four, GPUs the rest.
# Sizes are in bytes, clocks in kHz; "sm" is a streaming multiprocessor, a compute unit or a CPU core.
DEVICE_FACTS = (
    "sm_count",
    "reserved_sms",
    "num_sms",
    "warp_size",
    "shared_per_block",
    "shared_per_block_optin",
    "shared_per_sm",
    "registers_per_block",
    "registers_per_sm",
    "max_threads_per_block",
    "max_threads_per_sm",
    "l2_bytes",
    "memory_bytes",
    "clock_khz",
    "memory_clock_khz",
    "memory_bus_bits",
)


def available_sms(count: int, reserved: int) -> int:
    """How many of ``count`` multiprocessors a persistent kernel may fill: at least one.

    >>> available_sms(132, 8), available_sms(4, 8), available_sms(4, -1)
    (124, 1, 4)
    """
    return count if reserved <= 0 else max(count - reserved, 1)


@frozen
class DeviceModel(Persisted):
    """The kind and model of a device, never its index: equal devices have one identity.

    ``units`` counts streaming multiprocessors, compute units or CPU cores; ``memory_bytes`` is its own memory.
    """

    title = "a device model"

    vendor: str = field(form=TEXT)
    name: str = field(form=TEXT)
    arch: str = field(form=TEXT)
    units: int = field(form=NATURAL)
    memory_bytes: int = field(form=NATURAL)

    def __str__(self) -> str:
        return f"{self.name} ({self.arch}, {self.units} units)"

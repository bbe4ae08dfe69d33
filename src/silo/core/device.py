"""Devices and targets as data, usable without opening a driver.

A driver declares its kind of devices, their memory and their archs; a target is the kind and arch that a variant is
compiled for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final, Protocol

from silo.core.json_reader import NATURAL, TEXT, Form, Persisted, read_text
from silo.core.plugins import DEVICES, driver_kinds, installed_places
from silo.core.values import JSON
from silo.errors import TargetError
from silo.frozen import field, frozen

__all__ = [
    "CPU_LEVELS",
    "DEVICE_FACTS",
    "EXTENSION_MEMORY",
    "HOST",
    "HOST_MEMORY",
    "TARGET",
    "DeviceModel",
    "DriverDeclaration",
    "Measuring",
    "Memory",
    "Place",
    "Target",
    "available_sms",
    "driver_of",
    "drivers",
    "memory_name",
    "place_of",
    "read_target",
    "target_kinds",
]

HOST_MEMORY = 1  # DLPack's device type of the host's memory
EXTENSION_MEMORY = 12  # DLPack's type for devices that its list does not contain, for example TPUs

# Names in messages of DLPack's device types (DLPack 1.x, ``DLDeviceType``).
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
    """Returns the name of a DLPack device type for messages.

    >>> memory_name(8), memory_name(99)
    ('metal', 'an unknown device')
    """
    return _MEMORY_NAMES.get(device_type, "an unknown device")


@frozen
class Memory:
    """The memory that a device's code reads and writes.

    ``types`` are DLPack's device types, beginning with the device's own memory: the device may run a call whose arrays
    are in memory of one of these types. ``names`` maps array libraries to their names for the device, if DLPack's type
    does not determine the device: ``{"torch": "npu"}``.

    >>> Memory((1,)).is_host, Memory((2, 3)).is_host
    (True, False)
    """

    types: tuple[int, ...]
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def is_host(self) -> bool:
        """Whether the device's own memory is the host's. Host memory has no device index."""
        return self.types[0] == HOST_MEMORY


_ANY_ARCH = r"[a-z0-9][a-z0-9._-]*"


@frozen
class DriverDeclaration:
    """Facts about one kind of devices that are needed before, or without, opening its driver.

    The package of a driver, ``silo.drivers.<kind>``, holds the declaration as ``DRIVER``. The package imports nothing
    that opens the driver, because a machine without the device also parses targets of the kind and compiles for them.
    The defaults describe a kind of device for which Silo lacks a driver.

    Attributes:
        kind: the kind of targets, which is the name of the driver's folder.
        memory: the memory that code of this kind reads and writes.
        vendor: the maker's name in device models; "" if the device itself reports it.
        preference: the rank of this kind, least first, among the kinds that a call without arrays may run on.
            None: calls without arrays never run on this kind, and calls with arrays in its memory try device plug-ins
            first.
        arch: the pattern of an arch, and ``example`` an arch for messages.
        suffixes: letters at the end of an arch that name features which code may use, not another device (``sm_90a``).
        warps: patterns of archs, each with its number of lanes in a warp; the first that matches the whole arch counts,
            else 32 lanes.
        units: for each arch, the number of multiprocessors, compute units or cores of its most common device;
            ``usual_units`` is this number for an arch that is not listed.
        blobs: the kinds of code that the driver loads, finished machine code first.
        code_forms: the names of texts of code (``ptx``, ``asm``) that exist for this kind of targets, but not for all.
        library: the field of Silo's settings that names the vendor's driver library; "" if the native module lacks a
            driver for this kind.
        energy: ``module:function`` that opens the energy counter of the device at a PCI bus id; None if no counter is
            known.
        torch_build: the member of ``torch.version`` that a build of torch for this driver has; "" without such a build.
        least_flush: the least bytes that a timer writes to empty the caches, whatever size the driver reports.
        spills: the largest spill count (in 32-bit values) with which a heuristic's config is measured early; configs
            with more spills are measured late.

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
        """Whether ``arch`` is spelled like an arch of this kind."""
        return re.fullmatch(self.arch, arch) is not None

    def warp_size(self, arch: str) -> int:
        """The number of lanes in a warp on devices of ``arch``."""
        return next((lanes for pattern, lanes in self.warps if re.fullmatch(pattern, arch)), 32)


@frozen
class Place:
    """The memory of a device, in which arrays are made.

    ``name`` is the name that :class:`silo.Buffer` uses, ``device_type`` DLPack's number of such memory; ``names`` maps
    array libraries to their names for the device, if DLPack's number does not determine the device.
    """

    name: str
    device_type: int
    index: int = 0
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def is_host(self) -> bool:
        """Whether this is the host's memory."""
        return self.device_type == HOST_MEMORY


HOST = Place("cpu", HOST_MEMORY)


class _OfKind(Protocol):
    @property
    def kind(self) -> str: ...


class _Owner(Protocol):
    """The members of a device that array libraries need to allocate its memory."""

    @property
    def memory(self) -> Memory: ...

    @property
    def target(self) -> _OfKind: ...

    @property
    def index(self) -> int: ...


def place_of(device: _Owner | None) -> Place:
    """Returns the place of a device's own memory; the host's if ``device`` is None."""
    if device is None or device.memory.is_host:
        return HOST
    memory = device.memory
    return Place(f"{device.target.kind}:{device.index}", memory.types[0], device.index, memory.names)


class Measuring(Enum):
    """Where candidates are run and timed."""

    CONFINED = "a process of its own"  # code that faults or never ends harms only that process
    HERE = "the process that tunes"


# Numbers that a device reports; the expression language can read them. Every device has the first four, only GPUs have
# the others. Sizes are in bytes, clocks in kHz; "sm" is a streaming multiprocessor, a compute unit or a CPU core.
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
    """Returns the multiprocessors that a persistent kernel may fill: ``count - reserved``, from 1 to ``count``.

    >>> available_sms(132, 8), available_sms(4, 8), available_sms(4, -1)
    (124, 1, 4)
    """
    return count if reserved <= 0 else max(count - reserved, 1)


@frozen
class DeviceModel(Persisted):
    """The kind and model of a device. It holds no index: equal devices have one identity.

    ``units`` counts streaming multiprocessors, compute units or CPU cores; ``memory_bytes`` is the size of the device's
    own memory.
    """

    title = "a device model"

    vendor: str = field(form=TEXT)
    name: str = field(form=TEXT)
    arch: str = field(form=TEXT)
    units: int = field(form=NATURAL)
    memory_bytes: int = field(form=NATURAL)

    def __str__(self) -> str:
        return f"{self.name} ({self.arch}, {self.units} units)"


@cache
def driver_of(kind: str) -> DriverDeclaration:
    """Returns the declaration of the driver of a kind of devices; the defaults if Silo lacks a driver for the kind.

    >>> driver_of("cuda").vendor, driver_of("kind_of_a_plugin").vendor
    ('nvidia', '')
    """
    if kind not in driver_kinds():
        return DriverDeclaration(kind)
    declaration = import_module(f"silo.drivers.{kind}").DRIVER
    assert isinstance(declaration, DriverDeclaration)
    assert declaration.kind == kind
    return declaration


def drivers() -> tuple[DriverDeclaration, ...]:
    """Returns the declarations of Silo's own drivers, by kind. Opens none of them."""
    return tuple(driver_of(kind) for kind in driver_kinds())


_WITHOUT_DRIVER = ("fake", "xpu")  # kinds that code can be compiled for, although Silo lacks a driver that runs it

# Portable CPU levels of each architecture; a later level includes every earlier one.
CPU_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("x86-64-v2", "x86-64-v3", "x86-64-v4"),
    "aarch64": ("aarch64-armv8.2",),
}


@frozen
class Target:
    """The target of a variant: a kind and an arch. An empty arch means this machine's device.

    >>> str(Target.parse("cuda:sm_90a"))
    'cuda:sm_90a'
    >>> Target.parse("cpu").is_concrete
    False
    """

    kind: str
    arch: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parses ``kind`` or ``kind:arch``; ``TargetError`` names the part that is wrong."""
        kind, colon, arch = text.strip().partition(":")
        if kind not in target_kinds() and kind not in (others := _kinds_of_plugins()):
            raise TargetError(
                f"unknown target {text!r}: the kind {kind!r} is none of {', '.join((*target_kinds(), *others))};"
                " write for example cuda:sm_90"
            )
        if colon and not (driver := driver_of(kind)).is_arch(arch):
            raise TargetError(
                f"unknown target {text!r}: {arch!r} is not an arch of {kind}; write for example {kind}:{driver.example}"
            )
        return cls(kind, arch)

    def __lt__(self, other: Target) -> bool:
        return (self.kind, self.arch) < (other.kind, other.arch)

    @property
    def is_concrete(self) -> bool:
        """Whether the target names an arch; code can be compiled only for such a target."""
        return bool(self.arch)

    @property
    def device_arch(self) -> str:
        """The arch of the devices that run the target's code: its arch without the letters of optional features.

        >>> Target.parse("cuda:sm_90a").device_arch, Target.parse("hip:gfx90a").device_arch
        ('sm_90', 'gfx90a')
        """
        return self.arch.rstrip(driver_of(self.kind).suffixes)

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind


def target_kinds() -> tuple[str, ...]:
    """Returns the kinds of targets that are valid in a bundle on every machine, sorted.

    >>> "cuda" in target_kinds(), "xpu" in target_kinds()
    (True, True)
    """
    return tuple(sorted({*driver_kinds(), *_WITHOUT_DRIVER}))


def _kinds_of_plugins() -> tuple[str, ...]:
    """Returns the kinds of targets that installed device plug-ins add. Called only for a kind that Silo lacks."""
    return tuple(name for name in installed_places(DEVICES) if name not in target_kinds())


def read_target(data: JSON, label: str) -> Target:
    """Returns the target that JSON names in canonical spelling.

    Raises ``ValueError`` for anything else; ``label`` names the data in the message.
    """
    try:
        return Target.parse(read_text(data, label))
    except TargetError as error:
        raise ValueError(str(error)) from None


TARGET: Final[Form[Target]] = Form(read_target, str)
"""The :class:`Form` of a target, whose JSON is the target's text, such as ``"cuda:sm_90a"``."""

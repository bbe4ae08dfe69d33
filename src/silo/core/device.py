"""Devices as data: where their memory is, their facts, and the model that measurements are kept under."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from silo.core.driver_declaration import EXTENSION_MEMORY, HOST_MEMORY, Memory, memory_name
from silo.core.json_reader import read_natural, read_object, read_text
from silo.core.values import JSON
from silo.frozen import frozen, names_of

if TYPE_CHECKING:
    from silo.core.target import Target

__all__ = [
    "DEVICE_FACTS",
    "EXTENSION_MEMORY",
    "HOST",
    "HOST_MEMORY",
    "DeviceModel",
    "Measuring",
    "Memory",
    "Place",
    "available_sms",
    "memory_name",
    "place_of",
]


@frozen
class Place:
    """Where arrays are made: the memory of a device.

    ``name`` is what :class:`silo.Buffer` calls it, ``device_type`` DLPack's number of such memory; ``names`` is what
    array libraries call the device where DLPack's number does not tell it.
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


class _Owner(Protocol):
    """The part of a device that says where its memory is."""

    @property
    def memory(self) -> Memory: ...

    @property
    def target(self) -> Target: ...

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

    CONFINED = "a process of its own"  # one that faults or never ends costs nothing but itself
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
class DeviceModel:
    """What a device is, never which one: its index is not part of the identity.

    ``units`` counts streaming multiprocessors, compute units or CPU cores; ``memory_bytes`` is its own memory.
    """

    vendor: str
    name: str
    arch: str
    units: int
    memory_bytes: int

    def to_json(self) -> JSON:
        """The canonical form."""
        return {name: getattr(self, name) for name in names_of(DeviceModel)}

    @classmethod
    def from_json(cls, data: JSON) -> DeviceModel:
        """The inverse of :meth:`to_json`."""
        what = "a device model"
        members = read_object(data, ("vendor", "name", "arch", "units", "memory_bytes"), what)
        return cls(
            vendor=read_text(members["vendor"], what),
            name=read_text(members["name"], what),
            arch=read_text(members["arch"], what),
            units=read_natural(members["units"], what),
            memory_bytes=read_natural(members["memory_bytes"], what),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.arch}, {self.units} units)"

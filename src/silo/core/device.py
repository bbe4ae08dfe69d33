"""Device models: the identity under which measurements are kept."""

from __future__ import annotations

from silo.core.reading import read_natural, read_object, read_text
from silo.core.values import JSON
from silo.frozen import frozen, names_of

__all__ = ["DEVICE_FACTS", "DeviceModel", "available_sms"]

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
    """What a device is, never which one: its index is no part of the identity.

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

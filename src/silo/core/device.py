"""Device models: the identity under which measurements are kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast

from silo.core.reading import read_natural, read_object, read_text
from silo.core.values import JSON

__all__ = ["DeviceModel"]


@dataclass(frozen=True, slots=True)
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
        return cast("JSON", asdict(self))

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

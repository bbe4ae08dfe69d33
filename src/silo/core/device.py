"""Device models: the identity under which measurements are kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast

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
        if not isinstance(data, dict) or set(data) != {"vendor", "name", "arch", "units", "memory_bytes"}:
            raise ValueError(f"not a device model: {data!r}")
        return cls(**data)  # pyright: ignore[reportArgumentType]

    def __str__(self) -> str:
        return f"{self.name} ({self.arch}, {self.units} units)"

"""Devices that Silo finds only through jax: Google's TPUs."""

from __future__ import annotations

from typing import Any

from silo.launch.array_libraries.library_table import LibraryDevice

__all__ = ["count", "describe"]


def count(jax: Any, kind: str) -> int:  # noqa: ANN401  # the module
    """Returns the number of devices of a kind that jax finds."""
    try:
        return len(jax.devices(kind))
    except RuntimeError:  # jax raises this if the platform has no backend
        return 0


def describe(jax: Any, kind: str, index: int) -> LibraryDevice:  # noqa: ANN401
    """Returns jax's description of a device."""
    device = jax.devices(kind)[index]
    statistics: dict[str, Any] = device.memory_stats() or {}
    return LibraryDevice(
        model=str(device.device_kind),
        arch=str(device.device_kind).lower().removeprefix("tpu ").replace(" ", ""),
        sm_count=int(getattr(device, "num_cores", 1)),
        facts={"memory_bytes": statistics.get("bytes_limit")},
    )

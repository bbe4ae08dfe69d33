"""Devices that Silo knows through jax alone: Google's TPUs."""

from __future__ import annotations

from typing import Any

from silo.launch.array_libraries.library_table import LibraryDevice

__all__ = ["count", "describe"]


def count(jax: Any, kind: str) -> int:  # noqa: ANN401  # the module
    """How many devices of a kind jax sees."""
    try:
        return len(jax.devices(kind))
    except RuntimeError:  # jax raises this if it lacks the backend
        return 0


def describe(jax: Any, kind: str, index: int) -> LibraryDevice:  # noqa: ANN401
    """Jax's description of a device."""
    found = jax.devices(kind)[index]
    statistics: dict[str, Any] = found.memory_stats() or {}
    return LibraryDevice(
        model=str(found.device_kind),
        arch=str(found.device_kind).lower().removeprefix("tpu ").replace(" ", ""),
        sm_count=int(getattr(found, "num_cores", 1)),
        facts={"memory_bytes": statistics.get("bytes_limit")},
    )

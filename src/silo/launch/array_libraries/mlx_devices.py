"""Devices that Silo finds through MLX if torch is not imported: Apple's GPUs."""

from __future__ import annotations

from typing import Any

from silo.launch.array_libraries.library_table import LibraryDevice

__all__ = ["count", "describe"]


def count(mx: Any, kind: str) -> int:  # noqa: ANN401  # the module mlx.core
    """Returns the number of devices of a kind that MLX finds."""
    return int(kind == "mps" and mx.metal.is_available())


def describe(mx: Any, kind: str, index: int) -> LibraryDevice:  # noqa: ANN401
    """Returns MLX's description of the GPU, which lacks the number of cores."""
    del kind, index  # a Mac has one GPU
    properties: dict[str, Any] = mx.device_info(mx.gpu) if hasattr(mx, "device_info") else mx.metal.device_info()
    return LibraryDevice(
        model=str(properties.get("device_name", "Apple's GPU")),
        arch="",
        sm_count=1,
        facts={"memory_bytes": int(properties["memory_size"]) if "memory_size" in properties else None},
    )

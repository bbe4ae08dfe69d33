"""Devices that Silo finds only through torch: Intel's GPUs, Meta's accelerators, Apple's GPUs."""

from __future__ import annotations

from typing import Any

from silo.errors import DeviceError
from silo.launch.array_libraries.library_table import LibraryDevice

__all__ = ["count", "describe"]


def count(torch: Any, kind: str) -> int:  # noqa: ANN401  # the module
    """Returns the number of devices of a kind that torch finds."""
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = getattr(torch, kind, None)
    return int(module.device_count()) if module is not None and module.is_available() else 0


def describe(torch: Any, kind: str, index: int) -> LibraryDevice:  # noqa: ANN401
    """Returns torch's description of a device. Raises ``DeviceError`` if torch does not report enough about it."""
    return {"xpu": _xpu, "mtia": _mtia, "mps": _mps}[kind](torch, index)


def _xpu(torch: Any, index: int) -> LibraryDevice:  # noqa: ANN401
    properties = torch.xpu.get_device_properties(index)
    return LibraryDevice(
        model=str(properties.name),
        arch=str(getattr(properties, "architecture", "")),
        sm_count=int(properties.gpu_subslice_count),
        facts={
            "warp_size": max(map(int, getattr(properties, "sub_group_sizes", ())), default=None),
            "max_threads_per_block": _optional(properties, "max_work_group_size"),
            "memory_bytes": _optional(properties, "total_memory"),
        },
    )


def _mtia(torch: Any, index: int) -> LibraryDevice:  # noqa: ANN401
    properties = torch.mtia.get_device_properties(index)
    try:
        units = int(properties.max_grid_height * properties.max_grid_width)
    except AttributeError:
        members = ", ".join(name for name in dir(properties) if not name.startswith("_"))
        raise DeviceError(f"mtia:{index}: torch does not say how large its grid is; it says {members}") from None
    return LibraryDevice(
        model=str(getattr(properties, "name", "MTIA")),
        arch="",
        sm_count=units,
        facts={"memory_bytes": _optional(properties, "total_memory")},
    )


def _mps(torch: Any, index: int) -> LibraryDevice:  # noqa: ANN401
    del index  # a Mac has one GPU
    backend = torch.backends.mps
    return LibraryDevice(
        model=str(backend.get_name()),
        arch="",
        sm_count=int(backend.get_core_count()),
        facts={"warp_size": 32, "memory_bytes": int(torch.mps.recommended_max_memory())},
    )


def _optional(properties: object, name: str) -> int | None:
    value = getattr(properties, name, None)
    return None if value is None else int(value)

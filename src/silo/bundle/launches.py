"""Launch info in a bundle's manifest: what no driver could be given is refused when it is read."""

from __future__ import annotations

from silo.bundle.checks import is_shown
from silo.bundle.format import MAJOR
from silo.core.launch_info import LaunchInfo
from silo.core.values import JSON

__all__ = ["read_launch"]

_AXES_MINOR = 3  # the version that added them to tensor maps


def read_launch(data: JSON, minor: int) -> LaunchInfo:
    """Launch info of a file of this minor version, whose numbers a driver can be given; ``ValueError`` on another."""
    launch = LaunchInfo.from_json(data)
    for slot in launch.layout:
        if not isinstance(slot.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the JSON may hold anything
            raise TypeError(f"a layout slot's name is a string, not {slot.name!r}")
    for size in launch.cluster:
        if type(size) is not int or not 1 <= size <= 1 << 16:
            raise ValueError(f"not a cluster: {launch.cluster!r}")
    for name, value in launch.counts():
        if not 0 <= value < 1 << 31:
            raise ValueError(f"{name} is out of range: {value}")
    for name in ("scratch_bytes", "profile_bytes"):
        if getattr(launch, name) >= 1 << 48:
            raise ValueError(f"{name} is out of range: {getattr(launch, name)}")
    for name in ("scratch_align", "profile_align"):
        value = getattr(launch, name)
        if not 1 <= value <= 1 << 16 or value & (value - 1):
            raise ValueError(f"{name} is not a power of two up to 65536: {value}")
    if not launch.entry or not is_shown(launch.entry):
        raise ValueError(f"not an entry symbol: {launch.entry!r}")
    if any(one.axes for one in launch.tensor_maps) and minor < _AXES_MINOR:
        raise ValueError(f"axes are of format {MAJOR}.{_AXES_MINOR}, and the file of {MAJOR}.{minor}")
    return launch

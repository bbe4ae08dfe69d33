"""What each minor version of the format added, and launch info as files of one have it.

A file is of the lowest version that can express it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from silo.bundle.checks import is_shown
from silo.bundle.format import MAJOR
from silo.core.launch_info import AbiType, LaunchInfo
from silo.core.values import JSON

if TYPE_CHECKING:
    from silo.core.extents import ArrayExtents
    from silo.core.specialization import Specialization

__all__ = [
    "KERNEL_ADDED",
    "RULES_ADDED",
    "read_launch",
    "require_minor",
    "version_of_extents",
    "version_of_launch",
    "version_of_specialization",
]

_KINDS = frozenset({"kind"})
_SPACES = frozenset({"space"})
_EXTENTS = frozenset({"space", "extents"})
KERNEL_ADDED = {0: frozenset[str](), 1: frozenset[str](), 2: _KINDS, 3: _KINDS}
"""Members of a kernel that version 1.0 does not have, by minor version."""

RULES_ADDED = {0: frozenset[str](), 1: _SPACES, 2: _EXTENTS, 3: _EXTENTS}
"""The same of dispatch rules."""


def version_of_extents(extents: Sequence[tuple[str, ArrayExtents]]) -> int:
    """The lowest minor version that can express extents of arrays."""
    if not extents:
        return 0
    from silo.core.dynamic_layout import DynamicLayout  # noqa: PLC0415  # few kernels have any

    return max(3 if isinstance(one, DynamicLayout) else 2 for _, one in extents)


def version_of_specialization(specialization: Specialization) -> int:
    """The lowest minor version that can express a specialization."""
    return max(version_of_extents(specialization.extents), 0 if specialization.grid is None else 2)


def version_of_launch(launch: LaunchInfo) -> int:
    """The lowest minor version that can express launch info."""
    structs = any(slot.type in (AbiType.STRUCT, AbiType.EMPTY) for slot in launch.layout)
    return 3 if structs or any(one.axes for one in launch.tensor_maps) else 0


def require_minor(minor: int, wanted: int, what: str) -> None:
    """``ValueError`` where a file of version ``minor`` has what only ``wanted`` can express."""
    if minor < wanted:
        raise ValueError(f"{what} are of format {MAJOR}.{wanted}, and the file of {MAJOR}.{minor}")


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
    require_minor(minor, version_of_launch(launch), "such parameters")
    return launch

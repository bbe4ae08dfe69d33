"""Keys of stored records, each with a schema name and version.

Variants, jobs, spaces and studies make their own keys.
"""

from __future__ import annotations

from silo.core.device import DeviceModel
from silo.core.values import digest

__all__ = ["SCHEMAS", "ceilings_key", "effort_key", "seeds_key", "spills_key", "studies_key"]

# Every schema a key is made under. If the inputs of a key change, its version does, so old entries are never misread.
SCHEMAS = (
    *("artifact-key/1", "artifact-key/2", "ceilings-key/1", "effort-key/1", "job-key/1", "seeds-key/1"),
    *("space-key/1", "spills-key/1", "studies-key/1", "trial-key/1", "installation-key/1"),
)


def studies_key(kernel: str) -> str:
    """The key of the list of a kernel's studies, whatever its source, compiler and device were."""
    return digest("studies-key/1", kernel)


def spills_key(study: str) -> str:
    """The key of a study's recorded register spills, by the study's own key."""
    return digest("spills-key/1", study)


def effort_key(study: str) -> str:
    """The key of what first calls have spent on tuning a study, by the study's own key."""
    return digest("effort-key/1", study)


def seeds_key(kernel: str) -> str:
    """The key of configs that did well elsewhere, by the kernel's name alone: they are hints."""
    return digest("seeds-key/1", kernel)


def ceilings_key(device: DeviceModel) -> str:
    """The key of a device model's measured peak rates."""
    return digest("ceilings-key/1", device.to_json())

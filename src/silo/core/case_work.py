"""The bytes and operations that a case declares, for comparing a launch with the device's limits."""

from __future__ import annotations

from dataclasses import dataclass

from silo.core.json_reader import read_natural, read_object
from silo.core.values import JSON

__all__ = ["Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """What a case says that one launch cannot do without: bytes moved, floating-point operations. None: not said."""

    bytes: int | None = None
    flops: int | None = None

    @classmethod
    def of(cls, moved: int | None, flops: int | None) -> Work | None:
        """The work, or None where nothing is said."""
        return None if moved is None and flops is None else cls(moved, flops)

    def to_json(self) -> JSON:
        """The canonical form."""
        return {"bytes": self.bytes, "flops": self.flops}

    @classmethod
    def from_json(cls, data: JSON) -> Work:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        members = read_object(data, ("bytes", "flops"), "the work of a case")
        known = {name: None if count is None else read_natural(count, name) for name, count in members.items()}
        return cls(**known)

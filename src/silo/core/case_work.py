"""The bytes and operations that a case declares, for comparing a launch with the device's limits."""

from __future__ import annotations

from silo.core.json_reader import NATURAL, Persisted, optional
from silo.frozen import field, frozen

__all__ = ["Work"]


@frozen
class Work(Persisted):
    """The least work of one launch of a case: bytes moved, floating-point operations. None: not declared."""

    title = "the work of a case"

    bytes: int | None = field(default=None, form=optional(NATURAL))
    flops: int | None = field(default=None, form=optional(NATURAL))

    @classmethod
    def of(cls, moved: int | None, flops: int | None) -> Work | None:
        """The work, or None if nothing is declared."""
        return None if moved is None and flops is None else cls(moved, flops)

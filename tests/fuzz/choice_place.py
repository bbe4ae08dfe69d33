"""Devices that are known and not here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from silo.artifacts.runs_on import runs_on
from silo.core.decisions import Decision
from silo.core.device import Target

__all__ = ["Place"]


@dataclass
class Place:
    """As much of ``silo.core.protocols.Device`` as the choice needs."""

    target: Target
    index: int = 0
    model: str = "a made-up device"

    @classmethod
    def of(cls, target: str) -> Self:
        """The place whose target is so written."""
        return cls(Target.parse(target))

    def facts(self) -> Mapping[str, int]:
        """The same for each."""
        return {"sm_count": 108, "num_sms": 100, "reserved_sms": 8, "warp_size": 32, "memory_bytes": 1 << 36}

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """By the rule of the devices that Silo knows."""
        return runs_on(target, self.target, blob_kind)

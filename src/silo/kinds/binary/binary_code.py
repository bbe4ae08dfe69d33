"""One binary of a kernel: its bytes, target, assumptions and launch info."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from silo.core.launch_info import LaunchInfo
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import JSON

__all__ = ["BinaryCode"]


@dataclass(frozen=True)
class BinaryCode:
    """One binary of a kernel.

    ``label`` stands for it in messages (its file's name); ``kind`` is ``cubin``, ``hsaco`` or ``ptx``; ``target`` what
    it was built for; ``assumes`` what must hold of the arguments, constexprs folded into it among that.
    """

    label: str
    kind: str
    data: bytes
    target: Target
    assumes: Specialization
    launch: LaunchInfo

    @cached_property
    def sha256(self) -> str:
        """Of the bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def to_json(self) -> JSON:
        """Everything but the label, the bytes by their hash."""
        return [self.sha256, self.kind, str(self.target), self.assumes.to_json(), self.launch.to_json()]

    def __str__(self) -> str:
        words = [f"{name} {fact.value}" for name, fact in self.assumes.facts]
        words += [f"{name} = {value!r}" for name, value in self.assumes.constants]
        assumes = f", {', '.join(words)}" if words else ""
        return f"{self.label} ({self.kind} for {self.target}{assumes})"

"""The binaries of one kernel: bytes, target, assumptions, launch info; and the choice between them for a call."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from silo.artifacts.runs_on import runs_on
from silo.core.decisions import Decision
from silo.core.launch_info import LaunchInfo
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import JSON
from silo.kinds.binary.binary_parameters import holds

__all__ = ["BinaryCode", "choose_code", "preference"]

# ---- One binary of a kernel: its bytes, target, assumptions and launch info ----


@dataclass(frozen=True)
class BinaryCode:
    """One binary of a kernel.

    ``label`` names it in messages (the file's name); ``kind`` is ``cubin``, ``hsaco`` or ``ptx``; ``target`` is the
    target it was built for; ``assumes`` are the facts that must hold for the arguments, and the constexprs folded into
    it.
    """

    label: str
    kind: str
    data: bytes
    target: Target
    assumes: Specialization
    launch: LaunchInfo

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def to_json(self) -> JSON:
        """Returns all fields but the label; the bytes as their hash."""
        return [self.sha256, self.kind, str(self.target), self.assumes.to_json(), self.launch.to_json()]

    def __str__(self) -> str:
        words = [f"{name} {fact.value}" for name, fact in self.assumes.facts]
        words += [f"{name} = {value!r}" for name, value in self.assumes.constants]
        assumes = f", {', '.join(words)}" if words else ""
        return f"{self.label} ({self.kind} for {self.target}{assumes})"


# ---- The choice between a kernel's binaries for a call on a device. Pure ----


def choose_code(
    codes: Sequence[BinaryCode], target: Target, given: Specialization
) -> tuple[BinaryCode | None, tuple[tuple[BinaryCode, Decision], ...]]:
    """Returns the best binary for a device and the facts of a call, and the decision on each in the order given."""
    decisions: list[tuple[BinaryCode, Decision]] = []
    for code in codes:
        runs = runs_on(code.target, target, code.kind)
        decisions.append((code, holds(code.assumes, given) if runs else runs))
    fitting = [code for code, decision in decisions if decision]
    return (max(fitting, key=preference) if fitting else None), tuple(decisions)


def preference(code: BinaryCode) -> tuple[int, bool, int]:
    """Returns the sort key of binaries that fit: more assumptions, then machine code, then the newer architecture.

    The first of equal binaries is chosen.
    """
    number = re.search(r"[0-9]+", code.target.arch)
    newer = int(number.group()) if number and code.target.kind == "cuda" else 0
    return len(code.assumes.facts) + len(code.assumes.constants), code.kind != "ptx", newer

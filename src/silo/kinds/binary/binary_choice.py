"""The choice among a kernel's binaries for a call on a device. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from silo.artifacts.runs_on import runs_on
from silo.core.decisions import Decision
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.kinds.binary.assumptions import holds
from silo.kinds.binary.binary_code import BinaryCode

__all__ = ["choose_code", "preference"]


def choose_code(
    codes: Sequence[BinaryCode], target: Target, given: Specialization
) -> tuple[BinaryCode | None, tuple[tuple[BinaryCode, Decision], ...]]:
    """The best binary for a device and the facts of a call, and the decision on each in the order given."""
    decisions: list[tuple[BinaryCode, Decision]] = []
    for code in codes:
        runs = runs_on(code.target, target, code.kind)
        decisions.append((code, holds(code.assumes, given) if runs else runs))
    fitting = [code for code, decision in decisions if decision]
    return (max(fitting, key=preference) if fitting else None), tuple(decisions)


def preference(code: BinaryCode) -> tuple[int, bool, int]:
    """What is preferred among binaries that fit: more assumptions, then machine code, then the newer architecture.

    The first one of equals is taken.
    """
    number = re.search(r"[0-9]+", code.target.arch)
    newer = int(number.group()) if number and code.target.kind == "cuda" else 0
    return len(code.assumes.facts) + len(code.assumes.constants), code.kind != "ptx", newer

"""Versions of Metal's language, and the newest version of a Mac."""

from __future__ import annotations

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.target import Target

__all__ = ["TARGETS", "runs_version", "version_of_system"]

TARGETS = ("3.0", "3.1", "3.2", "4.0")
_OF_SYSTEM = {13: "3.0", 14: "3.1", 15: "3.2", 26: "4.0"}  # by the first number of macOS's version


def version_of_system(macos: str) -> str | None:
    """The newest version that a macOS compiles; None before macOS 13.

    >>> version_of_system("15.3"), version_of_system("12.7")
    ('3.2', None)
    """
    first = macos.partition(".")[0]
    number = int(first) if first.isdigit() else 0
    return next((version for known, version in reversed(_OF_SYSTEM.items()) if number >= known), None)


def runs_version(built: Target, here: Target) -> Decision:
    """Decides whether a text for one version compiles on a system whose newest version is ``here``.

    >>> bool(runs_version(Target.parse("metal:3.1"), Target.parse("metal:3.2")))
    True
    """
    if built.kind != here.kind:
        return Rejected(f"built for {built.kind}, the device is {here.kind}")
    if built.arch <= here.arch:
        return Accepted(f"Metal {here.arch} compiles texts for {built.arch}")
    return Rejected(f"its text needs Metal {built.arch}, the system has {here.arch}")

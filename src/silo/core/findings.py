"""Findings: what an examination of an installation says of one part of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of the installation. ``state`` is ok, missing (needed) or optional (absent, and that may be fine)."""

    part: str
    state: str
    detail: str
    advice: str = ""

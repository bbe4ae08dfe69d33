"""Findings: the results of examining one part of an installation."""

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

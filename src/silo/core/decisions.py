"""Decisions about one candidate: accepted or rejected, always with the reason."""

from __future__ import annotations

from silo.frozen import frozen

__all__ = ["Accepted", "Decision", "Rejected"]


@frozen
class Accepted:
    """The candidate can be used."""

    reason: str = ""


@frozen
class Rejected:
    """The candidate cannot be used, and why."""

    reason: str

    def __bool__(self) -> bool:
        return False


Decision = Accepted | Rejected

"""Decisions with reasons: about one candidate, and the origin of a decided config (measured, rule, seed, ...)."""

from __future__ import annotations

from enum import Enum

from silo.frozen import frozen

__all__ = ["Accepted", "Decision", "Origin", "Rejected", "default_origin"]


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


class Origin(Enum):
    """The source of a config; the value is its name in tables, :attr:`phrase` its name in a sentence."""

    LOCK = "lock"
    BUCKET = "bucket winner"
    RULE = "dispatch rule"
    ELSEWHERE = "best elsewhere"
    HEURISTIC = "heuristic"
    FIRST = "first config"
    ONLY = "only config"

    @property
    def phrase(self) -> str:
        """The config, as a part of a sentence."""
        return _PHRASES[self]

    @property
    def measured(self) -> bool:
        """Whether trials chose the config, and not a guess."""
        return self in (Origin.LOCK, Origin.BUCKET)


_PHRASES = {
    Origin.LOCK: "the lock's entry",
    Origin.BUCKET: "the measured winner",
    Origin.RULE: "the dispatch rules' choice",
    Origin.ELSEWHERE: "the best of the nearest measurements",
    Origin.HEURISTIC: "the heuristic's choice",
    Origin.FIRST: "the first config",
    Origin.ONLY: "the only config",
}


def default_origin(configs: int, *, ruled: bool) -> Origin:
    """The source of the first of ``configs`` if nothing was measured; ``ruled`` if a heuristic made or ordered them.

    >>> default_origin(4, ruled=False).phrase
    'the first config'
    """
    if configs == 1:
        return Origin.ONLY
    return Origin.HEURISTIC if ruled else Origin.FIRST

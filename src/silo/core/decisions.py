"""Decisions with reasons: whether a candidate can be used, and the origin of a chosen config (measured, rule, ...)."""

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
    """The candidate cannot be used, for the stated ``reason``."""

    reason: str

    def __bool__(self) -> bool:
        return False


Decision = Accepted | Rejected


class Origin(Enum):
    """The decision source of a config. Each member's value is the source's text in the tables that commands print."""

    LOCK = "lock"
    BUCKET = "bucket winner"
    RULE = "dispatch rule"
    ELSEWHERE = "best elsewhere"
    HEURISTIC = "heuristic"
    FIRST = "first config"
    ONLY = "only config"

    @property
    def phrase(self) -> str:
        """The words for a config of this source in a sentence, for example ``the measured winner``."""
        return _PHRASES[self]

    @property
    def measured(self) -> bool:
        """Whether the config was chosen by trials, not guessed."""
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
    """Returns the decision source of the first of ``configs`` configs if no config was measured.

    ``ruled`` is True if a heuristic made or ordered the configs.

    >>> default_origin(4, ruled=False).phrase
    'the first config'
    """
    if configs == 1:
        return Origin.ONLY
    return Origin.HEURISTIC if ruled else Origin.FIRST

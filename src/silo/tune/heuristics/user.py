"""The author's own configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from silo.core.config import Config
from silo.core.values import Value
from silo.tune.heuristics.candidates import Candidates, Draft

__all__ = ["user"]


def user(configs: Iterable[Mapping[str, Value] | Config] = ()) -> Candidates:
    """The author's list, each config once; without one, the config that sets nothing.

    >>> [str(config) for config in user([{"BLOCK": 64}, {"BLOCK": 128}, {"BLOCK": 64}]).configs]
    ['BLOCK=64', 'BLOCK=128']
    """
    draft = Draft("user")
    for members in configs:
        draft.add(members if isinstance(members, Config) else Config.of(members), "the author's own")
    if not draft.count:
        draft.add(Config(), "nothing to choose: the compiler's own defaults")
    return draft.done()

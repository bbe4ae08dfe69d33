"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from silo.core.config import Config
from silo.core.protocols import Searcher
from silo.errors import TuneError
from silo.tune.search import exhaustive, random

__all__ = ["SEARCHERS", "make_searcher"]

SEARCHERS: dict[str, Callable[[Sequence[Config], str], Searcher]] = {
    "exhaustive": exhaustive.searcher,
    "random": random.searcher,
}


def make_searcher(name: str, configs: Sequence[Config], seed: str) -> Searcher:
    """The searcher called ``name`` over ``configs``; ``seed`` is usually the key of the study.

    Raises:
        TuneError: No searcher has this name.
    """
    try:
        make = SEARCHERS[name]
    except KeyError:
        raise TuneError(f"unknown searcher {name!r}; there are: {', '.join(SEARCHERS)}") from None
    return make(configs, seed)

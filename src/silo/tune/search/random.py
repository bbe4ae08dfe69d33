"""Every config, in an order that looks random and depends on the seed and the configs alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from silo.core.config import Config
from silo.tune.search.ordered import OrderedSearcher

__all__ = ["searcher"]


def searcher(configs: Sequence[Config], seed: str) -> OrderedSearcher:
    """Goes through ``configs`` without repetition in the order of a hash keyed by ``seed``.

    The config itself is the generator's counter: there is no state to save, the order is the same on every machine,
    and configs added to a space leave the order of the others alone.
    """
    key = hashlib.sha256(seed.encode()).digest()
    ordered = sorted(configs, key=lambda config: hashlib.sha256(key + config.order_key).digest())
    return OrderedSearcher("random", ordered)

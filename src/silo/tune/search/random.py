"""Every config, in an order that looks random and depends on the seed and the configs alone."""

from __future__ import annotations

import hashlib
from itertools import chain

from silo.tune.search.board import Board
from silo.tune.search.ordered import Ordered

__all__ = ["plan"]


def plan(board: Board) -> Ordered:
    """Seeds first, then all configs without repetition in the order of a hash keyed by the board's seed.

    The config itself is the generator's counter: there is no state to save, the order is the same on every machine,
    and configs added to a space leave the order of the others alone.
    """
    key = hashlib.sha256(board.seed.encode()).digest()
    hashes = [hashlib.sha256(key + config.order_key).digest() for config in board.configs]
    return Ordered(chain(board.hopeful_seeds(), sorted(range(len(board)), key=hashes.__getitem__)))

"""Neighbourhood descent: moves to the best of a few neighbours until none is better, then starts at another config."""

from __future__ import annotations

from itertools import chain

from silo.tuner.search.search_state import Asking, Questions, SearchState, draws

__all__ = ["plan"]

# The number of neighbours that are measured before the search may move. With more, many would be measured in vain; with
# fewer, no config could be compiled while another one is measured.
_BATCH = 4


def plan(board: SearchState) -> Asking:  # noqa: ARG001  # all searchers have this form
    """Returns a search that descends from each seed, then from random configs, until every config was measured."""
    return Asking(_descend)


def _descend(board: SearchState) -> Questions:
    lattice, generator = board.lattice, board.random("neighbourhood")
    visited: set[int] = set()
    for start in chain(board.hopeful_seeds(), draws(len(board), generator)):
        if start in visited:
            continue
        visited.add(start)
        yield [start]
        best, moved = start, True
        while moved:
            moved = False
            near = lattice.neighbours(best)
            generator.shuffle(near)
            for at in range(0, len(near), _BATCH):
                batch = near[at : at + _BATCH]
                visited.update(batch)
                yield batch
                nearest = min(batch, key=board.cost)
                if board.cost(nearest) < board.cost(best):
                    best, moved = nearest, True
                    break

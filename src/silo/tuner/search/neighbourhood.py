"""Neighbourhood descent: moves to the best of a few neighbours until none is better, then starts elsewhere."""

from __future__ import annotations

from itertools import chain

from silo.tuner.search.search_state import Asking, Questions, SearchState, draws

__all__ = ["plan"]

# The number of neighbours that are measured before the search may move: few enough that little is wasted beside the
# descent, enough that compiling goes on while one of them is measured.
_BATCH = 4


def plan(board: SearchState) -> Asking:  # noqa: ARG001  # all searchers have this form
    """Descends from each seed in turn, then from configs drawn at random, until every config was measured."""
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

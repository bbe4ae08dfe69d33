"""Spreading a number of elements over the dimensions of a block, by how much each one gains."""

from __future__ import annotations

from collections.abc import Mapping

from silo.heuristics.kernel_facts import SizeHints, is_reduction
from silo.heuristics.limits import max_block
from silo.heuristics.target_facts import TargetFacts

__all__ = ["spread_by_scores"]

# What a reduced dimension starts with.
_LEAST_REDUCED = 4


def spread_by_scores(
    target: TargetFacts, hints: SizeHints, scores: Mapping[str, float], elements: int
) -> dict[str, int]:
    """Blocks by dimension with about ``elements`` in all (PyTorch 2.13, ``match_target_block_product``).

    Parallel dimensions start at 1 and reduced ones at 4; the dimension with the highest score is doubled and its
    score halved, until there are enough. A parallel dimension without a score grows last. Where no dimension has a
    score, all have the same.
    """
    total = sum(scores.values())
    even = total == 0
    left = {dimension: (1.0 if even else score / total) for dimension, score in scores.items()}
    blocks: dict[str, int] = {}
    for dimension, score in scores.items():
        unscored = score == 0 and not even and not is_reduction(dimension)
        blocks[dimension] = 1 if unscored or not is_reduction(dimension) else _LEAST_REDUCED
    count = 1
    for size in blocks.values():
        count *= size
    while count < elements and left:
        dimension = max(left, key=lambda name: left[name])
        if blocks[dimension] >= min(max_block(dimension, target), hints[dimension]):
            del left[dimension]
            continue
        blocks[dimension] *= 2
        left[dimension] /= 2
        count *= 2
    return blocks

"""Sizes of reductions: the rows, the reduced elements, and the gain of a longer block along each."""

from __future__ import annotations

from collections.abc import Mapping

from silo.errors import SpaceError
from silo.heuristics.kernel_facts import KernelFacts, SizeHints

__all__ = ["MAX_PERSISTENT", "reduction_sizes", "scores_of", "short_rows"]

# Elements of a block that holds several whole rows (PyTorch 2.13).
MAX_PERSISTENT = 4096


def reduction_sizes(kind: str, hints: SizeHints | Mapping[str, int], facts: KernelFacts) -> SizeHints:
    """The sizes of a reduction; a kernel of single rows has x=1. ``SpaceError`` where nothing is reduced."""
    sizes = hints if isinstance(hints, SizeHints) else SizeHints.of({"x": 1, **hints})
    if not sizes.reduced or "x" not in sizes:
        raise SpaceError(f"a {kind} needs size hints for x and for what it reduces, r (or r0_); given: {sizes}")
    if "z" in sizes and not facts.native_matmul:
        raise SpaceError(f"a {kind} has rows along x and y, and there is a size hint for z")
    return sizes.replaced(x=1) if facts.single_row else sizes


def scores_of(sizes: SizeHints, facts: KernelFacts) -> Mapping[str, float]:
    """The tiling scores of every dimension; ``SpaceError`` where there are some and one is missing."""
    if not facts.tiling_scores:
        return dict.fromkeys(sizes, 1.0)
    missing = [name for name in sizes if name not in facts.tiling_scores]
    if missing:
        raise SpaceError(f"there are tiling scores, and none for {', '.join(missing)}")
    return facts.tiling_scores


def short_rows(rnumel: int) -> int:
    """How many short rows make a block of 512 elements."""
    return 2 * (256 // rnumel) if rnumel <= 256 else 1

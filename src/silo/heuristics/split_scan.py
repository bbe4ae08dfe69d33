"""Split scans: a long row is scanned by many programs, each of which waits for the sum of those before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from silo.core.target import Target
from silo.errors import SpaceError
from silo.heuristics.blocks import reduction_sizes
from silo.heuristics.candidates import Candidates, Draft, changed, descriptor_filter, deterministic_filter
from silo.heuristics.facts import KernelFacts, SizeHints, TargetFacts, TuningEffort
from silo.heuristics.reductions import looped_candidates

__all__ = ["split_scan"]


def split_scan(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Configs of a split scan along ``r`` of rows ``x``, one row a program, in blocks of at least 256 elements.

    The values follow PyTorch 2.13 (``triton_heuristics.split_scan``); XBLOCK is always 1, which the grid of such
    a kernel needs. ``SpaceError`` for other dimensions.

    >>> [config.as_dict()["R0_BLOCK"] for config in split_scan("cuda:sm_90", {"r": 1 << 20}).configs]
    [2048, 256, 512, 256]
    """
    known = TargetFacts.of(target)
    sizes = reduction_sizes("split scan", hints, facts)
    if len(sizes.sizes) != 2:
        raise SpaceError(f"a split scan has sizes x and r, not {sizes}")
    if facts.descriptor_minimums.get("XBLOCK", 1) > 1:
        raise SpaceError("descriptors ask for a longer XBLOCK than 1, and a split scan has one row a program")
    rows = sizes.replaced(x=1)
    made = looped_candidates("split scan", known, rows, replace(facts, dynamic_sizes=0), effort)
    draft = Draft(made.kind)
    for one in made:
        block = one.config.as_dict()["R0_BLOCK"]
        assert isinstance(block, int)
        raised = max(block, facts.min_scan_block)
        reason = one.reason if raised == block else f"{one.reason}; raised to {raised}"
        draft.add(changed(one.config, R0_BLOCK=raised), reason)
    made = descriptor_filter(replace(draft.done(), rejected=made.rejected), facts, known)
    return deterministic_filter(made, facts, effort).for_target(known)

"""Cooperative reductions: RSPLIT programs share one row and meet at a barrier across the grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from silo.core.target import Target
from silo.errors import SpaceError
from silo.heuristics.candidates import Candidates, changed
from silo.heuristics.filters import descriptor_filter, deterministic_filter, enforce_minimums
from silo.heuristics.kernel_facts import KernelFacts, SizeHints, TuningEffort
from silo.heuristics.limits import MAX_RSPLIT, last_pow2
from silo.heuristics.looped_reduction import looped_candidates
from silo.heuristics.persistent_reduction import persistent_candidates
from silo.heuristics.rows import reduction_sizes
from silo.heuristics.target_facts import TargetFacts

__all__ = ["cooperative_reduction"]


def cooperative_reduction(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Configs of a cooperative reduction; RSPLIT is how many programs share a row.

    Programs wait for one another, so no more may be started than run at once: RSPLIT times the rows never exceeds the
    multiprocessors (facts.persistent says whether a program holds its share whole). The launch has to be a cooperative
    one. The values follow PyTorch 2.13 (``triton_heuristics.cooperative_reduction``). ``SpaceError`` for other
    dimensions than x and r.

    >>> facts = KernelFacts(loads=2, reductions=1)
    >>> print(cooperative_reduction("cuda:sm_90", {"x": 2, "r": 1 << 20}, facts)[0].config)
    R0_BLOCK=2048, RSPLIT=64, XBLOCK=1, num_stages=1, num_warps=16
    """
    known = TargetFacts.of(target)
    sizes = reduction_sizes("cooperative reduction", hints, facts)
    if len(sizes.sizes) != 2:
        raise SpaceError(f"a cooperative reduction has sizes x and r, not {sizes}")
    split = max(1, min(sizes["r0_"], last_pow2(known.units) // sizes["x"], MAX_RSPLIT))
    share = sizes.replaced(r0_=sizes["r0_"] // split)
    row = share.rnumel if facts.persistent else 0
    own = replace(facts, dynamic_sizes=0)
    make = persistent_candidates if facts.persistent else looped_candidates
    made = make("cooperative reduction", known, share, own, effort)
    reason = f"{split} programs share a row: {split} x {sizes['x']} of {known.units} multiprocessors"
    found = tuple(
        replace(one, config=changed(one.config, RSPLIT=split), reason=f"{one.reason}; {reason}") for one in made
    )
    made = descriptor_filter(replace(made, found=found), facts, known, whole_row=row)
    made = deterministic_filter(made, facts, effort)
    return enforce_minimums(made, facts, known, whole_row=row).for_target(known)

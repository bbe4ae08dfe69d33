"""Mix-order reductions: one kernel reduces along rows, and along columns over RSPLIT_SIZE rows a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from silo.core.target import Target
from silo.errors import SpaceError
from silo.heuristics.candidates import Candidates, Draft, changed
from silo.heuristics.filters import descriptor_filter, deterministic_filter
from silo.heuristics.kernel_facts import KernelFacts, SizeHints, TuningEffort
from silo.heuristics.persistent_reduction import persistent_candidates
from silo.heuristics.rows import reduction_sizes
from silo.heuristics.target_facts import TargetFacts

__all__ = ["mix_order"]


def mix_order(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts,
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Configs of a mix-order reduction, which sets XBLOCK, RSPLIT_SIZE and NUM_STAGES, its own pipelining.

    The values follow PyTorch 2.13, but for XBLOCK, which divides RSPLIT_SIZE
    and is as large as descriptors ask.
    ``SpaceError`` for a facts.rsplit_size that is not a power of two, or for several reduced dimensions.

    >>> facts = KernelFacts(loads=2, reductions=1, rsplit_size=256)
    >>> print(mix_order("cuda:sm_90", {"x": 32768, "r": 1024}, facts)[0].config)
    NUM_STAGES=3, RSPLIT_SIZE=256, XBLOCK=8, num_stages=1, num_warps=4
    """
    known = TargetFacts.of(target)
    sizes = reduction_sizes("mix-order reduction", hints, facts)
    split = facts.rsplit_size
    if split < 1 or split & (split - 1):
        raise SpaceError(f"a mix-order reduction needs facts with rsplit_size, a power of two; it is {split}")
    if len(sizes.sizes) != 2:
        raise SpaceError(f"a mix-order reduction has sizes x and r, not {sizes}")
    made = persistent_candidates("mix-order reduction", known, sizes, facts, effort)
    made = descriptor_filter(made, facts, known, whole_row=sizes.rnumel)
    rnumel = sizes["r0_"]
    least = facts.descriptor_minimums.get("XBLOCK", 1)
    block = max(min(max(split // 32, 4 if rnumel <= 512 else 1), 16, split), least)
    if block > split:
        raise SpaceError(f"descriptors ask for XBLOCK={least} at least, and it has to divide rsplit_size={split}")
    stages = min(max(split // block // 4, 1), (2 if rnumel > 8192 else 3) if facts.several_stages else 1)
    draft = Draft(made.kind)
    for candidate in made:
        config = changed(candidate.config, RSPLIT_SIZE=split, XBLOCK=block, NUM_STAGES=stages)
        reason = f"{block} of the {split} rows of a program at a time, {stages} in flight"
        before = dict(config.options)["num_warps"]
        assert isinstance(before, int)
        if rnumel <= 1024:
            warps = max(before // 2, 1)
            draft.add(changed(config, num_warps=warps), f"{reason}; fewer warps, so that more programs fit")
            if effort.exhaustive:
                draft.add(changed(config, num_warps=2), f"{reason}; two warps")
        else:
            draft.add(config, reason)
            if effort.exhaustive and before < (16 if known.is_hip else 32):
                draft.add(changed(config, num_warps=before * 2), f"{reason}; twice the warps for long rows")
    done = draft.done()
    return deterministic_filter(replace(done, rejected=made.rejected), facts, effort).for_target(known)

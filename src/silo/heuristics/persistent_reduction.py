"""Persistent reductions: whole rows in one block, so that each is read once and there is no loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.target import Target
from silo.errors import SpaceError
from silo.heuristics.blocks import reduction_config, tiled_reduction_config
from silo.heuristics.candidates import Candidates, Draft
from silo.heuristics.filters import descriptor_filter, deterministic_filter, enforce_minimums
from silo.heuristics.kernel_facts import KernelFacts, ReductionHint, SizeHints, TuningEffort, block_name
from silo.heuristics.native_matmul import native_matmul
from silo.heuristics.rows import MAX_PERSISTENT, reduction_sizes, scores_of, short_rows
from silo.heuristics.target_facts import TargetFacts
from silo.heuristics.tiling import spread_by_scores

__all__ = ["persistent_candidates", "persistent_reduction"]

_ROWS = (1, 8, 32, 128)
_ROWS_HIP = (1, 4, 8, 16, 32, 64, 128, 256)
# Rows that a kernel takes itself to have at least, where its results may not depend on their number.
_BATCH_INVARIANT_ROWS = 4096


def persistent_reduction(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Configs of a reduction that holds whole rows: how many of them, with how many warps; no block of what is reduced.

    The values follow PyTorch 2.13 (``triton_heuristics.persistent_reduction``). ``SpaceError`` for rows that no
    block can hold, and for a mix-order reduction, which has a heuristic of its own.

    >>> facts = KernelFacts(loads=2, reductions=1, reduction_hint=ReductionHint.INNER)
    >>> print(persistent_reduction("cuda:sm_90", {"x": 4096, "r": 256}, facts)[0].config)
    XBLOCK=4, num_stages=1, num_warps=1
    """
    known = TargetFacts.of(target)
    sizes = reduction_sizes("persistent reduction", hints, facts)
    if facts.rsplit_size:
        raise SpaceError("a reduction with rsplit_size is a mix-order reduction: ask heuristics.mix_order")
    if facts.native_matmul:
        return native_matmul(known, sizes, facts, effort, persistent=True)
    made = persistent_candidates("persistent reduction", known, sizes, facts, effort)
    made = descriptor_filter(made, facts, known, whole_row=sizes.rnumel)
    made = deterministic_filter(made, facts, effort)
    return enforce_minimums(made, facts, known, whole_row=sizes.rnumel).for_target(known)


def persistent_candidates(
    kind: str, target: TargetFacts, sizes: SizeHints, facts: KernelFacts, effort: TuningEffort
) -> Candidates:
    """The candidates before any filter."""
    if effort.batch_invariant and not facts.single_row:
        sizes = sizes.replaced(x=max(sizes["x"], _BATCH_INVARIANT_ROWS))
    draft = Draft(kind)
    if "y" in sizes:
        _tiles(draft, target, sizes, facts)
    else:
        _rows(draft, target, sizes, facts, effort)
    blocks = tuple(block_name(dimension) for dimension in sizes.reduced)
    made = draft.done()
    found = tuple(replace(one, config=_without(one.config, blocks)) for one in made)
    return replace(made, found=tuple({one.config: one for one in reversed(found)}.values())[::-1])


def _without(config: Config, names: tuple[str, ...]) -> Config:
    return Config(tuple(item for item in config.values if item[0] not in names), config.options)


def _tiles(draft: Draft, target: TargetFacts, sizes: SizeHints, facts: KernelFacts) -> None:
    given = scores_of(sizes, facts)
    scores = {name: given[name] for name in ("x", "y")}
    for rows in _ROWS_HIP if target.is_hip else _ROWS:
        if rows > 1 and rows * sizes.rnumel > MAX_PERSISTENT:
            continue
        blocks = spread_by_scores(target, sizes, scores, rows)
        made = tiled_reduction_config(target, sizes, blocks["x"], blocks["y"], sizes.rnumel)
        draft.add(made, f"whole rows, {rows} of them spread over x and y")


def _rows(draft: Draft, target: TargetFacts, sizes: SizeHints, facts: KernelFacts, effort: TuningEffort) -> None:
    x, rnumel, hint = sizes["x"], sizes.rnumel, facts.reduction_hint
    counts = [
        rows
        for rows in (_ROWS_HIP if target.is_hip else _ROWS)
        if rows == 1 or (rnumel * rows <= MAX_PERSISTENT and rows <= x)
    ]
    chosen, reason = counts, "whole rows, {} of them"
    if not effort.exhaustive:
        if hint is ReductionHint.INNER and rnumel >= 256:
            if rnumel <= 1024 and x // 8 >= 128 and not facts.rsplit_size:
                draft.add(*_many_contiguous(target, sizes, facts))
                return
            chosen, reason = counts[:1], "one contiguous row, which keeps every warp busy"
        elif hint is ReductionHint.OUTER:
            chosen, reason = counts[-1:], "whole strided rows, {} side by side"
        elif hint is ReductionHint.OUTER_TINY:
            chosen = []
    for rows in chosen:
        made = reduction_config(target, sizes, rows, rnumel, register_intensive=True, reduction_hint=hint)
        draft.add(made, reason.format(rows))
    tiny = hint is ReductionHint.OUTER_TINY if not effort.exhaustive else target.is_hip
    if tiny:
        draft.add(reduction_config(target, sizes, short_rows(rnumel), rnumel), "many short rows, whole")


def _many_contiguous(target: TargetFacts, sizes: SizeHints, facts: KernelFacts) -> tuple[Config | Rejected, str]:
    """Many contiguous rows of 256 to 1024 elements."""
    x, rnumel = sizes["x"], sizes.rnumel
    if not target.is_xpu:
        # One warp reduces a row without shared memory.
        made = reduction_config(
            target,
            sizes,
            min(1024 // rnumel, 8),
            rnumel,
            num_warps=1,
            min_warps=1,
            register_intensive=True,
            reduction_hint=facts.reduction_hint,
        )
        return made, "many contiguous rows: one warp for a few of them, no shared memory"
    rows = 1 if x // 8 < 128 or facts.loads + facts.stores >= 5 else 8
    made = reduction_config(target, sizes, rows, rnumel, register_intensive=True)
    return made, "Intel: many contiguous rows, as many warps as their elements ask for"

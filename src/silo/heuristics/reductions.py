"""Heuristics that propose configs for reductions, for scans of long rows, and for matrix products by ``tl.dot``.

A looped reduction reads a row block by block, a persistent one as one block. In a cooperative reduction several
programs share a row. A mix-order reduction reduces along rows and along columns in one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.device import Target
from silo.core.traced import next_pow2
from silo.errors import SpaceError
from silo.heuristics.blocks import (
    MAX_PERSISTENT,
    reduction_config,
    reduction_sizes,
    scores_of,
    short_rows,
    spread_by_scores,
    tiled_reduction_config,
)
from silo.heuristics.candidates import (
    MAX_ELEMENTS,
    MAX_RSPLIT,
    MIN_DOT_BLOCK,
    Candidates,
    Draft,
    HeuristicCandidate,
    changed,
    descriptor_filter,
    deterministic_filter,
    enforce_minimums,
    last_pow2,
)
from silo.heuristics.facts import KernelFacts, ReductionHint, SizeHints, TargetFacts, TuningEffort, block_name

__all__ = [
    "cooperative_reduction",
    "looped_candidates",
    "mix_order",
    "native_matmul",
    "persistent_candidates",
    "persistent_reduction",
    "reduction",
    "split_scan",
]

# Each row: the block sizes of x, y and r0, num_warps, num_stages (PyTorch 2.13, triton_native_mm_configs).
_TABLE = (
    (32, 32, 16, 2, 1),
    (32, 32, 128, 4, 2),
    (32, 64, 32, 8, 5),
    (64, 32, 32, 8, 5),
    (64, 32, 128, 4, 5),
    (64, 64, 16, 4, 2),
    (64, 64, 32, 4, 2),
    (64, 64, 64, 8, 3),
    (64, 64, 128, 4, 5),
    (64, 128, 32, 4, 3),
    (64, 128, 32, 8, 4),
    (64, 128, 64, 4, 3),
    (64, 128, 128, 4, 4),
    (128, 64, 32, 4, 3),
    (128, 64, 32, 8, 4),
    (128, 128, 32, 8, 2),
    (128, 128, 32, 4, 3),
    (128, 128, 64, 4, 3),
    (128, 128, 64, 8, 5),
)


def native_matmul(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
    *,
    persistent: bool = False,
) -> Candidates:
    """Returns configs of a product of ``y`` x ``r`` and ``r`` x ``x`` matrices, with ``z`` for batches of them.

    The values are the 19 of PyTorch 2.13, for all sizes; a batched product processes one batch per program. With
    ``persistent`` the whole inner dimension is one block, which the configs do not set, and block sizes of x and y are
    halved, not below 16, until the tile fits. Raises SpaceError for other dimensions.

    >>> len(native_matmul("cuda:sm_90", {"x": 4096, "y": 4096, "r": 4096}))
    19
    """
    facts_of_target, sizes = TargetFacts.of(target), SizeHints.of(hints)
    if sizes.reduced != ("r0_",) or "y" not in sizes:
        raise SpaceError(f"a product of matrices has sizes x, y and r (and z for batches), not {sizes}")
    inner = max(sizes.rnumel, MIN_DOT_BLOCK)
    draft = Draft("native matmul")
    for x, y, r, warps, stages in _TABLE:
        batch = {"ZBLOCK": 1} if "z" in sizes else {}
        blocks = {"XBLOCK": x, "YBLOCK": y, **({} if persistent else {"R0_BLOCK": r}), **batch}
        reason = f"a tile of {y} x {x}" + (", the whole inner dimension" if persistent else f", {r} at a time")
        if persistent:
            _shrink(blocks, inner)
        config = Config.of({**blocks, "num_warps": warps, "num_stages": stages})
        if persistent and math.prod(blocks.values()) * inner > MAX_ELEMENTS:
            continue
        draft.add(config, reason)
    if not draft.count:
        raise SpaceError(
            f"an inner dimension of {inner} does not fit one block beside 16 x 16 elements: {MAX_ELEMENTS} fit; "
            "use a kernel that loops over it"
        )
    candidates = descriptor_filter(draft.done(), facts, facts_of_target, whole_row=inner if persistent else 0)
    candidates = deterministic_filter(candidates, facts, effort)
    return replace(candidates, kind="native matmul").for_target(facts_of_target)


def _shrink(blocks: dict[str, int], inner: int) -> None:
    """Halves the larger block size of x and y until the tile fits or both are 16. If they are equal, x is halved."""
    while math.prod(blocks.values()) * inner > MAX_ELEMENTS:
        long = [name for name in ("XBLOCK", "YBLOCK") if blocks[name] > MIN_DOT_BLOCK]
        if not long:
            return
        blocks[max(long, key=lambda name: blocks[name])] //= 2


# ---- Looped reductions: a loop reduces a row one block after the other ----


def reduction(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Returns configs of a looped reduction over ``r0_`` (and ``r1_``) of rows ``x`` (and ``y``).

    The values follow PyTorch 2.13 (``triton_heuristics.reduction``). A kernel whose reduction hint describes its rows'
    layout gets one config, any other kernel six. Raises SpaceError for other dimensions.

    >>> facts = KernelFacts(loads=2, reductions=1, reduction_hint=ReductionHint.INNER)
    >>> print(reduction("cuda:sm_90", {"x": 4096, "r": 4096}, facts)[0].config)
    R0_BLOCK=2048, XBLOCK=1, num_stages=1, num_warps=16
    """
    facts_of_target = TargetFacts.of(target)
    sizes = reduction_sizes("reduction", hints, facts)
    if facts.native_matmul:
        return native_matmul(facts_of_target, sizes, facts, effort)
    candidates = looped_candidates("reduction", facts_of_target, sizes, facts, effort)
    candidates = descriptor_filter(candidates, facts, facts_of_target)
    candidates = deterministic_filter(candidates, facts, effort)
    return enforce_minimums(candidates, facts, facts_of_target).for_target(facts_of_target)


@dataclass(frozen=True)
class _Maker:
    """Makes a config for one kernel, when called with a number of rows and a number of reduced elements.

    Without a dimension ``y``, the block has about this many rows and elements. With ``y``, the tiling scores distribute
    the product of both numbers over the dimensions.
    """

    target: TargetFacts
    sizes: SizeHints
    facts: KernelFacts
    register_intensive: bool

    def __call__(
        self,
        x: int,
        r: int,
        *,
        num_warps: int | None = None,
        register_intensive: bool | None = None,
        waves_per_eu: int | None = None,
    ) -> Config | Rejected:
        intensive = self.register_intensive if register_intensive is None else register_intensive
        if "y" not in self.sizes:
            return reduction_config(
                self.target,
                self.sizes,
                x,
                r,
                num_warps=num_warps,
                register_intensive=intensive,
                reduction_hint=self.facts.reduction_hint,
                waves_per_eu=waves_per_eu,
            )
        blocks = spread_by_scores(self.target, self.sizes, scores_of(self.sizes, self.facts), x * r)
        return tiled_reduction_config(
            self.target,
            self.sizes,
            blocks["x"],
            blocks["y"],
            blocks["r0_"],
            register_intensive=intensive,
            waves_per_eu=waves_per_eu,
        )


def looped_candidates(
    kind: str, target: TargetFacts, sizes: SizeHints, facts: KernelFacts, effort: TuningEffort
) -> Candidates:
    """Returns the candidates of a looped reduction before any filter."""
    rnumel = sizes.rnumel
    work = facts.loads + facts.reductions
    busy = sizes["x"] >= 1024 and work >= 10  # many registers are in use: each load and each sum needs some
    blackwell = target.kind == "cuda" and target.major >= 10
    longest = 1024 if busy or blackwell else 2048
    make = _Maker(target, sizes, facts, busy)
    draft = Draft(kind)
    if facts.persistent_block and work <= 8:
        draft.add(make(max(4096 // rnumel, 1), min(rnumel, 32768)), "the whole row in one block, if it fits")
    contiguous = (2 if rnumel <= 2048 else 1, min(rnumel, longest))
    tiny = (short_rows(rnumel), min(rnumel, longest))
    hint = facts.reduction_hint
    single = "y" not in sizes and not effort.exhaustive
    if not single or hint in (ReductionHint.INNER, ReductionHint.DEFAULT):
        draft.add(make(*contiguous), "a few contiguous rows, as long a block as registers allow")
    if not single or hint in (ReductionHint.OUTER, ReductionHint.DEFAULT):
        _outer(draft, make)
    if not single or hint in (ReductionHint.OUTER_TINY, ReductionHint.DEFAULT):
        draft.add(make(*tiny), "many short rows")
    if single and hint is not ReductionHint.DEFAULT:
        return draft.done()
    draft.add(make(64, 64, register_intensive=False), "a square block")
    draft.add(make(8, 512, register_intensive=False), "eight rows in long blocks")
    draft.add(make(64, 4, num_warps=8, register_intensive=False), "many rows in short blocks, for heavy iterations")
    if target.is_hip:
        draft.add(make(1024, 8, num_warps=4, register_intensive=False, waves_per_eu=2), "AMD: 1024 rows, two waves")
        draft.add(make(512, 8, num_warps=4, register_intensive=False, waves_per_eu=1), "AMD: 512 rows, one wave")
        return _beside_persistent(draft.done(), facts)
    return draft.done()


def _beside_persistent(candidates: Candidates, facts: KernelFacts) -> Candidates:
    """Drops x blocks with which a persistent sub-kernel of the same combo would hold more than 4096 elements.

    Such configs take hours to compile. If no config has few enough rows, the config with the fewest rows stays.
    """
    if facts.longest_persistent <= 0:
        return candidates
    draft = Draft(candidates.kind)
    for candidate in candidates:
        if _rows_of(candidate) * facts.longest_persistent <= MAX_PERSISTENT:
            draft.add(candidate.config, candidate.reason)
        else:
            draft.reject(
                candidate, f"with rows of {facts.longest_persistent} in one block it would compile for very long"
            )
    if not draft.count:
        fewest_rows = min(candidates, key=_rows_of)
        draft.add(fewest_rows.config, f"{fewest_rows.reason}; the fewest rows there are")
    return replace(draft.done(), rejected=(*candidates.rejected, *draft.done().rejected))


def _rows_of(candidate: HeuristicCandidate) -> int:
    value = dict(candidate.config.values).get("XBLOCK", 0)
    return value if isinstance(value, int) else 0


def _outer(draft: Draft, make: _Maker) -> None:
    """Adds configs for rows that are adjacent in memory: a long x block makes loads contiguous."""
    facts, x, rnumel = make.facts, make.sizes["x"], make.sizes.rnumel
    if make.target.is_hip:
        draft.add(make(64, 8), "strided rows: 64 of them side by side")
    elif x <= 1024:
        draft.add(make(max(min(x // 128, 8), 2), min(rnumel, 64)), "strided rows, few: short x blocks fill the device")
    elif x // 4096 <= 8:
        draft.add(make(16, 32), "strided rows: 16 side by side")
    elif facts.dynamic_sizes > 1:
        r = max(min(rnumel // 64, 64), 8)
        draft.add(make(64, r), "strided rows, sizes known at the call alone: few iterations")
    elif facts.dynamic_sizes == 1:
        r = 1 if facts.loads >= 3 else min(next_pow2(max(rnumel, 128) // 128), 8)
        draft.add(make(64, r), "strided rows, a size known at the call alone: registers are short")
    else:
        rows = max(min(256, next_pow2(x // 4096)), 64)
        if facts.loads < 4 or rnumel <= 128:
            draft.add(make(rows, 512 // rows), "strided rows: as many side by side as there are many")
        else:
            r = 64 if rnumel >= 2048 else 32
            draft.add(make(min(rows, 32), r, num_warps=4), "strided rows, heavy iterations: few of them")


# ---- Persistent reductions: a block holds whole rows, so each is read once, without a loop ----

_ROWS = (1, 8, 32, 128)
_ROWS_HIP = (1, 4, 8, 16, 32, 64, 128, 256)
# The heuristic assumes at least this number of rows for a batch-invariant kernel, so that all smaller numbers of rows
# get the same config: results must not depend on the number of rows.
_BATCH_INVARIANT_ROWS = 4096


def persistent_reduction(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Returns configs of a reduction whose programs hold whole rows.

    The configs set the number of rows and of warps, and no block size along the reduced axis.

    The values follow PyTorch 2.13 (``triton_heuristics.persistent_reduction``). Raises SpaceError for rows that no
    block can hold, and for a mix-order reduction, which has its own heuristic.
    """
    facts_of_target = TargetFacts.of(target)
    sizes = reduction_sizes("persistent reduction", hints, facts)
    if facts.rsplit_size:
        raise SpaceError("a reduction with rsplit_size is a mix-order reduction: ask heuristics.mix_order")
    if facts.native_matmul:
        return native_matmul(facts_of_target, sizes, facts, effort, persistent=True)
    candidates = persistent_candidates("persistent reduction", facts_of_target, sizes, facts, effort)
    candidates = descriptor_filter(candidates, facts, facts_of_target, whole_row=sizes.rnumel)
    candidates = deterministic_filter(candidates, facts, effort)
    return enforce_minimums(candidates, facts, facts_of_target, whole_row=sizes.rnumel).for_target(facts_of_target)


def persistent_candidates(
    kind: str, target: TargetFacts, sizes: SizeHints, facts: KernelFacts, effort: TuningEffort
) -> Candidates:
    """Returns the candidates of a persistent reduction before any filter."""
    if effort.batch_invariant and not facts.single_row:
        sizes = sizes.replaced(x=max(sizes["x"], _BATCH_INVARIANT_ROWS))
    draft = Draft(kind)
    if "y" in sizes:
        _tiles(draft, target, sizes, facts)
    else:
        _rows(draft, target, sizes, facts, effort)
    blocks = tuple(block_name(dimension) for dimension in sizes.reduced)
    drafted = draft.done()
    unblocked = tuple(replace(candidate, config=_without(candidate.config, blocks)) for candidate in drafted)
    return replace(
        drafted, found=tuple({candidate.config: candidate for candidate in reversed(unblocked)}.values())[::-1]
    )


def _without(config: Config, names: tuple[str, ...]) -> Config:
    return Config(tuple(item for item in config.values if item[0] not in names), config.options)


def _tiles(draft: Draft, target: TargetFacts, sizes: SizeHints, facts: KernelFacts) -> None:
    scored = scores_of(sizes, facts)
    scores = {name: scored[name] for name in ("x", "y")}
    for rows in _ROWS_HIP if target.is_hip else _ROWS:
        if rows > 1 and rows * sizes.rnumel > MAX_PERSISTENT:
            continue
        blocks = spread_by_scores(target, sizes, scores, rows)
        config = tiled_reduction_config(target, sizes, blocks["x"], blocks["y"], sizes.rnumel)
        draft.add(config, f"whole rows, {rows} of them spread over x and y")


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
        config = reduction_config(target, sizes, rows, rnumel, register_intensive=True, reduction_hint=hint)
        draft.add(config, reason.format(rows))
    tiny = hint is ReductionHint.OUTER_TINY if not effort.exhaustive else target.is_hip
    if tiny:
        draft.add(reduction_config(target, sizes, short_rows(rnumel), rnumel), "many short rows, whole")


def _many_contiguous(target: TargetFacts, sizes: SizeHints, facts: KernelFacts) -> tuple[Config | Rejected, str]:
    """Returns a config, with its reason, for many contiguous rows of 256 to 1024 elements."""
    x, rnumel = sizes["x"], sizes.rnumel
    if not target.is_xpu:
        # One warp reduces a row without shared memory.
        config = reduction_config(
            target,
            sizes,
            min(1024 // rnumel, 8),
            rnumel,
            num_warps=1,
            min_warps=1,
            register_intensive=True,
            reduction_hint=facts.reduction_hint,
        )
        return config, "many contiguous rows: one warp for a few of them, no shared memory"
    rows = 1 if x // 8 < 128 or facts.loads + facts.stores >= 5 else 8
    config = reduction_config(target, sizes, rows, rnumel, register_intensive=True)
    return config, "Intel: many contiguous rows, as many warps as their elements ask for"


# ---- Cooperative reductions: RSPLIT programs share one row, and wait for one another ----


def cooperative_reduction(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Returns configs of a cooperative reduction; RSPLIT is the number of programs that share a row.

    Programs wait for one another, so no more may be started than run at once. RSPLIT times the number of rows is
    therefore at most the number of multiprocessors; if there are more rows than that, RSPLIT is 1. With
    ``facts.persistent`` a program holds its share of a row in one block. The launch must be cooperative. The values
    follow PyTorch 2.13 (``triton_heuristics.cooperative_reduction``). Raises SpaceError for other dimensions than x and
    r.

    >>> facts = KernelFacts(loads=2, reductions=1)
    >>> print(cooperative_reduction("cuda:sm_90", {"x": 2, "r": 1 << 20}, facts)[0].config)
    R0_BLOCK=2048, RSPLIT=64, XBLOCK=1, num_stages=1, num_warps=16
    """
    facts_of_target = TargetFacts.of(target)
    sizes = reduction_sizes("cooperative reduction", hints, facts)
    if len(sizes.sizes) != 2:
        raise SpaceError(f"a cooperative reduction has sizes x and r, not {sizes}")
    split = max(1, min(sizes["r0_"], last_pow2(facts_of_target.units) // sizes["x"], MAX_RSPLIT))
    share = sizes.replaced(r0_=sizes["r0_"] // split)
    row = share.rnumel if facts.persistent else 0
    own = replace(facts, dynamic_sizes=0)
    make = persistent_candidates if facts.persistent else looped_candidates
    candidates = make("cooperative reduction", facts_of_target, share, own, effort)
    reason = f"{split} programs share a row: {split} x {sizes['x']} of {facts_of_target.units} multiprocessors"
    extended = tuple(
        replace(candidate, config=changed(candidate.config, RSPLIT=split), reason=f"{candidate.reason}; {reason}")
        for candidate in candidates
    )
    candidates = descriptor_filter(replace(candidates, found=extended), facts, facts_of_target, whole_row=row)
    candidates = deterministic_filter(candidates, facts, effort)
    return enforce_minimums(candidates, facts, facts_of_target, whole_row=row).for_target(facts_of_target)


# ---- Mix-order reductions: one kernel reduces along rows, and along columns over RSPLIT_SIZE rows per program ----


def mix_order(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts,
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Returns configs of a mix-order reduction.

    Each sets XBLOCK, RSPLIT_SIZE and NUM_STAGES (the kernel's own pipelining).

    The values follow PyTorch 2.13, except for XBLOCK, which divides RSPLIT_SIZE and is at least as large as descriptors
    require. Raises SpaceError for a facts.rsplit_size that is not a power of two, or for several reduced dimensions.

    >>> facts = KernelFacts(loads=2, reductions=1, rsplit_size=256)
    >>> print(mix_order("cuda:sm_90", {"x": 32768, "r": 1024}, facts)[0].config)
    NUM_STAGES=3, RSPLIT_SIZE=256, XBLOCK=8, num_stages=1, num_warps=4
    """
    facts_of_target = TargetFacts.of(target)
    sizes = reduction_sizes("mix-order reduction", hints, facts)
    split = facts.rsplit_size
    if split < 1 or split & (split - 1):
        raise SpaceError(f"a mix-order reduction needs facts with rsplit_size, a power of two; it is {split}")
    if len(sizes.sizes) != 2:
        raise SpaceError(f"a mix-order reduction has sizes x and r, not {sizes}")
    candidates = persistent_candidates("mix-order reduction", facts_of_target, sizes, facts, effort)
    candidates = descriptor_filter(candidates, facts, facts_of_target, whole_row=sizes.rnumel)
    rnumel = sizes["r0_"]
    min_xblock = facts.descriptor_minimums.get("XBLOCK", 1)
    block = max(min(max(split // 32, 4 if rnumel <= 512 else 1), 16, split), min_xblock)
    if block > split:
        raise SpaceError(f"descriptors ask for XBLOCK={min_xblock} at least, and it has to divide rsplit_size={split}")
    stages = min(max(split // block // 4, 1), (2 if rnumel > 8192 else 3) if facts.several_stages else 1)
    draft = Draft(candidates.kind)
    for candidate in candidates:
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
            if effort.exhaustive and before < (16 if facts_of_target.is_hip else 32):
                draft.add(changed(config, num_warps=before * 2), f"{reason}; twice the warps for long rows")
    done = draft.done()
    return deterministic_filter(replace(done, rejected=candidates.rejected), facts, effort).for_target(facts_of_target)


# ---- Split scans: a long row is scanned by many programs, each of which waits for the sum of its predecessors ----


def split_scan(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Returns configs of a split scan along ``r`` of rows ``x``: one row per program, blocks of at least 256 elements.

    The values follow PyTorch 2.13 (``triton_heuristics.split_scan``). XBLOCK is always 1, which the grid of a split
    scan requires. Raises SpaceError for other dimensions.

    >>> [config.as_dict()["R0_BLOCK"] for config in split_scan("cuda:sm_90", {"r": 1 << 20}).configs]
    [2048, 256, 512, 256]
    """
    facts_of_target = TargetFacts.of(target)
    sizes = reduction_sizes("split scan", hints, facts)
    if len(sizes.sizes) != 2:
        raise SpaceError(f"a split scan has sizes x and r, not {sizes}")
    if facts.descriptor_minimums.get("XBLOCK", 1) > 1:
        raise SpaceError("descriptors ask for a longer XBLOCK than 1, and a split scan has one row a program")
    rows = sizes.replaced(x=1)
    candidates = looped_candidates("split scan", facts_of_target, rows, replace(facts, dynamic_sizes=0), effort)
    draft = Draft(candidates.kind)
    for candidate in candidates:
        block = candidate.config.as_dict()["R0_BLOCK"]
        assert isinstance(block, int)
        raised = max(block, facts.min_scan_block)
        reason = candidate.reason if raised == block else f"{candidate.reason}; raised to {raised}"
        draft.add(changed(candidate.config, R0_BLOCK=raised), reason)
    candidates = descriptor_filter(replace(draft.done(), rejected=candidates.rejected), facts, facts_of_target)
    return deterministic_filter(candidates, facts, effort).for_target(facts_of_target)

"""Looped reductions: rows of ``x`` (and ``y``) reduced along ``r0_`` (and ``r1_``), a block of the row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.target import Target
from silo.core.traced import next_pow2
from silo.heuristics.blocks import reduction_config, tiled_reduction_config
from silo.heuristics.candidates import Candidates, Draft, HeuristicCandidate
from silo.heuristics.filters import descriptor_filter, deterministic_filter, enforce_minimums
from silo.heuristics.kernel_facts import KernelFacts, ReductionHint, SizeHints, TuningEffort
from silo.heuristics.native_matmul import native_matmul
from silo.heuristics.rows import MAX_PERSISTENT, reduction_sizes, scores_of, short_rows
from silo.heuristics.target_facts import TargetFacts
from silo.heuristics.tiling import spread_by_scores

__all__ = ["looped_candidates", "reduction"]


def reduction(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Configs of a looped reduction over ``r0_`` (and ``r1_``) of rows ``x`` (and ``y``).

    The values follow PyTorch 2.13 (``triton_heuristics.reduction``). A kernel whose reduction hint says how its
    rows lie in memory gets one config, any other six. ``SpaceError`` for other dimensions.

    >>> facts = KernelFacts(loads=2, reductions=1, reduction_hint=ReductionHint.INNER)
    >>> print(reduction("cuda:sm_90", {"x": 4096, "r": 4096}, facts)[0].config)
    R0_BLOCK=2048, XBLOCK=1, num_stages=1, num_warps=16
    """
    known = TargetFacts.of(target)
    sizes = reduction_sizes("reduction", hints, facts)
    if facts.native_matmul:
        return native_matmul(known, sizes, facts, effort)
    made = looped_candidates("reduction", known, sizes, facts, effort)
    made = descriptor_filter(made, facts, known)
    made = deterministic_filter(made, facts, effort)
    return enforce_minimums(made, facts, known).for_target(known)


@dataclass(frozen=True)
class _Maker:
    """Makes configs for one kernel: for tiles by their scores, for rows directly."""

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
    """The candidates before any filter."""
    rnumel = sizes.rnumel
    work = facts.loads + facts.reductions
    busy = sizes["x"] >= 1024 and work >= 10  # each load and each sum holds registers
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
    """Without x blocks that make a sub-kernel of the same combo hold more than 4096 elements: they compile for hours.

    The config with the fewest rows stays where none is short enough.
    """
    if facts.longest_persistent <= 0:
        return candidates
    draft = Draft(candidates.kind)
    for one in candidates:
        if _rows_of(one) * facts.longest_persistent <= MAX_PERSISTENT:
            draft.add(one.config, one.reason)
        else:
            draft.reject(one, f"with rows of {facts.longest_persistent} in one block it would compile for very long")
    if not draft.count:
        least = min(candidates, key=_rows_of)
        draft.add(least.config, f"{least.reason}; the fewest rows there are")
    return replace(draft.done(), rejected=(*candidates.rejected, *draft.done().rejected))


def _rows_of(candidate: HeuristicCandidate) -> int:
    value = dict(candidate.config.values).get("XBLOCK", 0)
    return value if isinstance(value, int) else 0


def _outer(draft: Draft, make: _Maker) -> None:
    """Rows that lie side by side: a long x block makes loads contiguous."""
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

"""Filters of candidates that apply to every kind of kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from silo.core.config import Config
from silo.errors import SpaceError
from silo.heuristics.candidates import Candidates, Draft, HeuristicCandidate, changed
from silo.heuristics.kernel_facts import DIMENSIONS, KernelFacts, TuningEffort, block_name
from silo.heuristics.limits import MAX_ELEMENTS, max_block
from silo.heuristics.target_facts import TargetFacts

__all__ = ["descriptor_filter", "deterministic_filter", "enforce_minimums"]


def _number(config: Config, name: str, missing: int = -1) -> int:
    value = config.as_dict().get(name, missing)
    return value if isinstance(value, int) else missing


def _blocks(config: Config) -> dict[str, int]:
    return {name: block for name, block in config.values if name.endswith("BLOCK") and isinstance(block, int)}


def descriptor_filter(
    candidates: Candidates, facts: KernelFacts, target: TargetFacts, *, whole_row: int = 0
) -> Candidates:
    """Only configs whose blocks are as large as tensor descriptors ask, after one that surely is.

    That one is the first config with its blocks raised. A persistent reduction, whose rows have ``whole_row`` elements,
    has no blocks of reduced dimensions, so their minimums do not count. ``SpaceError`` where a minimum is for a block
    that the configs do not have, and where no block can be so large.
    """
    least = {
        name: minimum for name, minimum in facts.descriptor_minimums.items() if not (whole_row and name.startswith("R"))
    }
    if not least:
        return candidates
    first = candidates[0]
    unknown = [name for name in least if name not in first.config.as_dict()]
    if unknown:
        raise SpaceError(
            f"descriptors ask for a least {', '.join(unknown)}, and the {candidates.kind} heuristic sets "
            f"{', '.join(first.config.as_dict())}"
        )
    _check_minimums(least, target, whole_row)
    draft = Draft(candidates.kind)
    raised = {**_blocks(first.config), **{n: max(m, _number(first.config, n)) for n, m in least.items()}}
    while math.prod(raised.values()) * max(whole_row, 1) > MAX_ELEMENTS:
        raised[max(raised, key=lambda name: raised[name] // least.get(name, 1))] //= 2
    draft.add(changed(first.config, **raised), f"{first.reason}; raised to what descriptors ask at least")
    for candidate in candidates:
        short = [f"{name} below {m}" for name, m in least.items() if _number(candidate.config, name) < m]
        if short:
            draft.reject(candidate, f"descriptors cannot have {', '.join(short)}")
        else:
            draft.add(candidate.config, candidate.reason)
    return _with_rejected(draft.done(), candidates)


def deterministic_filter(candidates: Candidates, facts: KernelFacts, effort: TuningEffort) -> Candidates:
    """One config where results must be made in one order, else all of them.

    Blocks of at most 4 reduced elements go, single rows go unless something is contiguous along them; then the second
    largest reduced block stays, then the second largest number of warps, then the second largest x block.
    """
    if not effort.one_order or len(candidates) == 1:
        return candidates
    left = list(candidates)
    left = [one for one in left if not 0 <= _number(one.config, "R0_BLOCK") <= 4] or left
    if not facts.contiguous_reduction:
        left = [one for one in left if _number(one.config, "XBLOCK") != 1] or left
    for name in ("R0_BLOCK", "num_warps", "XBLOCK"):
        if len(left) > 1:
            left = _second_largest(left, lambda one, name=name: _number(one.config, name))
    kept = left[0]
    draft = Draft(candidates.kind)
    draft.add(kept.config, f"{kept.reason}; the one config of deterministic mode")
    for candidate in candidates:
        if candidate is not kept:
            draft.reject(candidate, "deterministic mode keeps one config")
    return _with_rejected(draft.done(), candidates)


def _second_largest(
    candidates: list[HeuristicCandidate], size: Callable[[HeuristicCandidate], int]
) -> list[HeuristicCandidate]:
    sizes = sorted({size(one) for one in candidates})
    return [one for one in candidates if size(one) == sizes[-2]] if len(sizes) > 1 else candidates


def enforce_minimums(
    candidates: Candidates, facts: KernelFacts, target: TargetFacts, *, whole_row: int = 0
) -> Candidates:
    """Blocks of x and r0 raised to the kernel's minimums; what one gains the other loses, down to its own minimum.

    ``SpaceError`` for configs with blocks of other dimensions, and where the minimums alone are more than one block
    may hold.
    """
    floors = {"XBLOCK": facts.min_xblock, "R0_BLOCK": facts.min_rblock}
    if all(floor == 1 for floor in floors.values()):
        return candidates
    _check_minimums(floors, target, whole_row)
    draft = Draft(candidates.kind)
    for candidate in candidates:
        before = candidate.config.as_dict()
        others = [name for name in before if name in ("YBLOCK", "ZBLOCK", "R1_BLOCK")]
        if others:
            raise SpaceError(f"least blocks are for x and r0 alone, and ({candidate.config}) has {', '.join(others)}")
        after = _raised({name: _number(candidate.config, name) for name in floors if name in before}, floors)
        same = all(before[name] == block for name, block in after.items())
        reason = candidate.reason if same else f"{candidate.reason}; raised to the least blocks"
        draft.add(changed(candidate.config, **after), reason)
    return _with_rejected(draft.done(), candidates)


def _raised(blocks: Mapping[str, int], floors: Mapping[str, int]) -> dict[str, int]:
    budget = math.prod(blocks.values())
    raised = {name: max(block, floors[name]) for name, block in blocks.items()}
    for name in ("R0_BLOCK", "XBLOCK"):
        while name in raised and math.prod(raised.values()) > budget and raised[name] > floors[name]:
            raised[name] //= 2
    return raised


def _check_minimums(least: Mapping[str, int], target: TargetFacts, whole_row: int) -> None:
    """``SpaceError`` for minimums that no block can have."""
    for dimension in DIMENSIONS:
        name = block_name(dimension)
        if least.get(name, 1) > max_block(dimension, target):
            raise SpaceError(f"the least {name} is {least[name]}, and no block is above {max_block(dimension, target)}")
    if math.prod(least.values()) * max(whole_row, 1) > MAX_ELEMENTS:
        rows = f" of rows of {whole_row}" if whole_row else ""
        raise SpaceError(f"the least blocks {dict(least)}{rows} are more than the {MAX_ELEMENTS} elements of one block")


def _with_rejected(made: Candidates, earlier: Candidates) -> Candidates:
    return replace(made, rejected=(*earlier.rejected, *made.rejected))

"""Pointwise kernels: each output element depends on the input elements at the same index, in 1 to 3 dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from silo.core.device import Target
from silo.errors import SpaceError
from silo.heuristics.blocks import pointwise_config
from silo.heuristics.candidates import Candidates, Draft, descriptor_filter, max_block
from silo.heuristics.facts import AutotuneHint, KernelFacts, SizeHints, TargetFacts, TileHint, TuningEffort

__all__ = ["pointwise"]


def pointwise(
    target: TargetFacts | Target | str,
    hints: SizeHints | Mapping[str, int],
    facts: KernelFacts = KernelFacts(),  # noqa: B008  # frozen
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Returns configs of a pointwise kernel over ``x``, ``x`` and ``y``, or all of ``x``, ``y``, ``z``.

    The values follow PyTorch 2.13 (``triton_heuristics.pointwise``); additions for AMD and Intel depend on the target.
    Raises SpaceError for other dimensions.

    >>> for candidate in pointwise("cuda:sm_90", {"x": 1024}):
    ...     print(candidate)
    XBLOCK=256, num_stages=1, num_warps=4: a block for 1024 elements, 256 of them a warp
    XBLOCK=128, num_stages=1, num_warps=4: half of it, 64 elements a warp
    """
    facts_of_target, sizes = TargetFacts.of(target), SizeHints.of(hints)
    if sizes.reduced:
        raise SpaceError(f"a pointwise kernel reduces nothing, and there are size hints for {', '.join(sizes.reduced)}")
    draft = Draft("pointwise")
    fill = (_add_config, _two, _three)[len(sizes.parallel) - 1]
    fill(draft, facts_of_target, sizes, facts, effort)
    return descriptor_filter(draft.done(), facts, facts_of_target).for_target(facts_of_target)


def _span(hints: SizeHints) -> int:
    """Returns the block size that makes about 128 blocks in all, but at least 256 and at most 1024 elements."""
    return max(256, min(hints.numel // 128, 1024))


def _hinted(draft: Draft, target: TargetFacts, hints: SizeHints, facts: KernelFacts) -> None:
    if AutotuneHint.ONE_ELEMENT_PER_THREAD not in facts.autotune_hints:
        return
    count = len(hints.parallel)
    for axis in range(count):
        blocks = [1] * count
        blocks[axis] = _span(hints) // 4
        config = pointwise_config(target, hints, *blocks, elements_per_warp=target.warp_size)
        draft.add(config, "one element a thread, as the kernel asks")


def _add_config(draft: Draft, target: TargetFacts, hints: SizeHints, facts: KernelFacts, effort: TuningEffort) -> None:
    make = partial(pointwise_config, target, hints, min_elements_per_thread=facts.min_elements_per_thread)
    span = _span(hints)
    draft.add(make(span), f"a block for {hints['x']} elements, 256 of them a warp")
    if not effort.tune and not effort.exhaustive:
        return
    draft.add(make(span // 2, elements_per_warp=64), "half of it, 64 elements a warp")
    _hinted(draft, target, hints, facts)
    if target.is_hip:
        draft.add(make(max_block("x", target), waves_per_eu=2), "AMD: the longest block, two waves a unit")
        draft.add(make(4096), "AMD: 4096, better than the longest for some kernels")
        draft.add(make(2048, num_warps=8, num_stages=2, waves_per_eu=1), "AMD: 2048 with 8 warps in two stages")
        if facts.atomic_add:
            draft.add(make(64, num_warps=1), "AMD: a short block of one warp for atomic adds")
    if target.is_xpu:
        draft.add(make(32), "Intel: a block of 32")


def _two(draft: Draft, target: TargetFacts, hints: SizeHints, facts: KernelFacts, effort: TuningEffort) -> None:
    make = partial(pointwise_config, target, hints, min_elements_per_thread=facts.min_elements_per_thread)
    span = _span(hints)
    draft.add(make(32, 32), "a square tile")
    square = facts.tile_hint is TileHint.SQUARE and not target.is_hip and not target.is_xpu
    if (not effort.tune or square) and not effort.exhaustive:
        return
    draft.add(make(64, 64), "a larger square, better for 16-bit elements")
    draft.add(make(256, 16), "long in x")
    draft.add(make(16, 256), "long in y")
    draft.add(make(span, 1), "a row of x")
    draft.add(make(1, span), "a row of y")
    _hinted(draft, target, hints, facts)
    if target.is_hip:
        for x, y in ((64, 32), (128, 16), (128, 32), (32, 512)):
            draft.add(make(x, y), "AMD: better for some kernels")
    if target.is_xpu:
        draft.add(make(32, 32, num_warps=8), "Intel: the square with 8 warps")
        draft.add(make(4, 256), "Intel: long in y, 4 in x")


def _three(draft: Draft, target: TargetFacts, hints: SizeHints, facts: KernelFacts, effort: TuningEffort) -> None:
    make = partial(pointwise_config, target, hints, min_elements_per_thread=facts.min_elements_per_thread)
    span = _span(hints)
    draft.add(make(16, 16, 16), "a cube")
    if not effort.exhaustive and not target.is_xpu:
        return
    for blocks, name in (((64, 8, 8), "x"), ((8, 64, 8), "y"), ((8, 8, 64), "z")):
        draft.add(make(*blocks), f"long in {name}")
    for blocks, name in (((span, 1, 1), "x"), ((1, span, 1), "y"), ((1, 1, span), "z")):
        draft.add(make(*blocks), f"a row of {name}")
    _hinted(draft, target, hints, facts)

"""The three kinds of config that most heuristics are made of: pointwise, reduction, and tiled reduction.

Each takes the block that is wanted, fits it to the sizes, and finds the number of warps. The rules follow
PyTorch 2.13 (``triton_config``, ``triton_config_reduction``, ``triton_config_tiled_reduction``), decided by the target
alone; tiled reductions keep the limits of a grid too, which PyTorch's do not. A block that no launch allows is refused
with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.heuristics.kernel_facts import ReductionHint, SizeHints
from silo.heuristics.limits import (
    MAX_ELEMENTS,
    MAX_GRID,
    allowed,
    clamp_warps,
    grow_for_grid,
    max_block,
    named_blocks,
)
from silo.heuristics.target_facts import TargetFacts

__all__ = ["pointwise_config", "reduction_config", "tiled_reduction_config"]


def pointwise_config(
    target: TargetFacts,
    hints: SizeHints,
    *wanted: int,
    num_warps: int | None = None,
    num_stages: int = 1,
    elements_per_warp: int = 256,
    min_elements_per_thread: int = 0,
    waves_per_eu: int | None = None,
) -> Config | Rejected:
    """A config whose block is about ``wanted`` (x, y, z) elements. ``waves_per_eu`` is for HIP alone."""
    blocks = {dimension: min(size, hints[dimension]) for dimension, size in zip(hints, wanted, strict=True)}
    aim = _aim(math.prod(wanted), hints)
    for dimension, limit in zip(blocks, MAX_GRID, strict=False):
        most = min(hints[dimension], max_block(dimension, target))
        while blocks[dimension] < most and (
            blocks[dimension] * limit < hints[dimension] or math.prod(blocks.values()) < aim
        ):
            blocks[dimension] *= 2
    count = math.prod(blocks.values())
    warps = clamp_warps(count // elements_per_warp, target, least=1) if num_warps is None else num_warps
    if count >= 128 and not target.is_hip:
        warps = max(warps, 4)  # fewer met faults of ptxas (pytorch/pytorch#97950)
    needed = max(count, min_elements_per_thread * target.warp_size * warps)
    grown = grow_for_grid(hints["x"], blocks["x"] * -(-needed // count), warps, target)
    if isinstance(grown, Rejected):
        return grown
    blocks["x"] = min(grown, hints["x"], max_block("x", target))
    # Blocks of y and z that are as long as their grids ask for may leave room for few elements of x, and the other way.
    while math.prod(blocks.values()) > MAX_ELEMENTS:
        shorter = next((d for d in _by_turn(blocks) if _may_halve(d, blocks[d], hints, warps, target)), None)
        if shorter is None:
            return Rejected(f"no block of {MAX_ELEMENTS} elements leaves a grid that {target} allows over {hints}")
        blocks[shorter] //= 2
    options = {"waves_per_eu": waves_per_eu} if target.is_hip and waves_per_eu is not None else {}
    return _config(target, hints, blocks, warps, num_stages, options)


def _by_turn(blocks: Mapping[str, int]) -> list[str]:
    """x, then the others, the longest first."""
    return sorted(blocks, key=lambda dimension: (dimension != "x", -blocks[dimension]))


def _may_halve(dimension: str, block: int, hints: SizeHints, warps: int, target: TargetFacts) -> bool:
    """Whether half the block still leaves a grid that is allowed."""
    half = block // 2
    if half == 0:
        return False
    if dimension == "x":
        return grow_for_grid(hints["x"], half, warps, target) == half
    return half * MAX_GRID[1] >= hints[dimension]


def reduction_config(
    target: TargetFacts,
    hints: SizeHints,
    x: int,
    r: int,
    *,
    num_warps: int | None = None,
    min_warps: int = 2,
    num_stages: int = 1,
    register_intensive: bool = False,
    reduction_hint: ReductionHint = ReductionHint.DEFAULT,
    waves_per_eu: int | None = None,
) -> Config | Rejected:
    """A config whose block is about ``x`` rows of ``r`` elements; the last reduced dimension is filled first."""
    reduced = _spread(r, hints, target)
    if isinstance(reduced, Rejected):
        return reduced
    blocks = {"x": min(x, hints["x"]), **reduced}
    aim = _aim(math.prod(blocks.values()), hints)
    _grow(blocks, hints, aim)
    if num_warps is None:
        # A contiguous row is given 4 elements to each thread of a warp; x blocks are short there.
        num_warps = (r if reduction_hint is ReductionHint.INNER else math.prod(blocks.values())) // 128
    most = 16 if r <= 8192 else 32
    warps = clamp_warps(num_warps, target, most=most, least=min_warps, register_intensive=register_intensive)
    grown = grow_for_grid(hints["x"], blocks["x"], warps, target)
    if isinstance(grown, Rejected):
        return grown
    blocks["x"] = grown
    for dimension in reduced:
        while math.prod(blocks.values()) > aim and blocks[dimension] > 1:
            blocks[dimension] //= 2
    options = {"waves_per_eu": waves_per_eu} if target.is_hip and waves_per_eu is not None else {}
    return _config(target, hints, blocks, warps, num_stages, options)


def tiled_reduction_config(
    target: TargetFacts,
    hints: SizeHints,
    x: int,
    y: int,
    r: int,
    *,
    num_stages: int = 1,
    register_intensive: bool = False,
    waves_per_eu: int | None = None,
) -> Config | Rejected:
    """A config for a reduction over tiles of ``x`` times ``y`` rows."""
    reduced = _spread(r, hints, target)
    if isinstance(reduced, Rejected):
        return reduced
    blocks = {"x": min(x, hints["x"]), **reduced, "y": min(y, hints["y"])}
    aim = _aim(math.prod(blocks.values()), hints)
    _grow(blocks, hints, aim)
    warps = clamp_warps(math.prod(blocks.values()) // 256, target, least=1)
    warps = clamp_warps(warps, target, most=16, register_intensive=register_intensive)
    grown = grow_for_grid(hints["x"], blocks["x"], warps, target)
    if isinstance(grown, Rejected):
        return grown
    blocks["x"] = grown
    options = {"waves_per_eu": waves_per_eu} if target.is_hip and waves_per_eu is not None else {}
    return _config(target, hints, blocks, warps, num_stages, options)


def _aim(wanted: int, hints: SizeHints) -> int:
    """How many elements a block is grown to: an eighth of what was wanted where there are not so many."""
    return wanted // 8 if hints.numel < wanted else wanted


def _grow(blocks: dict[str, int], hints: SizeHints, aim: int) -> None:
    """Double blocks in their order, up to the sizes, until they hold ``aim`` elements."""
    for dimension in tuple(blocks):
        while blocks[dimension] < hints[dimension] and math.prod(blocks.values()) < aim:
            blocks[dimension] *= 2


def _spread(r: int, hints: SizeHints, target: TargetFacts) -> dict[str, int] | Rejected:
    """``r`` reduced elements over the reduced dimensions, the last one first; in the order of the dimensions."""
    left = min(r, hints.rnumel)
    blocks: dict[str, int] = {}
    for dimension in reversed(hints.reduced):
        blocks[dimension] = min(hints[dimension], max_block(dimension, target), left)
        left //= blocks[dimension]
    if left > 1:
        held = " x ".join(f"{name}={size}" for name, size in blocks.items())
        return Rejected(f"{r} reduced elements do not fit one block; {held} is the most")
    return {dimension: blocks[dimension] for dimension in hints.reduced}


def _config(
    target: TargetFacts,
    hints: SizeHints,
    blocks: Mapping[str, int],
    num_warps: int,
    num_stages: int,
    options: Mapping[str, int],
) -> Config | Rejected:
    decision = allowed(blocks, hints, target)
    if isinstance(decision, Rejected):
        return decision
    return Config.of({**named_blocks(blocks), "num_warps": num_warps, "num_stages": num_stages, **options})

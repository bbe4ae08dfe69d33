"""Limits that every block size and every launch keeps, and what fits a number into them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.traced import next_pow2
from silo.heuristics.kernel_facts import DIMENSIONS, SizeHints, block_name
from silo.heuristics.target_facts import TargetFacts

__all__ = [
    "MAX_ELEMENTS",
    "MAX_GRID",
    "MAX_RSPLIT",
    "MIN_DOT_BLOCK",
    "allowed",
    "clamp_warps",
    "grow_for_grid",
    "last_pow2",
    "max_block",
]

# PyTorch 2.13, torch/_inductor/runtime/hints.py and triton_heuristics.py.
_MAX_BLOCK = {"x": 4096, "y": 1024, "z": 1024, "r0_": 65536, "r1_": 32768}
_MAX_BLOCK_X_HIP = 8192
MAX_RSPLIT = 64
# Triton's limit for one tensor.
MAX_ELEMENTS = 1 << 20
# The shortest side of an operand of tl.dot.
MIN_DOT_BLOCK = 16
# Programs along x, y, z.
MAX_GRID = ((1 << 31) - 1, 65535, 65535)


def max_block(dimension: str, target: TargetFacts) -> int:
    """The largest block of a dimension."""
    return _MAX_BLOCK_X_HIP if dimension == "x" and target.is_hip else _MAX_BLOCK[dimension]


def clamp_warps(
    warps: int, target: TargetFacts, *, most: int = 8, least: int = 2, register_intensive: bool = False
) -> int:
    """A number of warps between bounds, as a power of two.

    Bounds are for warps of 32 lanes; where a warp has 64 they are halved, so that as many threads run.
    """
    if target.warp_size == 64:
        most, least = (most + 1) // 2, (least + 1) // 2
    if register_intensive:
        most //= 2
    return next_pow2(min(max(warps, least), most))


def grow_for_grid(hint: int, block: int, warps: int, target: TargetFacts) -> int | Rejected:
    """The least block of x from ``block`` up with which a launch over ``hint`` elements is allowed, or why none is.

    CUDA limits the programs along x, HIP the threads (programs x warps x lanes) of all of them.
    """
    per_program = warps * target.warp_size if target.is_hip else 1
    limit, most = MAX_GRID[0], max_block("x", target)
    while -(-hint // block) * per_program > limit and block < hint and block < most:
        block *= 2
    programs = -(-hint // block)
    if programs * per_program > limit:
        what = "threads" if target.is_hip else "programs"
        return Rejected(
            f"x={hint} in blocks of {block} asks for {programs * per_program} {what}, and {target} allows {limit}: "
            "give the kernel a y dimension"
        )
    return block


def allowed(blocks: Mapping[str, int], hints: SizeHints, target: TargetFacts) -> Decision:
    """Whether blocks by dimension are within every limit; the reason where not."""
    for dimension, block in blocks.items():
        most = max_block(dimension, target)
        name = block_name(dimension)
        if block > most:
            return Rejected(f"{name}={block} is above {most}")
        if block < 1 or most % block:
            return Rejected(f"{name}={block} does not divide {most}")
        if hints[dimension] == 1 and block != 1:
            return Rejected(f"{name}={block} for a dimension of one element")
    count = math.prod(blocks.values())
    if count > MAX_ELEMENTS:
        return Rejected(f"{count} elements in one block, and it may have {MAX_ELEMENTS}")
    return Accepted()


def last_pow2(value: int) -> int:
    """The largest power of two that is not larger; ``value`` is positive."""
    return 1 << (value.bit_length() - 1)


def named_blocks(blocks: Mapping[str, int]) -> dict[str, int]:
    """Blocks by constexpr name, in the order of the dimensions."""
    return {block_name(dimension): blocks[dimension] for dimension in DIMENSIONS if dimension in blocks}

"""Products of matrices by tl.dot: blocks of y rows, x columns and r0 inner elements, perhaps z batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from silo.core.config import Config
from silo.core.target import Target
from silo.errors import SpaceError
from silo.heuristics.candidates import (
    MAX_ELEMENTS,
    MIN_DOT_BLOCK,
    Candidates,
    Draft,
    descriptor_filter,
    deterministic_filter,
)
from silo.heuristics.facts import KernelFacts, SizeHints, TargetFacts, TuningEffort

__all__ = ["native_matmul"]

# x, y, r0, num_warps, num_stages (PyTorch 2.13, triton_native_mm_configs).
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
    """Configs of a product of ``y`` x ``r`` and ``r`` x ``x`` matrices, with ``z`` for batches of them.

    The values are the 19 of PyTorch 2.13, whatever the sizes; a batched product handles one batch per program. With
    ``persistent`` the whole inner dimension is one block, which the configs do not set, and blocks of x and y are
    halved, not below 16, until the tile fits. Raises SpaceError for other dimensions.

    >>> len(native_matmul("cuda:sm_90", {"x": 4096, "y": 4096, "r": 4096}))
    19
    """
    known, sizes = TargetFacts.of(target), SizeHints.of(hints)
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
    made = descriptor_filter(draft.done(), facts, known, whole_row=inner if persistent else 0)
    made = deterministic_filter(made, facts, effort)
    return replace(made, kind="native matmul").for_target(known)


def _shrink(blocks: dict[str, int], inner: int) -> None:
    """Halves the larger of x and y until the tile fits or both are 16; halves x if they are equal."""
    while math.prod(blocks.values()) * inner > MAX_ELEMENTS:
        long = [name for name in ("XBLOCK", "YBLOCK") if blocks[name] > MIN_DOT_BLOCK]
        if not long:
            return
        blocks[max(long, key=lambda name: blocks[name])] //= 2

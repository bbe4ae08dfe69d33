"""Chooses block sizes of Inductor's generated kernels on a CPU from Inductor's description of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from silo.frozen import frozen

__all__ = ["GeneratedKernel", "blocks_for"]


@frozen
class GeneratedKernel:
    """Inductor's description of one kernel that it generated.

    ``sizes`` maps a dimension to its elements, a power of two; ``given`` has the block sizes of Inductor's configs.
    """

    kind: str  # POINTWISE, REDUCTION, PERSISTENT_REDUCTION, ...
    sizes: Mapping[str, int]
    given: tuple[Mapping[str, int], ...]
    meta: Mapping[str, Any]

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the kernel's block sizes."""
        return tuple(sorted({name for config in self.given for name in config}))

    @property
    def is_outer(self) -> bool:
        """Whether neighbours in memory belong to different rows: then a block covers many rows and little of each."""
        scores: Mapping[str, float] = self.meta.get("tiling_scores") or {}
        return scores.get("x", 0) > scores.get("r0_", 0)


# Elements of a block that is read and written once: enough for vector loops, few enough for a near cache.
_SPAN = 2048
# Elements of a row that a reduction reads at once.
_PIECE = 1024
# Elements of a tile that is read along one axis and written along the other, and of its short axis: whole cache lines
# are read, or written.
_TILE = 4096
_LINE = 16
# Rows side by side that an outer reduction adds up at once.
_ROWS = 1024
_LIMITS = {"XBLOCK": 4096, "YBLOCK": 1024, "ZBLOCK": 1024, "R0_BLOCK": 65536, "R1_BLOCK": 32768}


def blocks_for(kernel: GeneratedKernel) -> tuple[Mapping[str, int], ...]:
    """Returns block sizes to try, best guess first; empty: Inductor's own are kept."""
    choose = _KINDS.get(kernel.kind)
    if choose is None or not kernel.given or kernel.meta.get("tma_min_block_sizes") or kernel.meta.get("RSPLIT_SIZE"):
        return ()
    return tuple(one for one in choose(kernel) if _keeps(kernel, one))


def _keeps(kernel: GeneratedKernel, blocks: Mapping[str, int]) -> bool:
    """Whether ``blocks`` sets exactly the kernel's block sizes, to powers of two that Inductor's masks allow."""
    return tuple(sorted(blocks)) == kernel.blocks and all(
        0 < value <= _LIMITS.get(name, 0) and not value & (value - 1) for name, value in blocks.items()
    )


def _pointwise(kernel: GeneratedKernel) -> Sequence[Mapping[str, int]]:
    sizes = kernel.sizes
    if list(sizes) == ["x"] and kernel.blocks == ("XBLOCK",):
        return [{"XBLOCK": min(_SPAN, sizes["x"])}]
    if set(sizes) == {"x", "y"} and kernel.blocks == ("XBLOCK", "YBLOCK"):
        return [_tile(sizes["x"], sizes["y"])]
    return ()


def _tile(x: int, y: int) -> Mapping[str, int]:
    """Returns block sizes of a kernel that reads along one axis and writes along the other, as a transpose does."""
    short = min(_LINE, y)
    long = min(_TILE // short, x)
    return {"XBLOCK": long, "YBLOCK": min(_TILE // long, y, _LIMITS["YBLOCK"])}


def _reduction(kernel: GeneratedKernel) -> Sequence[Mapping[str, int]]:
    if kernel.blocks not in (("R0_BLOCK",), ("R0_BLOCK", "XBLOCK")) or set(kernel.sizes) != {"x", "r0_"}:
        return ()
    x, row = kernel.sizes["x"], kernel.sizes["r0_"]
    outer = "XBLOCK" in kernel.blocks and kernel.is_outer
    made = {"XBLOCK": min(_ROWS, x), "R0_BLOCK": 1} if outer else {"XBLOCK": 1, "R0_BLOCK": min(_PIECE, row)}
    return [{name: made[name] for name in kernel.blocks}]


def _persistent(kernel: GeneratedKernel) -> Sequence[Mapping[str, int]]:
    if kernel.blocks != ("XBLOCK",) or set(kernel.sizes) != {"x", "r0_"}:
        return ()
    if kernel.is_outer:
        return [{"XBLOCK": max(1, min(kernel.sizes["x"], 65536 // kernel.sizes["r0_"], 1024))}]
    return [{"XBLOCK": 1}]


_KINDS = {"POINTWISE": _pointwise, "REDUCTION": _reduction, "PERSISTENT_REDUCTION": _persistent}

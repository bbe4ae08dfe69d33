"""Makes the block sizes of the configs that most heuristics propose, and configs of kernels with fixed blocks.

Blocks are fixed by a config or a list of configs that the user passes, by the kernel's own text, or by a lookup table.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping

from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.device import Target
from silo.core.values import Value
from silo.errors import SpaceError
from silo.heuristics.candidates import (
    MAX_ELEMENTS,
    MAX_GRID,
    Candidates,
    Draft,
    allowed,
    clamp_warps,
    grow_for_grid,
    max_block,
    named_blocks,
)
from silo.heuristics.facts import KernelFacts, ReductionHint, SizeHints, TargetFacts, TuningEffort, is_reduction

__all__ = [
    "MAX_PERSISTENT",
    "fixed",
    "foreach",
    "lookup",
    "lookup_key",
    "pointwise_config",
    "reduction_config",
    "reduction_sizes",
    "scores_of",
    "short_rows",
    "spread_by_scores",
    "template",
    "tiled_reduction_config",
    "user",
]

# ---- Distributing the elements of a block over its dimensions, by their scores ----

# The smallest block size of a reduced dimension.
_LEAST_REDUCED = 4


def spread_by_scores(
    target: TargetFacts, hints: SizeHints, scores: Mapping[str, float], elements: int
) -> dict[str, int]:
    """Returns block sizes by dimension with about ``elements`` in all (PyTorch 2.13, ``match_target_block_product``).

    Block sizes of parallel dimensions start at 1, of reduced dimensions at 4. Then the block size of the dimension with
    the highest score is doubled, and the score halved, until the block has enough elements. A parallel dimension
    without a score grows last. If no dimension has a score, all scores are equal.
    """
    total = sum(scores.values())
    even = total == 0
    scores_left = {dimension: (1.0 if even else score / total) for dimension, score in scores.items()}
    blocks: dict[str, int] = {}
    for dimension, score in scores.items():
        unscored = score == 0 and not even and not is_reduction(dimension)
        blocks[dimension] = 1 if unscored or not is_reduction(dimension) else _LEAST_REDUCED
    count = 1
    for size in blocks.values():
        count *= size
    while count < elements and scores_left:
        dimension = max(scores_left, key=lambda name: scores_left[name])
        if blocks[dimension] >= min(max_block(dimension, target), hints[dimension]):
            del scores_left[dimension]
            continue
        blocks[dimension] *= 2
        scores_left[dimension] /= 2
        count *= 2
    return blocks


# ---- Sizes of reductions: the rows, the reduced elements, and the score of each dimension ----

# The largest number of elements in a block that holds several whole rows (PyTorch 2.13).
MAX_PERSISTENT = 4096


def reduction_sizes(kind: str, hints: SizeHints | Mapping[str, int], facts: KernelFacts) -> SizeHints:
    """Returns the sizes of a reduction's dimensions; x is 1 if each program of the kernel processes a single row.

    Raises SpaceError if no dimension is reduced.
    """
    sizes = hints if isinstance(hints, SizeHints) else SizeHints.of({"x": 1, **hints})
    if not sizes.reduced or "x" not in sizes:
        raise SpaceError(f"a {kind} needs size hints for x and for what it reduces, r (or r0_); given: {sizes}")
    if "z" in sizes and not facts.native_matmul:
        raise SpaceError(f"a {kind} has rows along x and y, and there is a size hint for z")
    return sizes.replaced(x=1) if facts.single_row else sizes


def scores_of(sizes: SizeHints, facts: KernelFacts) -> Mapping[str, float]:
    """Returns the tiling scores of every dimension. Raises SpaceError if only some dimensions have scores."""
    if not facts.tiling_scores:
        return dict.fromkeys(sizes, 1.0)
    missing = [name for name in sizes if name not in facts.tiling_scores]
    if missing:
        raise SpaceError(f"there are tiling scores, and none for {', '.join(missing)}")
    return facts.tiling_scores


def short_rows(rnumel: int) -> int:
    """Returns how many rows of ``rnumel`` elements make a block of 512 elements; 1 if ``rnumel`` exceeds 256."""
    return 2 * (256 // rnumel) if rnumel <= 256 else 1


# ---- Configs for three kinds of kernels: pointwise, reduction, and tiled reduction ----


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
    """Makes a config whose block has about ``wanted`` (x, y, z) elements. ``waves_per_eu`` applies to HIP only."""
    blocks = {dimension: min(size, hints[dimension]) for dimension, size in zip(hints, wanted, strict=True)}
    aim = _aim(math.prod(wanted), hints)
    for dimension, limit in zip(blocks, MAX_GRID, strict=False):
        largest = min(hints[dimension], max_block(dimension, target))
        while blocks[dimension] < largest and (
            blocks[dimension] * limit < hints[dimension] or math.prod(blocks.values()) < aim
        ):
            blocks[dimension] *= 2
    count = math.prod(blocks.values())
    warps = clamp_warps(count // elements_per_warp, target, least=1) if num_warps is None else num_warps
    if count >= 128 and not target.is_hip:
        warps = max(warps, 4)  # ptxas fails with fewer warps (pytorch/pytorch#97950)
    needed = max(count, min_elements_per_thread * target.warp_size * warps)
    grown = grow_for_grid(hints["x"], blocks["x"] * -(-needed // count), warps, target)
    if isinstance(grown, Rejected):
        return grown
    blocks["x"] = min(grown, hints["x"], max_block("x", target))
    # The block may have too many elements for one tensor by now, because a limit of the grid forced long blocks along
    # one of its axes. So halve each block that can be shorter without exceeding the grid's limit along its axis.
    while math.prod(blocks.values()) > MAX_ELEMENTS:
        shorter = next((d for d in _by_turn(blocks) if _may_halve(d, blocks[d], hints, warps, target)), None)
        if shorter is None:
            return Rejected(f"no block of {MAX_ELEMENTS} elements leaves a grid that {target} allows over {hints}")
        blocks[shorter] //= 2
    options = {"waves_per_eu": waves_per_eu} if target.is_hip and waves_per_eu is not None else {}
    return _config(target, hints, blocks, warps, num_stages, options)


def _by_turn(blocks: Mapping[str, int]) -> list[str]:
    """Returns the dimensions in the order of halving their blocks: x, then the others, the longest block first."""
    return sorted(blocks, key=lambda dimension: (dimension != "x", -blocks[dimension]))


def _may_halve(dimension: str, block: int, hints: SizeHints, warps: int, target: TargetFacts) -> bool:
    """Returns whether the grid stays within its limit along the dimension if the block size is halved."""
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
    """Makes a config whose block has about ``x`` rows of ``r`` elements; the last reduced dimension is filled first."""
    reduced = _spread(r, hints, target)
    if isinstance(reduced, Rejected):
        return reduced
    blocks = {"x": min(x, hints["x"]), **reduced}
    aim = _aim(math.prod(blocks.values()), hints)
    _grow(blocks, hints, aim)
    if num_warps is None:
        # A warp for each 128 elements (four for each thread). If rows are contiguous, the block holds few rows, so only
        # the elements of one row are counted.
        num_warps = (r if reduction_hint is ReductionHint.INNER else math.prod(blocks.values())) // 128
    most_warps = 16 if r <= 8192 else 32
    warps = clamp_warps(num_warps, target, most=most_warps, least=min_warps, register_intensive=register_intensive)
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
    """Makes a config for a reduction over tiles of ``x`` times ``y`` rows."""
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
    """Returns the number of elements to which a block grows: ``wanted``, or an eighth of it if the array is smaller."""
    return wanted // 8 if hints.numel < wanted else wanted


def _grow(blocks: dict[str, int], hints: SizeHints, aim: int) -> None:
    """Doubles block sizes, one dimension after the other, until the block has ``aim`` elements or spans everything."""
    for dimension in tuple(blocks):
        while blocks[dimension] < hints[dimension] and math.prod(blocks.values()) < aim:
            blocks[dimension] *= 2


def _spread(r: int, hints: SizeHints, target: TargetFacts) -> dict[str, int] | Rejected:
    """Returns block sizes of the reduced dimensions for ``r`` elements in all; the last dimension is filled first."""
    elements_left = min(r, hints.rnumel)
    blocks: dict[str, int] = {}
    for dimension in reversed(hints.reduced):
        blocks[dimension] = min(hints[dimension], max_block(dimension, target), elements_left)
        elements_left //= blocks[dimension]
    if elements_left > 1:
        blocks_text = " x ".join(f"{name}={size}" for name, size in blocks.items())
        return Rejected(f"{r} reduced elements do not fit one block; {blocks_text} is the most")
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


# ---- Kernels with fixed block sizes: in a config, in a list of configs, or in the kernel's own text ----


def fixed(members: Mapping[str, Value] | Config) -> Candidates:
    """Returns a given config as the only candidate, with constexprs and every compile option (also num_ctas, maxnreg).

    Options that are None count as not given.

    >>> print(fixed({"BLOCK": 64, "num_warps": 4, "maxnreg": 128, "num_ctas": None}).configs[0])
    BLOCK=64, maxnreg=128, num_warps=4
    """
    config = members if isinstance(members, Config) else Config.of(members)
    draft = Draft("fixed")
    draft.add(Config(config.values, tuple(item for item in config.options if item[1] is not None)), "given")
    return draft.done()


def user(configs: Iterable[Mapping[str, Value] | Config] = ()) -> Candidates:
    """Returns the author's configs, each once; without any, a config that sets nothing.

    >>> [str(config) for config in user([{"BLOCK": 64}, {"BLOCK": 128}, {"BLOCK": 64}]).configs]
    ['BLOCK=64', 'BLOCK=128']
    """
    draft = Draft("user")
    for members in configs:
        draft.add(members if isinstance(members, Config) else Config.of(members), "the author's own")
    if not draft.count:
        draft.add(Config(), "nothing to choose: the compiler's own defaults")
    return draft.done()


def template(target: TargetFacts | Target | str, *, num_warps: int, num_stages: int) -> Candidates:
    """Returns the only config of a kernel whose text contains its block sizes as literals (a template of Inductor).

    >>> print(template("cuda:sm_90", num_warps=8, num_stages=3).configs[0])
    num_stages=3, num_warps=8
    """
    draft = Draft("template")
    draft.add(Config.of(num_warps=num_warps, num_stages=num_stages), "the template's own warps and stages")
    return draft.done().for_target(TargetFacts.of(target))


def foreach(
    target: TargetFacts | Target | str,
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """Returns configs of a kernel that processes lists of tensors in one launch.

    The only config has 8 warps; with an exhaustive effort there are four, with 1, 2, 4 and 8 warps (PyTorch 2.13,
    ``triton_heuristics.foreach``).

    >>> print(foreach("cuda:sm_90").configs[0])
    num_stages=1, num_warps=8
    """
    draft = Draft("foreach")
    for warps in (1, 2, 4, 8) if effort.exhaustive else (8,):
        draft.add(Config.of(num_warps=warps, num_stages=1), f"{warps} warps for the blocks the kernel has written in")
    return draft.done().for_target(TargetFacts.of(target))


# ---- A user's lookup table of configs, by a kernel's text and its sizes ----


def lookup_key(hints: SizeHints | Mapping[str, int], source: str) -> str:
    """Returns the key of a kernel's text (from its ``def`` on) and some sizes: a SHA-256 in hex.

    The kernel's name does not affect the key. PyTorch's ``autotune_lookup_table`` has the same keys, so a table for
    PyTorch serves Silo, and vice versa.

    >>> lookup_key({"x": 64}, "def f(a): pass") == lookup_key({"x": 50}, "def g(a): pass")
    True
    """
    sizes = dict(SizeHints.of(hints).sizes)
    body = re.sub(r"^def [^(]+\(", "(", source.strip(), count=1)
    return hashlib.sha256(f"{sizes}{body}".encode()).hexdigest()


def lookup(
    table: Mapping[str, Mapping[str, Value]], hints: SizeHints | Mapping[str, int], source: str
) -> Candidates | None:
    """Returns the config that the table has for a kernel and some sizes, or None.

    Raises SpaceError for an incomplete entry.
    """
    members = table.get(lookup_key(hints, source))
    if members is None:
        return None
    missing = [name for name in ("num_warps", "num_stages") if name not in members]
    if missing:
        raise SpaceError(f"the entry {dict(members)} of a lookup table lacks {', '.join(missing)}")
    draft = Draft("lookup")
    draft.add(Config.of(members), "the user's lookup table")
    return draft.done()

"""Candidates: configs with the reasons why they are worth trying, the limits they keep and the filters they pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.plugins import is_option, options_for_targets
from silo.core.traced import next_pow2
from silo.errors import SpaceError
from silo.heuristics.facts import DIMENSIONS, KernelFacts, SizeHints, TargetFacts, TuningEffort, block_name

__all__ = [
    "MAX_ELEMENTS",
    "MAX_GRID",
    "MAX_RSPLIT",
    "MIN_DOT_BLOCK",
    "Candidates",
    "Draft",
    "HeuristicCandidate",
    "allowed",
    "changed",
    "clamp_warps",
    "descriptor_filter",
    "deterministic_filter",
    "enforce_minimums",
    "grow_for_grid",
    "last_pow2",
    "max_block",
]

# ---- Limits of block sizes and launches, and functions that adapt a number to them ----

# The largest block size of each dimension, from PyTorch 2.13 (torch/_inductor/runtime/hints.py and
# triton_heuristics.py).
_MAX_BLOCK = {"x": 4096, "y": 1024, "z": 1024, "r0_": 65536, "r1_": 32768}
_MAX_BLOCK_X_HIP = 8192
MAX_RSPLIT = 64
# Triton's limit for the elements of one tensor.
MAX_ELEMENTS = 1 << 20
# tl.dot requires at least this length of each side of an operand.
MIN_DOT_BLOCK = 16
# The largest number of programs along x, y and z.
MAX_GRID = ((1 << 31) - 1, 65535, 65535)


def max_block(dimension: str, target: TargetFacts) -> int:
    """Returns the largest block size of a dimension."""
    return _MAX_BLOCK_X_HIP if dimension == "x" and target.is_hip else _MAX_BLOCK[dimension]


def clamp_warps(
    warps: int, target: TargetFacts, *, most: int = 8, least: int = 2, register_intensive: bool = False
) -> int:
    """Returns a number of warps between bounds, as a power of two.

    Bounds are for warps of 32 lanes. For warps of 64 lanes they are halved, so that as many threads run.
    """
    if target.warp_size == 64:
        most, least = (most + 1) // 2, (least + 1) // 2
    if register_intensive:
        most //= 2
    return next_pow2(min(max(warps, least), most))


def grow_for_grid(hint: int, block: int, warps: int, target: TargetFacts) -> int | Rejected:
    """Returns the smallest block size of x, from ``block`` up, that allows a launch over ``hint`` elements.

    If no block size allows the launch, returns the reason. CUDA limits the number of programs along x; HIP limits the
    number of threads (programs x warps x lanes) of all programs.
    """
    per_program = warps * target.warp_size if target.is_hip else 1
    limit, largest = MAX_GRID[0], max_block("x", target)
    while -(-hint // block) * per_program > limit and block < hint and block < largest:
        block *= 2
    programs = -(-hint // block)
    if programs * per_program > limit:
        unit = "threads" if target.is_hip else "programs"
        return Rejected(
            f"x={hint} in blocks of {block} asks for {programs * per_program} {unit}, and {target} allows {limit}: "
            "give the kernel a y dimension"
        )
    return block


def allowed(blocks: Mapping[str, int], hints: SizeHints, target: TargetFacts) -> Decision:
    """Returns whether the block sizes of all dimensions are within every limit."""
    for dimension, block in blocks.items():
        largest = max_block(dimension, target)
        name = block_name(dimension)
        if block > largest:
            return Rejected(f"{name}={block} is above {largest}")
        if block < 1 or largest % block:
            return Rejected(f"{name}={block} does not divide {largest}")
        if hints[dimension] == 1 and block != 1:
            return Rejected(f"{name}={block} for a dimension of one element")
    count = math.prod(blocks.values())
    if count > MAX_ELEMENTS:
        return Rejected(f"{count} elements in one block, and it may have {MAX_ELEMENTS}")
    return Accepted()


def last_pow2(value: int) -> int:
    """Returns the largest power of two that is at most ``value``, which is positive."""
    return 1 << (value.bit_length() - 1)


def named_blocks(blocks: Mapping[str, int]) -> dict[str, int]:
    """Converts block sizes by dimension to block sizes by constexpr name."""
    return {block_name(dimension): blocks[dimension] for dimension in DIMENSIONS if dimension in blocks}


# ---- Candidates: configs with reasons, and rejected configs with reasons ----


@dataclass(frozen=True, slots=True)
class HeuristicCandidate:
    """A config and the reason why it is worth trying."""

    config: Config
    reason: str

    def __str__(self) -> str:
        return f"{self.config}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Candidates(Sequence[HeuristicCandidate]):
    """The result of a heuristic: at least one candidate, each once, best guess first; and the rejected configs."""

    kind: str
    found: tuple[HeuristicCandidate, ...]
    rejected: tuple[str, ...] = ()

    @property
    def configs(self) -> tuple[Config, ...]:
        """The configs of the candidates."""
        return tuple(candidate.config for candidate in self.found)

    def __getitem__(self, index: int) -> HeuristicCandidate:  # pyright: ignore[reportIncompatibleMethodOverride]  # no slices
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[HeuristicCandidate]:
        return iter(self.found)

    def named(self, names: Mapping[str, str]) -> Candidates:
        """Returns the candidates with constexprs renamed to the kernel's own names.

        ``names`` maps the usual name to the kernel's: ``{"XBLOCK": "BLOCK_SIZE"}``. A constexpr that is mapped to "" is
        dropped, because the kernel has that block size as a literal. Raises SpaceError if two names become equal.
        Options keep their names.
        """
        renamed: list[HeuristicCandidate] = []
        for candidate in self.found:
            members = candidate.config.as_dict()
            new_names = {name: names.get(name, name) for name in members if names.get(name, name)}
            if len(set(new_names.values())) < len(new_names):
                raise SpaceError(
                    f"two blocks of {candidate.config} would have one name: {', '.join(new_names.values())}"
                )
            renamed.append(replace(candidate, config=Config.of({new_names[name]: members[name] for name in new_names})))
        return replace(self, found=_distinct(renamed))

    def for_target(self, target: TargetFacts) -> Candidates:
        """Returns the candidates without options that do not apply to the target, such as a GPU's options on a CPU."""
        if target.kind != "cpu":
            return self
        own = options_for_targets(target.kind)
        reduced = [
            replace(
                candidate,
                config=Config(candidate.config.values, tuple(o for o in candidate.config.options if o[0] in own)),
            )
            for candidate in self.found
        ]
        return replace(self, found=_distinct(reduced))

    def __str__(self) -> str:
        lines = [f"{self.kind}:", *(f"  {candidate}" for candidate in self.found)]
        return "\n".join([*lines, *(f"  left out: {reason}" for reason in self.rejected)])


class Draft:
    """Collects candidates while a heuristic makes them, and the reasons why configs are rejected."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._candidates: list[HeuristicCandidate] = []
        self._rejected: list[str] = []

    def add(self, config: Config | Rejected, reason: str) -> HeuristicCandidate | None:
        """Adds a config and returns its candidate. If the config was rejected, stores the reason and returns None."""
        if isinstance(config, Rejected):
            self._rejected.append(f"{reason}: {config.reason}")
            return None
        candidate = HeuristicCandidate(config, reason)
        self._candidates.append(candidate)
        return candidate

    def reject(self, candidate: HeuristicCandidate, reason: str) -> None:
        """Records that a candidate is left out, with the reason."""
        self._rejected.append(f"{candidate.config}: {reason}")

    @property
    def count(self) -> int:
        """The number of configs added so far."""
        return len(self._candidates)

    def done(self) -> Candidates:
        """Returns the candidates, each config once. Raises SpaceError with every reason if none was added."""
        if not self._candidates:
            raise SpaceError(
                f"the {self._kind} heuristic finds no config: " + ("; ".join(self._rejected) or "it was asked for none")
            )
        return Candidates(self._kind, _distinct(self._candidates), tuple(dict.fromkeys(self._rejected)))


def changed(config: Config, **members: int) -> Config:
    """Returns the config with some values or options changed.

    >>> changed(Config.of(XBLOCK=64, num_warps=4), num_warps=8).options
    (('num_warps', 8),)
    """
    assert all(is_option(name) or name.isidentifier() for name in members)
    return Config.of({**config.as_dict(), **members})


def _distinct(candidates: Sequence[HeuristicCandidate]) -> tuple[HeuristicCandidate, ...]:
    first: dict[Config, HeuristicCandidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.config, candidate)
    return tuple(first.values())


# ---- Filters of candidates that apply to every kind of kernel ----


def _number(config: Config, name: str, missing: int = -1) -> int:
    value = config.as_dict().get(name, missing)
    return value if isinstance(value, int) else missing


def _blocks(config: Config) -> dict[str, int]:
    return {name: block for name, block in config.values if name.endswith("BLOCK") and isinstance(block, int)}


def descriptor_filter(
    candidates: Candidates, facts: KernelFacts, target: TargetFacts, *, whole_row: int = 0
) -> Candidates:
    """Keeps only configs whose blocks are as large as tensor descriptors require, and adds one such config.

    The added config comes first: it is the first config with its block sizes raised. A persistent reduction, whose rows
    have ``whole_row`` elements, has no block sizes of reduced dimensions, so their minimums do not count. Raises
    SpaceError if a minimum is for a block that the configs lack, or exceeds the largest block.
    """
    minimums = {
        name: minimum for name, minimum in facts.descriptor_minimums.items() if not (whole_row and name.startswith("R"))
    }
    if not minimums:
        return candidates
    first = candidates[0]
    unknown = [name for name in minimums if name not in first.config.as_dict()]
    if unknown:
        raise SpaceError(
            f"descriptors ask for a least {', '.join(unknown)}, and the {candidates.kind} heuristic sets "
            f"{', '.join(first.config.as_dict())}"
        )
    _check_minimums(minimums, target, whole_row)
    draft = Draft(candidates.kind)
    raised = {**_blocks(first.config), **{n: max(m, _number(first.config, n)) for n, m in minimums.items()}}
    while math.prod(raised.values()) * max(whole_row, 1) > MAX_ELEMENTS:
        raised[max(raised, key=lambda name: raised[name] // minimums.get(name, 1))] //= 2
    draft.add(changed(first.config, **raised), f"{first.reason}; raised to what descriptors ask at least")
    for candidate in candidates:
        short = [f"{name} below {m}" for name, m in minimums.items() if _number(candidate.config, name) < m]
        if short:
            draft.reject(candidate, f"descriptors cannot have {', '.join(short)}")
        else:
            draft.add(candidate.config, candidate.reason)
    return _with_rejected(draft.done(), candidates)


def deterministic_filter(candidates: Candidates, facts: KernelFacts, effort: TuningEffort) -> Candidates:
    """Keeps one config if sums must be made in one order, else all.

    Blocks of at most 4 reduced elements are dropped, and blocks of single rows unless memory accesses are contiguous
    along the rows. Of the rest, those with the second largest reduced block are kept, then those with the second
    largest number of warps, then the one with the second largest x block.
    """
    if not effort.one_order or len(candidates) == 1:
        return candidates
    remaining = list(candidates)
    remaining = [
        kept_candidate for kept_candidate in remaining if not 0 <= _number(kept_candidate.config, "R0_BLOCK") <= 4
    ] or remaining
    if not facts.contiguous_reduction:
        remaining = [
            kept_candidate for kept_candidate in remaining if _number(kept_candidate.config, "XBLOCK") != 1
        ] or remaining
    for name in ("R0_BLOCK", "num_warps", "XBLOCK"):
        if len(remaining) > 1:
            remaining = _second_largest(remaining, lambda one, name=name: _number(one.config, name))
    winner = remaining[0]
    draft = Draft(candidates.kind)
    draft.add(winner.config, f"{winner.reason}; the one config of deterministic mode")
    for candidate in candidates:
        if candidate is not winner:
            draft.reject(candidate, "deterministic mode keeps one config")
    return _with_rejected(draft.done(), candidates)


def _second_largest(
    candidates: list[HeuristicCandidate], size: Callable[[HeuristicCandidate], int]
) -> list[HeuristicCandidate]:
    sizes = sorted({size(candidate) for candidate in candidates})
    return [candidate for candidate in candidates if size(candidate) == sizes[-2]] if len(sizes) > 1 else candidates


def enforce_minimums(
    candidates: Candidates, facts: KernelFacts, target: TargetFacts, *, whole_row: int = 0
) -> Candidates:
    """Raises the block sizes of x and r0 to the kernel's minimums.

    If one block size is raised, the other one is halved, down to its own minimum, so that the block keeps its number of
    elements. Raises SpaceError for configs with blocks of other dimensions, and if the minimums alone exceed the
    elements of one block.
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
    """Raises SpaceError for minimums that exceed the largest block."""
    for dimension in DIMENSIONS:
        name = block_name(dimension)
        if least.get(name, 1) > max_block(dimension, target):
            raise SpaceError(f"the least {name} is {least[name]}, and no block is above {max_block(dimension, target)}")
    if math.prod(least.values()) * max(whole_row, 1) > MAX_ELEMENTS:
        rows = f" of rows of {whole_row}" if whole_row else ""
        raise SpaceError(f"the least blocks {dict(least)}{rows} are more than the {MAX_ELEMENTS} elements of one block")


def _with_rejected(candidates: Candidates, earlier: Candidates) -> Candidates:
    return replace(candidates, rejected=(*earlier.rejected, *candidates.rejected))

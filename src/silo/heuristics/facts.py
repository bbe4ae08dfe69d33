"""The facts that heuristics use: about a kernel, about its sizes, and about its target, never about this machine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from silo.core.device import Target, driver_of
from silo.errors import SpaceError

__all__ = [
    "DIMENSIONS",
    "AutotuneHint",
    "KernelFacts",
    "ReductionHint",
    "SizeHints",
    "TargetFacts",
    "TileHint",
    "TuningEffort",
    "block_name",
    "is_reduction",
]

# ---- Facts about a kernel, and about the sizes it runs on ----

# The dimensions that a kernel may have: three parallel and two reduced dimensions.
DIMENSIONS = ("x", "y", "z", "r0_", "r1_")
_ALIASES = {"r": "r0_", "r0": "r0_", "r1": "r1_"}


def block_name(dimension: str) -> str:
    """Returns the block-size constexpr of a dimension.

    >>> block_name("x"), block_name("r0_")
    ('XBLOCK', 'R0_BLOCK')
    """
    return f"{dimension.upper()}BLOCK"


def is_reduction(dimension: str) -> bool:
    """Returns whether the dimension is reduced."""
    return dimension.startswith("r")


class AutotuneHint(Enum):
    """Hints that Inductor writes into a generated kernel."""

    ONE_ELEMENT_PER_THREAD = "one element per thread"


class ReductionHint(Enum):
    """The layout of the reduced axis in memory."""

    INNER = "inner"  # contiguous
    OUTER = "outer"  # strided
    OUTER_TINY = "outer tiny"  # strided and short
    DEFAULT = "default"  # unknown


class TileHint(Enum):
    """The shape of tiles that suits a two-dimensional kernel."""

    SQUARE = "square"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class SizeHints:
    """The number of elements of each dimension, rounded up to a power of two.

    A dimension with 0 elements counts as 1; such a kernel runs no program.

    >>> SizeHints.of({"x": 1000, "r": 3})
    SizeHints(sizes=(('x', 1024), ('r0_', 4)))
    """

    sizes: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, sizes: SizeHints | Mapping[str, int]) -> SizeHints:
        """Makes hints from sizes by dimension: ``x``, ``y``, ``z``, ``r0_`` (or ``r``), ``r1_``.

        Raises SpaceError for the name of any other dimension.
        """
        if isinstance(sizes, SizeHints):
            return sizes
        rounded: dict[str, int] = {}
        for name, size in sizes.items():
            dimension = _ALIASES.get(name, name)
            if dimension not in DIMENSIONS:
                raise SpaceError(f"the size hint {name!r} names no dimension: they are {', '.join(DIMENSIONS)}")
            if type(size) is not int:
                raise SpaceError(f"the size hint {name}={size!r} is not an integer")
            if size < 0:
                raise SpaceError(f"the size hint {name}={size} is negative; it counts elements")
            if dimension in rounded:
                raise SpaceError(f"two size hints are for the dimension {dimension}: {', '.join(sizes)}")
            rounded[dimension] = 1 << max(size - 1, 0).bit_length()
        ordered = tuple((name, rounded[name]) for name in DIMENSIONS if name in rounded)
        for before, after in (("x", "y"), ("y", "z"), ("r0_", "r1_")):
            if after in rounded and before not in rounded:
                raise SpaceError(
                    f"there is a size hint for {after} and none for {before}; name dimensions in that order"
                )
        if not ordered:
            raise SpaceError("there are no size hints; give at least x, for example {'x': 1048576}")
        return cls(ordered)

    def __getitem__(self, dimension: str) -> int:
        return dict(self.sizes)[dimension]

    def __contains__(self, dimension: object) -> bool:
        return any(name == dimension for name, _ in self.sizes)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.sizes)

    @property
    def numel(self) -> int:
        """The product of the sizes of all dimensions."""
        return math.prod(size for _, size in self.sizes)

    @property
    def reduced(self) -> tuple[str, ...]:
        """The dimensions that are reduced, in order."""
        return tuple(name for name, _ in self.sizes if is_reduction(name))

    @property
    def parallel(self) -> tuple[str, ...]:
        """The dimensions that are not reduced, in order."""
        return tuple(name for name, _ in self.sizes if not is_reduction(name))

    @property
    def rnumel(self) -> int:
        """The product of the sizes of the reduced dimensions."""
        return math.prod(self[name] for name in self.reduced)

    def replaced(self, **sizes: int) -> SizeHints:
        """Returns the hints with other sizes for some dimensions."""
        return SizeHints.of({**dict(self.sizes), **sizes})

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes)


def _no_numbers() -> Mapping[str, int]:
    return {}


def _no_scores() -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, kw_only=True)
class KernelFacts:
    """Facts about a kernel. Every default is the value for an unknown kernel.

    Attributes:
        loads, stores, reductions: the number of operations of each kind in one program.
        atomic_add: whether the kernel adds atomically.
        dynamic_sizes: the number of size arguments that the kernel's indexing depends on.
        min_elements_per_thread: the smallest number of elements for each thread.
        autotune_hints, tile_hint, reduction_hint: the kernel's own hints.
        tiling_scores: by dimension, how much a longer block there helps memory accesses; all 1 if empty.
        contiguous_reduction: whether some load or store is contiguous along the reduced axis.
        persistent_block: also try the whole reduced axis in one block.
        longest_persistent: elements of the longest reduced axis that a sub-kernel of a combo holds in one block (HIP).
        single_row: the kernel has no x block, because each program processes one row.
        descriptor_minimums: the smallest block sizes that its tensor descriptors allow, by block name.
        min_xblock, min_rblock: the smallest block sizes of x and of reduced dimensions that it needs for other reasons.
        rsplit_size: rows that one program of a mix-order reduction processes; 0 for any other kernel.
        several_stages: whether a mix-order reduction may be pipelined.
        persistent: whether a cooperative reduction holds its share of the reduced axis in one block.
        min_scan_block: smallest block of a split scan.
        native_matmul: whether the kernel multiplies matrices by tl.dot: y rows, x columns, r0 inner, z batches.
    """

    loads: int = 0
    stores: int = 0
    reductions: int = 0
    atomic_add: bool = False
    dynamic_sizes: int = 0
    min_elements_per_thread: int = 0
    autotune_hints: frozenset[AutotuneHint] = frozenset()
    tile_hint: TileHint = TileHint.DEFAULT
    reduction_hint: ReductionHint = ReductionHint.DEFAULT
    tiling_scores: Mapping[str, float] = field(default_factory=_no_scores)
    contiguous_reduction: bool = True
    persistent_block: bool = False
    longest_persistent: int = 0
    single_row: bool = False
    descriptor_minimums: Mapping[str, int] = field(default_factory=_no_numbers)
    min_xblock: int = 1
    min_rblock: int = 1
    rsplit_size: int = 0
    several_stages: bool = True
    persistent: bool = False
    min_scan_block: int = 256
    native_matmul: bool = False

    def __post_init__(self) -> None:
        minimums = {"min_xblock": self.min_xblock, "min_rblock": self.min_rblock, "min_scan_block": self.min_scan_block}
        for name, value in {**minimums, **self.descriptor_minimums}.items():
            if value < 1 or value & (value - 1):
                raise SpaceError(f"{name}={value} is not a power of two, and block sizes are")


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningEffort:
    """The number of configs wanted, and whether results must be bitwise equal everywhere.

    Attributes:
        tune: whether to try more than one config for pointwise kernels.
        exhaustive: whether to try every config of the heuristic (PyTorch's max-autotune).
        deterministic: whether a reduction gets only one config, so that sums are made in one order.
        batch_invariant: whether sums are made in the same order for any number of rows; implies ``deterministic``.
    """

    tune: bool = True
    exhaustive: bool = False
    deterministic: bool = False
    batch_invariant: bool = False

    @property
    def one_order(self) -> bool:
        """Whether a reduction gets only one config, so that sums are made in one order."""
        return self.deterministic or self.batch_invariant


# ---- Facts about the device that a kernel is for, never about the machine that heuristics run on ----

_WITHOUT_BLOCKS = ("tpu", "metal")  # kinds of targets whose kernels do not work on blocks of a tensor
_XPU_UNITS = 64  # An assumption: no driver of Silo reports the number of compute units of an Intel GPU.


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The facts about a target that heuristics use.

    ``kind`` and ``arch`` are the target's; ``major`` is the compute capability's first number (0 except for CUDA);
    ``warp_size`` the lanes of a warp; ``units`` the multiprocessors, compute units or cores; ``assumed`` names the
    facts that come from a table and not from a device.
    """

    kind: str
    arch: str = ""
    major: int = 0
    warp_size: int = 32
    units: int = 132
    assumed: tuple[str, ...] = ()

    @classmethod
    def of(cls, target: TargetFacts | Target | str, device: Mapping[str, int] | None = None) -> TargetFacts:
        """Returns the facts about a target. ``device`` has device facts that override those assumed for its arch.

        Raises SpaceError for a target whose kernels have no Triton blocks.

        >>> TargetFacts.of("cuda:sm_90a").units
        132
        >>> TargetFacts.of("hip:gfx942", {"sm_count": 80}).warp_size
        64
        """
        if isinstance(target, TargetFacts):
            return target
        parsed = Target.parse(target) if isinstance(target, str) else target
        if parsed.kind in _WITHOUT_BLOCKS:
            raise SpaceError(f"no heuristic knows the target {parsed}: they choose blocks for cuda, hip, xpu and cpu")
        device_facts = device or {}
        units = device_facts.get("sm_count", 0)
        # A CPU reports one lane per warp. Its block sizes are chosen as for 32 lanes, and options that count warps are
        # left out.
        warp = device_facts.get("warp_size", 0) if parsed.kind != "cpu" else 32
        return cls(
            kind=parsed.kind,
            arch=parsed.arch,
            major=_major(parsed),
            warp_size=warp if warp > 1 else driver_of(parsed.kind).warp_size(parsed.arch),
            units=units or _units(parsed),
            assumed=tuple(name for name, have in (("units", units), ("warp_size", warp)) if not have),
        )

    @property
    def is_hip(self) -> bool:
        """Whether the target is AMD's."""
        return self.kind == "hip"

    @property
    def is_xpu(self) -> bool:
        """Whether the target is Intel's."""
        return self.kind == "xpu"

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind


def _units(target: Target) -> int:
    driver = driver_of(target.kind)
    usual = _XPU_UNITS if target.kind == "xpu" else driver.usual_units
    return driver.units.get(target.device_arch, usual)


def _major(target: Target) -> int:
    match = re.fullmatch(r"sm_([0-9]+)[0-9][af]?", target.arch)
    return int(match[1]) if match else 0

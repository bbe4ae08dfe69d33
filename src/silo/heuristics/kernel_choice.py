"""Choosing between whole kernels that compute the same: persistent against looped, or made for different sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import SpaceError
from silo.heuristics.facts import ReductionHint, SizeHints
from silo.tuner.statistics import estimate, indistinguishable

__all__ = ["KernelChoice", "cooperative_fits", "fastest", "nearest", "persistent_fits"]

# Farther than any sum of logarithms of 64-bit sizes.
_NO_SIZES = float(1 << 62)


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel to use and the reason."""

    name: str
    reason: str


def fastest(times_ns: Mapping[str, Sequence[int]]) -> KernelChoice:
    """The kernel with the least median of measured times, in nanoseconds (empty for kernels that failed).

    If samples do not separate kernels from the fastest, the kernel named first is taken, so that noise decides nothing.
    Raises SpaceError if no kernel has a time.

    >>> fastest({"persistent": [1000, 1001], "looped": [999, 1000]}).name
    'persistent'
    """
    measured = {name: estimate(samples) for name, samples in times_ns.items() if samples}
    if not measured:
        raise SpaceError(f"none of the kernels {', '.join(times_ns) or '(none given)'} has a measured time")
    best = min(measured, key=lambda name: measured[name].median_ns)
    chosen = next(name for name, time in measured.items() if indistinguishable(measured[best], time))
    if len(measured) == 1:
        return KernelChoice(chosen, "the only one that works")
    if chosen == best:
        return KernelChoice(chosen, f"fastest of {len(measured)}")
    return KernelChoice(chosen, f"{best} is not measurably faster, and it is named later")


def nearest(shapes: Sequence[Sequence[int]], made_for: Mapping[str, Sequence[Sequence[int]] | None]) -> KernelChoice:
    """The kernel made for the shapes that are nearest to the shapes of a call, without measuring.

    The distance is the number of octaves between the sizes, summed over every dimension of every array; 0 counts as one
    octave below 1. A kernel made for no sizes (None) is farther than any other. The kernel named first wins a tie.
    Raises SpaceError for shapes with another number of arrays or dimensions, and without kernels.

    >>> nearest([(1000, 16)], {"small": [(64, 16)], "large": [(4096, 16)], "any": None}).name
    'large'
    """
    if not made_for:
        raise SpaceError("there is no kernel to choose from")
    distances = {name: _distance(name, shapes, own) for name, own in made_for.items()}
    name = min(distances, key=lambda one: distances[one])
    far = "made for no sizes" if distances[name] == _NO_SIZES else f"{distances[name]:.2f} octaves away"
    return KernelChoice(name, f"the nearest of {len(distances)}: {far}")


def _distance(name: str, shapes: Sequence[Sequence[int]], own: Sequence[Sequence[int]] | None) -> float:
    if own is None:
        return _NO_SIZES
    if [len(shape) for shape in shapes] != [len(shape) for shape in own]:
        raise SpaceError(f"the kernel {name} was made for arrays {list(own)}, and the call has {list(shapes)}")
    pairs = [pair for left, right in zip(shapes, own, strict=True) for pair in zip(left, right, strict=True)]
    return sum(abs(_octave(a) - _octave(b)) for a, b in pairs)


def _octave(size: int) -> float:
    if size < 0:
        raise SpaceError(f"a shape with the negative size {size}")
    return log2(size) if size else -1.0


def persistent_fits(
    hints: SizeHints | Mapping[str, int],
    reduction_hint: ReductionHint = ReductionHint.DEFAULT,
    *,
    cooperative: bool = False,
    both: bool = False,
) -> Decision:
    """Decides whether whole rows fit a block, so that a kernel without a loop pays.

    Rows of up to 1024 contiguous elements do, and up to 64 strided ones (PyTorch 2.13). Cooperative programs share a
    row. If a looped kernel is made as well and the faster is used (``both``), rows may be 16 times as long.

    >>> bool(persistent_fits({"x": 4096, "r": 1024}, ReductionHint.INNER))
    True
    """
    sizes = SizeHints.of(hints)
    limit = 1024 if reduction_hint is ReductionHint.INNER else 64
    if cooperative:
        limit *= 32 // min(sizes["x"], 32)
    if both:
        limit *= 16
    fact = f"rows of {sizes.rnumel} elements, and {limit} fit a block of a {reduction_hint.value} reduction"
    return Accepted(fact) if sizes.rnumel <= limit else Rejected(fact)


def cooperative_fits(hints: SizeHints | Mapping[str, int]) -> Decision:
    """Decides whether rows are so few and long that programs should share each (PyTorch 2.13). For GPUs only."""
    sizes = SizeHints.of(hints)
    x, rnumel = sizes["x"], sizes.rnumel
    fact = f"{x} rows of {rnumel} elements"
    if (x <= 8 and rnumel >= 32768 * x) or (x <= 16 and rnumel >= 2097152):
        return Accepted(f"{fact}: too few rows to fill a device by themselves")
    return Rejected(f"{fact}: rows alone fill a device")

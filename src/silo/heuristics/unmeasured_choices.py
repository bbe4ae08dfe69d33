"""Chooses between whole kernels with equal results, and the first configs to try on a CPU; measures nothing itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2

from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import SpaceError
from silo.heuristics.facts import ReductionHint, SizeHints
from silo.tuner.statistics import estimate, indistinguishable, median

__all__ = ["KernelChoice", "cooperative_fits", "fastest", "nearest", "persistent_fits", "promising_configs"]

# The distance of a kernel that was made for no particular sizes. It exceeds every sum of logarithms of 64-bit sizes.
_NO_SIZES = float(1 << 62)


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel to use and the reason."""

    name: str
    reason: str


def fastest(times_ns: Mapping[str, Sequence[int]]) -> KernelChoice:
    """Returns the kernel with the smallest median of measured times, in nanoseconds (empty for kernels that failed).

    If samples do not separate kernels from the fastest, the kernel named first is returned, so that noise decides
    nothing. Raises SpaceError if no kernel has a time.

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
    """Returns the kernel that was made for the shapes nearest to the shapes of a call, without measuring.

    The distance is the number of octaves between the sizes, summed over every dimension of every array; 0 counts as one
    octave below 1. A kernel that was made for no particular shapes (None) is farther than any other. The kernel named
    first wins a tie. Raises SpaceError for shapes with another number of arrays or dimensions, and without kernels.

    >>> nearest([(1000, 16)], {"small": [(64, 16)], "large": [(4096, 16)], "any": None}).name
    'large'
    """
    if not made_for:
        raise SpaceError("there is no kernel to choose from")
    distances = {name: _distance(name, shapes, own) for name, own in made_for.items()}
    name = min(distances, key=lambda one: distances[one])
    far = "made for no sizes" if distances[name] == _NO_SIZES else f"{distances[name]:.2f} octaves away"
    return KernelChoice(name, f"the nearest of {len(distances)}: {far}")


def _distance(name: str, shapes: Sequence[Sequence[int]], own_shapes: Sequence[Sequence[int]] | None) -> float:
    if own_shapes is None:
        return _NO_SIZES
    if [len(shape) for shape in shapes] != [len(shape) for shape in own_shapes]:
        raise SpaceError(f"the kernel {name} was made for arrays {list(own_shapes)}, and the call has {list(shapes)}")
    pairs = [pair for left, right in zip(shapes, own_shapes, strict=True) for pair in zip(left, right, strict=True)]
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
    """Returns whether whole rows fit a block, so that a kernel without a loop is worthwhile.

    Rows of up to 1024 contiguous elements do, and up to 64 strided ones (PyTorch 2.13). With ``cooperative``, several
    programs share a row, so rows may be longer if there are at most 16. If a looped kernel is made as well and the
    faster of the two is used (``both``), rows may be 16 times as long.

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
    """Returns whether rows are so few and long that programs should share each row (PyTorch 2.13). For GPUs only."""
    sizes = SizeHints.of(hints)
    x, rnumel = sizes["x"], sizes.rnumel
    fact = f"{x} rows of {rnumel} elements"
    if (x <= 8 and rnumel >= 32768 * x) or (x <= 16 and rnumel >= 2097152):
        return Accepted(f"{fact}: too few rows to fill a device by themselves")
    return Rejected(f"{fact}: rows alone fill a device")


# The best number of programs for each thread: few enough that a program reuses the data it loads, and enough that all
# threads end at about the same time.
_EACH = 4
# The penalty for idle threads, as a factor of log2(threads / programs) if there are fewer programs than threads.
_IDLE = 4.0


def promising_configs(
    configs: Sequence[Config], programs_of: Callable[[Config], int | None], threads: int, limit: int
) -> tuple[Config, ...]:
    """Returns at most ``limit`` of ``configs``, most promising first.

    The best configs have about four programs for each thread. Configs with about the same number of programs are
    ordered by the product of their values, the middle one first, then by how much their values differ: a square tile
    reuses more data than a long one. Configs for which ``programs_of`` returns None are left out. If all grids are
    equal, the result is empty, because nothing is known about such a space.

    >>> from silo.core.config import Config
    >>> space = [Config.of(BLOCK=block) for block in (16, 64, 256, 1024)]
    >>> found = promising_configs(space, lambda one: 4096 // one.as_dict()["BLOCK"], 4, 2)
    >>> [config.as_dict()["BLOCK"] for config in found]
    [256, 64]
    """
    programs = {config.order_key: programs_of(config) for config in configs}
    counted = [config for config in configs if programs[config.order_key]]
    if len({programs[config.order_key] for config in counted}) < 2:
        return ()
    middle = math.log2(median([math.prod(_numbers(config)) for config in counted]))

    def badness(config: Config) -> tuple[int, float, float]:
        count = programs[config.order_key] or 1
        distance = abs(math.log2(count / (_EACH * threads)))
        if count < threads:
            distance += _IDLE * math.log2(threads / count)
        numbers = _numbers(config)
        return round(distance), abs(math.log2(math.prod(numbers)) - middle), max(numbers) / min(numbers)

    return tuple(sorted(counted, key=badness)[:limit])


def _numbers(config: Config) -> list[int]:
    return [value for value in config.as_dict().values() if type(value) is int and value > 0] or [1]

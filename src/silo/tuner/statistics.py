"""Statistics of samples, in integers only, so that every machine draws the same conclusion from the same trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb

__all__ = ["FINALIST_PERMILLE", "NOISE_LIMIT_PERMILLE", "Estimate", "estimate", "indistinguishable", "median"]

# However noisy the samples are, a config whose median is this much slower than the best one is never called its equal.
NOISE_LIMIT_PERMILLE = 10

# Configs slower than the best by more than this while searching are not compared with it once more at the end.
FINALIST_PERMILLE = 100

# Differences below this are below what clocks and schedulers can tell, even where samples happen to agree exactly.
_RESOLUTION_PERMILLE = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median with its confidence interval, in nanoseconds, and how many samples it rests on."""

    median_ns: int
    low_ns: int
    high_ns: int
    samples: int

    @property
    def noise_permille(self) -> int:
        """Half the width of the interval, in thousandths of the median."""
        return (self.high_ns - self.low_ns) * 500 // max(self.median_ns, 1)


def median(samples: Iterable[int]) -> int:
    """The median, rounded down; ``ValueError`` without samples.

    >>> median([5, 1, 4, 2])
    3
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples have no median")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def estimate(samples: Sequence[int], confidence_permille: int = 950) -> Estimate:
    """The median of ``samples`` with its confidence interval.

    The interval runs between two order statistics, so it assumes nothing about how the noise is distributed. Below
    six samples no interval is that sure, and the whole range stands in.

    >>> estimate([10, 11, 12, 13, 14, 15, 16, 17, 99])
    Estimate(median_ns=14, low_ns=11, high_ns=17, samples=9)
    """
    ordered = sorted(samples)
    count = len(ordered)
    centre = median(ordered)
    # The true median lies outside [ordered[k], ordered[-1 - k]] with probability 2 * sum(comb(n, i), i <= k) / 2**n.
    drop, tail = 0, 1
    allowed = (1000 - confidence_permille) << count
    while drop + 1 <= (count - 1) // 2:
        tail += comb(count, drop + 1)
        if 2 * tail * 1000 > allowed:
            break
        drop += 1
    return Estimate(centre, ordered[drop], ordered[count - 1 - drop], count)


def indistinguishable(best: Estimate, other: Estimate) -> bool:
    """Whether ``other``, which is not faster, cannot be told from ``best`` by these samples.

    Either the medians differ by less than clocks resolve (0.1 %), or the intervals overlap and the medians are
    within 1 % of one another.
    """
    difference = (other.median_ns - best.median_ns) * 1000
    if difference <= best.median_ns * _RESOLUTION_PERMILLE:
        return True
    return difference <= best.median_ns * NOISE_LIMIT_PERMILLE and other.low_ns <= best.high_ns

"""Statistics of paired measurements: medians and bootstrap confidence intervals.

The bootstrap is seeded, so that the same samples always give the same interval.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A median with the ends of its 95 % bootstrap interval, in the unit of the samples."""

    median: float
    low: float
    high: float


def median_interval(samples: Sequence[float], seed: str = "") -> Estimate:
    """Return the median and its percentile bootstrap interval.

    >>> median_interval([3.0, 3.0, 3.0])
    Estimate(median=3.0, low=3.0, high=3.0)
    """
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples")
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    picks = random.integers(0, values.size, size=(RESAMPLES, values.size))
    medians = np.median(values[picks], axis=1)
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(np.median(values)), float(low), float(high))


def differences(samples: Sequence[float], floor: Sequence[float]) -> list[float]:
    """Return the difference between each sample and the floor sample that was measured right before it."""
    return [sample - under for sample, under in zip(samples, floor, strict=True)]


def ratios(samples: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratio of each sample to the other side's sample of the same round."""
    return [sample / other for sample, other in zip(samples, others, strict=True)]

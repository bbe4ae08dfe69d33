"""A Gaussian process over configs: the times of a few predict the times of all others.

Configs are points of a Euclidean space, in which configs that should behave alike are close.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from silo.core.lattice import Axis, Lattice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "CovarianceKernel",
    "Posterior",
    "Prediction",
    "expected_improvement",
    "feature_axes",
    "features",
    "fit_kernel",
    "left_out",
    "one_thread",
    "rank_correlation",
]

# ---- Configs as points of a Euclidean space, in which configs that should behave alike are close ----


def features(lattice: Lattice) -> NDArray[np.float64]:
    """One row per config; the values of each parameter are about 1 apart at most.

    A number is represented by its place on the axis and its logarithm, in equal parts, and by how often 2 divides it:
    block sizes that are multiples of powers of two behave alike while their neighbours do not. Values without order are
    all 1 apart from each other.
    """
    import numpy as np  # noqa: PLC0415  # heavy, and only a model of a large space needs it

    blocks: list[NDArray[np.float64]] = []
    for axis, column in zip(lattice.axes, lattice.columns, strict=True):
        places = np.frombuffer(column, dtype=np.uint32)
        table = _axis_features(axis, absent=bool((places == len(axis)).any()))
        if table.shape[1]:
            blocks.append(table[places])
    return np.hstack(blocks) if blocks else np.zeros((len(lattice), 1))


def feature_axes(lattice: Lattice) -> tuple[slice, ...]:
    """The columns of :func:`features` that belong to each parameter that has some."""
    found: list[slice] = []
    begin = 0
    for axis, column in zip(lattice.axes, lattice.columns, strict=True):
        count = _axis_features(axis, absent=len(axis) in column).shape[1]
        if count:
            found.append(slice(begin, begin + count))
        begin += count
    return tuple(found)


def _axis_features(axis: Axis, *, absent: bool) -> NDArray[np.float64]:
    """One row per place on the axis; the last row is for a config without the parameter."""
    import numpy as np  # noqa: PLC0415

    count = len(axis) + 1
    columns: list[NDArray[np.float64]] = []
    numbers = [float(value) for value in axis.numbers]
    if len(numbers) > 1:
        rank = np.arange(len(numbers)) / (len(numbers) - 1)
        size = _scaled(np.log2(np.maximum(numbers, 0.5))) if numbers[0] >= 0 else rank
        columns.append(_padded((rank + size) / 2, count))
        twos = _scaled(np.array([_halvings(value) for value in axis.numbers], dtype=np.float64))
        # A column that repeats the logarithm would count twice, and a constant one distinguishes nothing.
        if len(numbers) > 2 and twos.any() and not np.allclose(twos, size):
            columns.append(_padded(twos, count))
    unordered = [*range(len(numbers), len(axis)), *([len(axis)] if absent else [])]
    if unordered and len(unordered) + min(len(numbers), 1) > 1:
        for place in unordered:
            column = np.zeros(count)
            column[place] = 2**-0.5  # two of them differ in two columns, by 1 in all
            columns.append(column)
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0))


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else values * 0


def _padded(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """``values`` for the numbers of an axis, and their middle for its other places."""
    import numpy as np  # noqa: PLC0415

    return np.concatenate([values, np.full(count - len(values), 0.5)])


def _halvings(value: float) -> int:
    """How often 2 divides an integer; 0 for 0 and for values that are not integers."""
    if not isinstance(value, int) or value == 0:
        return 0
    return (value & -value).bit_length() - 1


# ---- A Gaussian process over configs: the predictions that the times of a few allow about all the others ----

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]


_LENGTHS = (0.3, 0.6, 1.2, 2.4)
_NOISES = (1e-3, 1e-2, 1e-1)
# From this many known times on, each parameter has a length scale of its own: half or twice the common one and so on,
# if the gain of likelihood exceeds the penalty, which grows with the square of the factor's logarithm.
_OWN_LENGTHS = 16
_FACTORS = (0.5, 2.0)
_LEAST_LENGTH, _MOST_LENGTH = 0.05, 20.0
_PENALTY = 0.3
_SWEEPS = 2


@dataclass(frozen=True, slots=True)
class CovarianceKernel:
    """A Matern kernel of smoothness 5/2: the distance over which times are alike, and the variance of the noise.

    ``length`` is one for all features, or an array with the length of each.
    """

    length: float | Array
    noise: float

    def between(self, left: Array, right: Array) -> Array:
        """The covariance of each row of ``left`` with each row of ``right``, without noise."""
        import numpy as np  # noqa: PLC0415

        left, right = left / self.length, right / self.length
        squared = (left * left).sum(1)[:, None] + (right * right).sum(1)[None, :] - 2 * left @ right.T
        scaled = np.sqrt(np.maximum(squared, 0) * 5)
        return (1 + scaled + scaled * scaled / 3) * np.exp(-scaled)

    def covariance(self, points: Array) -> Array:
        """The covariance of observations at ``points``."""
        import numpy as np  # noqa: PLC0415

        return self.between(points, points) + self.noise * np.eye(len(points))


@dataclass(frozen=True)
class Prediction:
    """Mean and standard deviation for each candidate."""

    mean: Array
    deviation: Array


class Posterior:
    """The predictions for ``candidates`` from observations at points; each further observation costs one row.

    A row is a point's column of the inverse Cholesky factor times the covariance with the candidates.
    """

    def __init__(self, kernel: CovarianceKernel, candidates: Array) -> None:
        import numpy as np  # noqa: PLC0415

        self._kernel = kernel
        self._candidates = candidates
        self._points = candidates[:0]
        self._factor = np.zeros((0, 0))
        self._rows = np.zeros((64, len(candidates)))  # as many of these are in use as there are points

    def __len__(self) -> int:
        return len(self._points)

    def truncate(self, count: int) -> None:
        """Forgets all points but the first ``count``."""
        self._points = self._points[:count]
        self._factor = self._factor[:count, :count]

    def extend(self, points: Array) -> None:
        """Adds points after the present ones."""
        import numpy as np  # noqa: PLC0415

        kernel, old, new = self._kernel, len(self._points), len(points)
        below = np.linalg.solve(self._factor, kernel.between(self._points, points)).T
        corner = np.linalg.cholesky(kernel.covariance(points) - below @ below.T)
        rest = kernel.between(points, self._candidates) - below @ self._rows[:old]
        self._factor = np.block([[self._factor, np.zeros((old, new))], [below, corner]])
        while len(self._rows) < old + new:
            self._rows = np.vstack([self._rows, np.zeros_like(self._rows)])
        self._rows[old : old + new] = np.linalg.solve(corner, rest)
        self._points = np.vstack([self._points, points])

    def predict(self, values: Array) -> Prediction:
        """Predicts from standardized values at the first points; the values at the rest are still pending.

        Candidates near pending points count as certain.
        """
        import numpy as np  # noqa: PLC0415

        count = len(values)
        whitened = np.linalg.solve(self._factor[:count, :count], values)
        rows = self._rows[: len(self._points)]
        explained = np.einsum("ij,ij->j", rows, rows)
        return Prediction(whitened @ rows[:count], np.sqrt(np.maximum(1 - explained, 1e-9)))


def fit_kernel(points: Array, values: Array, axes: Sequence[slice] = ()) -> CovarianceKernel:
    """The kernel under which standardized ``values`` at ``points`` are most likely: of a dozen with one length.

    Then, with enough values, each of ``axes`` (columns of points) gets a length of its own, step by step. So parameters
    that hardly matter get long lengths, and the others are known from fewer values.
    """
    import numpy as np  # noqa: PLC0415

    def unlikeliness(kernel: CovarianceKernel) -> float:
        factor = np.linalg.cholesky(kernel.covariance(points))
        whitened = np.linalg.solve(factor, values)
        return float(0.5 * len(values) * np.log((whitened**2).mean() + 1e-12) + np.log(np.diag(factor)).sum())

    common = [(length, CovarianceKernel(length, noise)) for length in _LENGTHS for noise in _NOISES]
    costs = [unlikeliness(kernel) for _, kernel in common]
    cost = min(costs)
    length, best = common[costs.index(cost)]
    if len(values) < _OWN_LENGTHS or len(axes) < 2:
        return best
    factors = np.ones(len(axes))
    widths = [axis.stop - axis.start for axis in axes]
    for _ in range(_SWEEPS):
        before = cost
        for at in range(len(axes)):
            for factor in _FACTORS:
                tried = factors.copy()
                tried[at] *= factor
                if not _LEAST_LENGTH < length * tried[at] < _MOST_LENGTH:
                    continue
                kernel = CovarianceKernel(length * np.repeat(tried, widths), best.noise)
                own = unlikeliness(kernel) + _PENALTY * float((np.log(tried) ** 2).sum())
                if own < cost - 1e-9:
                    cost, best, factors = own, kernel, tried
        if cost == before:
            break
    return best


def expected_improvement(prediction: Prediction, best: float) -> Array:
    """The expected amount by which each candidate is below ``best``."""
    import numpy as np  # noqa: PLC0415

    gain = best - prediction.mean
    scaled = gain / prediction.deviation
    below = 0.5 * (1 + np.fromiter(map(math.erf, scaled / math.sqrt(2)), dtype=np.float64, count=len(scaled)))
    density = np.exp(-scaled * scaled / 2) / math.sqrt(2 * math.pi)
    return gain * below + prediction.deviation * density


def left_out(kernel: CovarianceKernel, points: Array, values: Array) -> Array:
    """The prediction of each of ``values`` at ``points`` from all the others."""
    import numpy as np  # noqa: PLC0415

    inverse = np.linalg.inv(kernel.covariance(points))
    return values - inverse @ values / np.diag(inverse)


def rank_correlation(left: Array, right: Array) -> float:
    """Spearman's: 1 if both order alike, -1 if in opposite order, 0 if one is constant.

    >>> import numpy as np
    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.0, 1.0, 2.0]))
    1.0
    """
    first, second = _ranks(left), _ranks(right)
    spread = float(first.std() * second.std())
    return 0.0 if spread == 0 else float(((first - first.mean()) * (second - second.mean())).mean() / spread)


def _ranks(values: Array) -> Array:
    """Places in ascending order; equal values share their mean place."""
    import numpy as np  # noqa: PLC0415

    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def one_thread() -> AbstractContextManager[object]:
    """Keeps numpy's linear algebra on the caller's thread within the block, if threadpoolctl is installed.

    The matrices of a search have some hundred rows. More threads save nothing, and they wait for one another by
    spinning, on cores that compile workers and kernels under measurement need.
    """
    found = _controller()
    return nullcontext() if found is None else found.limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:  # noqa: ANN401  # of a package without types; None if it is not installed
    import_module("numpy")  # the controller only controls libraries that are loaded when it is made
    try:
        found: Any = import_module("threadpoolctl")
    except ImportError:
        return None
    return found.ThreadpoolController()

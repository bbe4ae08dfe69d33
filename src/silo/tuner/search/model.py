"""A Gaussian process over configs: the times of a few predict the times of all others.

Configs are points of a Euclidean space, in which configs that should behave alike are close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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

# ---- Configs as points of a Euclidean space ----


def features(lattice: Lattice) -> NDArray[np.float64]:
    """Returns the points of all configs, one row per config; two values of a parameter are at most about 1 apart.

    A number has two features: the mean of its rank on the axis and its scaled logarithm; and how often 2 divides it,
    because block sizes that are multiples of large powers of two behave alike while their neighbours do not. Values
    without order are all 1 apart from each other.
    """
    import numpy as np  # noqa: PLC0415  # slow to import, and only models of large spaces need it

    blocks: list[NDArray[np.float64]] = []
    for axis, column in zip(lattice.axes, lattice.columns, strict=True):
        places = np.frombuffer(column, dtype=np.uint32)
        table = _axis_features(axis, absent=bool((places == len(axis)).any()))
        if table.shape[1]:
            blocks.append(table[places])
    return np.hstack(blocks) if blocks else np.zeros((len(lattice), 1))


def feature_axes(lattice: Lattice) -> tuple[slice, ...]:
    """Returns a slice of columns of :func:`features` for each parameter, without parameters that have no column."""
    slices: list[slice] = []
    begin = 0
    for axis, column in zip(lattice.axes, lattice.columns, strict=True):
        count = _axis_features(axis, absent=len(axis) in column).shape[1]
        if count:
            slices.append(slice(begin, begin + count))
        begin += count
    return tuple(slices)


def _axis_features(axis: Axis, *, absent: bool) -> NDArray[np.float64]:
    """Returns one row of features per value of the axis; the last row is for a config without the parameter."""
    import numpy as np  # noqa: PLC0415

    count = len(axis) + 1
    columns: list[NDArray[np.float64]] = []
    numbers = [float(value) for value in axis.numbers]
    if len(numbers) > 1:
        rank = np.arange(len(numbers)) / (len(numbers) - 1)
        size = _scaled(np.log2(np.maximum(numbers, 0.5))) if numbers[0] >= 0 else rank
        columns.append(_padded((rank + size) / 2, count))
        twos = _scaled(np.array([_halvings(value) for value in axis.numbers], dtype=np.float64))
        # The second column is left out if it repeats the logarithm, which would then count twice, or if it is constant
        # and distinguishes nothing.
        if len(numbers) > 2 and twos.any() and not np.allclose(twos, size):
            columns.append(_padded(twos, count))
    unordered = [*range(len(numbers), len(axis)), *([len(axis)] if absent else [])]
    if unordered and len(unordered) + min(len(numbers), 1) > 1:
        for position in unordered:
            column = np.zeros(count)
            column[position] = 2**-0.5  # two values differ in two such columns, so their distance is 1
            columns.append(column)
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0))


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else values * 0


def _padded(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Returns ``values``, padded with 0.5 (the middle of their range) for values of the axis that are not numbers."""
    import numpy as np  # noqa: PLC0415

    return np.concatenate([values, np.full(count - len(values), 0.5)])


def _halvings(value: float) -> int:
    """Returns how often 2 divides an integer; 0 for 0 and for values that are not integers."""
    if not isinstance(value, int) or value == 0:
        return 0
    return (value & -value).bit_length() - 1


# ---- The Gaussian process ----

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]


_LENGTHS = (0.3, 0.6, 1.2, 2.4)
_NOISES = (1e-3, 1e-2, 1e-1)
# From this many known times on, each parameter has its own length scale: the common one times a product of _FACTORS. A
# factor is used only if the likelihood gains more than the penalty, which grows with the square of the factor's
# logarithm.
_OWN_LENGTHS = 16
# An additive covariance kernel is in part a mean of kernels of one parameter each: a few measured times show the effect
# of each parameter, but hardly how the parameters act together.
_ADDITIVE_SHARE = 0.5
_ADDITIVE_LENGTHS = (0.5, 1.0, 2.0)
_FACTORS = (0.5, 2.0)
_LEAST_LENGTH, _MOST_LENGTH = 0.05, 20.0
_PENALTY = 0.3
_SWEEPS = 2


@dataclass(frozen=True, slots=True)
class CovarianceKernel:
    """A Matern kernel of smoothness 5/2: the distance over which times are alike, and the variance of the noise.

    ``length`` is one number for all features, or an array with the length of each feature. With ``axes``, columns
    of the features, half of the covariance is the mean of the covariances on each axis alone, with ``axis_length``.
    """

    length: float | Array
    noise: float
    axes: tuple[slice, ...] = ()
    axis_length: float = 1.0

    def between(self, left: Array, right: Array) -> Array:
        """Returns the covariance of each row of ``left`` with each row of ``right``, without noise."""
        whole = _matern(left / self.length, right / self.length)
        if not self.axes:
            return whole
        total = sum(_matern(left[:, axis] / self.axis_length, right[:, axis] / self.axis_length) for axis in self.axes)
        return (1 - _ADDITIVE_SHARE) * whole + _ADDITIVE_SHARE / len(self.axes) * total

    def covariance(self, points: Array) -> Array:
        """Returns the covariance matrix of observations at ``points``, with noise."""
        import numpy as np  # noqa: PLC0415

        return self.between(points, points) + self.noise * np.eye(len(points))


def _matern(left: Array, right: Array) -> Array:
    """Returns the Matern covariance of each row of ``left`` with each row of ``right``, in units of the length."""
    import numpy as np  # noqa: PLC0415

    squared = (left * left).sum(1)[:, None] + (right * right).sum(1)[None, :] - 2 * left @ right.T
    scaled = np.sqrt(np.maximum(squared, 0) * 5)
    return (1 + scaled + scaled * scaled / 3) * np.exp(-scaled)


@dataclass(frozen=True)
class Prediction:
    """The mean and the standard deviation for each candidate."""

    mean: Array
    deviation: Array


class Posterior:
    """Predicts values at ``candidates`` from observations at points that can be added one by one.

    ``_rows`` holds, for each point, one row of the inverse Cholesky factor times the covariance of points with
    candidates, so another point costs one row.
    """

    def __init__(self, kernel: CovarianceKernel, candidates: Array) -> None:
        import numpy as np  # noqa: PLC0415

        self._kernel = kernel
        self._candidates = candidates
        self._points = candidates[:0]
        self._factor = np.zeros((0, 0))
        self._rows = np.zeros((64, len(candidates)))  # only the first len(self) rows are in use

    def __len__(self) -> int:
        return len(self._points)

    def truncate(self, count: int) -> None:
        """Keeps the first ``count`` points and forgets the others."""
        self._points = self._points[:count]
        self._factor = self._factor[:count, :count]

    def extend(self, points: Array) -> None:
        """Adds points after the present ones."""
        import numpy as np  # noqa: PLC0415

        kernel, old, new = self._kernel, len(self._points), len(points)
        below = np.linalg.solve(self._factor, kernel.between(self._points, points)).T
        corner = np.linalg.cholesky(kernel.covariance(points) - below @ below.T)
        residual = kernel.between(points, self._candidates) - below @ self._rows[:old]
        self._factor = np.block([[self._factor, np.zeros((old, new))], [below, corner]])
        while len(self._rows) < old + new:
            self._rows = np.vstack([self._rows, np.zeros_like(self._rows)])
        self._rows[old : old + new] = np.linalg.solve(corner, residual)
        self._points = np.vstack([self._points, points])

    def predict(self, values: Array) -> Prediction:
        """Predicts from standardized values at the first points. The values at the remaining points are still unknown.

        These remaining points lower the deviation of candidates near them, as if their values were known.
        """
        import numpy as np  # noqa: PLC0415

        count = len(values)
        whitened = np.linalg.solve(self._factor[:count, :count], values)
        rows = self._rows[: len(self._points)]
        explained = np.einsum("ij,ij->j", rows, rows)
        return Prediction(whitened @ rows[:count], np.sqrt(np.maximum(1 - explained, 1e-9)))


def fit_kernel(points: Array, values: Array, axes: Sequence[slice] = (), *, additive: bool = False) -> CovarianceKernel:
    """Returns the covariance kernel under which standardized ``values`` at ``points`` are most likely.

    A dozen kernels with a common length are tried first. Then, with enough values, each of ``axes`` (columns of points)
    gets a length of its own, step by step. Parameters that hardly matter get long lengths, so fewer values suffice to
    predict by the other parameters. With ``additive``, half of the kernel is additive over the axes.
    """
    import numpy as np  # noqa: PLC0415

    def unlikeliness(kernel: CovarianceKernel) -> float:
        factor = np.linalg.cholesky(kernel.covariance(points))
        whitened = np.linalg.solve(factor, values)
        return float(0.5 * len(values) * np.log((whitened**2).mean() + 1e-12) + np.log(np.diag(factor)).sum())

    best = _product_kernel(len(values), axes, unlikeliness)
    if len(axes) < 2 or not additive:
        return best
    kernels = [
        CovarianceKernel(best.length, noise, tuple(axes), length) for length in _ADDITIVE_LENGTHS for noise in _NOISES
    ]
    return min(kernels, key=unlikeliness)


def _product_kernel(
    count: int, axes: Sequence[slice], unlikeliness: Callable[[CovarianceKernel], float]
) -> CovarianceKernel:
    """Returns the likeliest covariance kernel that is a product over all parameters, for ``count`` observations."""
    import numpy as np  # noqa: PLC0415

    common = [(length, CovarianceKernel(length, noise)) for length in _LENGTHS for noise in _NOISES]
    costs = [unlikeliness(kernel) for _, kernel in common]
    cost = min(costs)
    length, best = common[costs.index(cost)]
    if count < _OWN_LENGTHS or len(axes) < 2:
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
    """Returns, for each candidate, the expected amount by which its value is below ``best``."""
    import numpy as np  # noqa: PLC0415

    gain = best - prediction.mean
    scaled = gain / prediction.deviation
    below = 0.5 * (1 + np.fromiter(map(math.erf, scaled / math.sqrt(2)), dtype=np.float64, count=len(scaled)))
    density = np.exp(-scaled * scaled / 2) / math.sqrt(2 * math.pi)
    return gain * below + prediction.deviation * density


def left_out(kernel: CovarianceKernel, points: Array, values: Array) -> Array:
    """Returns the prediction of each of ``values`` at ``points`` from all the others."""
    import numpy as np  # noqa: PLC0415

    inverse = np.linalg.inv(kernel.covariance(points))
    return values - inverse @ values / np.diag(inverse)


def rank_correlation(left: Array, right: Array) -> float:
    """Returns Spearman's rank correlation: 1 for the same order, -1 for the opposite order, 0 if one array is constant.

    >>> import numpy as np
    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.0, 1.0, 2.0]))
    1.0
    """
    first, second = _ranks(left), _ranks(right)
    spread = float(first.std() * second.std())
    return 0.0 if spread == 0 else float(((first - first.mean()) * (second - second.mean())).mean() / spread)


def _ranks(values: Array) -> Array:
    """Returns the rank of each value in ascending order; equal values share their mean rank."""
    import numpy as np  # noqa: PLC0415

    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def one_thread() -> AbstractContextManager[object]:
    """Keeps numpy's linear algebra on the caller's thread within a ``with`` block, if threadpoolctl is installed.

    The matrices of a search have some hundred rows, so more threads save nothing. They wait for one another by
    spinning, which takes cores away from compile workers and from kernels under measurement.
    """
    controller = _controller()
    return nullcontext() if controller is None else controller.limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:  # noqa: ANN401  # threadpoolctl has no types; None if it is not installed
    import_module("numpy")  # the controller only controls libraries that are loaded before it is made
    try:
        library: Any = import_module("threadpoolctl")
    except ImportError:
        return None
    return library.ThreadpoolController()

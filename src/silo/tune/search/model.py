"""A Gaussian process over configs: what the times of a few say about all the others.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006): prediction is equation 2.25 and algorithm 2.1,
the marginal likelihood equation 5.8, the Matern kernel equation 4.17; expected improvement is Jones, Schonlau and
Welch, Journal of Global Optimization 13 (1998), equation 15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

__all__ = ["Kernel", "Prediction", "expected_improvement", "fit_kernel", "predict"]

_LENGTHS = (0.3, 0.6, 1.2, 2.4)
_NOISES = (1e-3, 1e-2, 1e-1)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A Matern kernel of smoothness 5/2: over what distance times are alike, and the variance that is noise."""

    length: float
    noise: float

    def between(self, left: Array, right: Array) -> Array:
        """The covariance of each row of ``left`` with each of ``right``, noise apart."""
        import numpy as np  # noqa: PLC0415

        squared = (left * left).sum(1)[:, None] + (right * right).sum(1)[None, :] - 2 * left @ right.T
        scaled = np.sqrt(np.maximum(squared, 0) * (5 / self.length**2))
        return (1 + scaled + scaled * scaled / 3) * np.exp(-scaled)

    def factor(self, points: Array) -> Array:
        """The Cholesky factor of the covariance of observations at ``points``."""
        import numpy as np  # noqa: PLC0415

        return np.linalg.cholesky(self.between(points, points) + self.noise * np.eye(len(points)))


@dataclass(frozen=True)
class Prediction:
    """Mean and standard deviation for each candidate."""

    mean: Array
    deviation: Array


def fit_kernel(points: Array, values: Array) -> Kernel:
    """The kernel under which standardised ``values`` at ``points`` are most likely, of a dozen."""
    import numpy as np  # noqa: PLC0415

    def unlikeliness(kernel: Kernel) -> float:
        factor = kernel.factor(points)
        whitened = np.linalg.solve(factor, values)
        return float(0.5 * len(values) * np.log((whitened**2).mean() + 1e-12) + np.log(np.diag(factor)).sum())

    return min((Kernel(length, noise) for length in _LENGTHS for noise in _NOISES), key=unlikeliness)


def predict(kernel: Kernel, points: Array, values: Array, awaited: Array, candidates: Array) -> Prediction:
    """What standardised ``values`` at ``points`` say of ``candidates``.

    Values at ``awaited`` are not known yet, but will be, so nothing near them is uncertain any more.
    """
    import numpy as np  # noqa: PLC0415

    factor = kernel.factor(points)
    near = kernel.between(points, candidates)
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, values))
    if len(awaited):
        both = np.vstack([points, awaited])
        factor, spread = kernel.factor(both), kernel.between(both, candidates)
    else:
        spread = near
    whitened = np.linalg.solve(factor, spread)
    return Prediction(weights @ near, np.sqrt(np.maximum(1 - (whitened**2).sum(0), 1e-9)))


def expected_improvement(prediction: Prediction, best: float) -> Array:
    """By how much each candidate is expected to be below ``best``."""
    import numpy as np  # noqa: PLC0415

    gain = best - prediction.mean
    scaled = gain / prediction.deviation
    below = 0.5 * (1 + np.fromiter(map(math.erf, scaled / math.sqrt(2)), dtype=np.float64, count=len(scaled)))
    density = np.exp(-scaled * scaled / 2) / math.sqrt(2 * math.pi)
    return gain * below + prediction.deviation * density

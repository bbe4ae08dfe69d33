"""A model of the loss of each config at sizes that were not measured, learnt from all trials of a kernel.

A loss is the part of a config's time that the best config of the same size would save: 0 for the best, near 1 for
very slow ones. A Gaussian process predicts it from the config, the size, and quotients of the two: a block that is
larger than the array, and the part of the last block that lies outside of the array, cost as much at other sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from silo.core.config import Config, ConfigSet
from silo.core.dispatch import Bucket
from silo.core.lattice import Lattice
from silo.tuner.search.model import CovarianceKernel, features, one_thread
from silo.tuner.statistics import PPM, median
from silo.tuner.trial import Trial
from silo.tuner.winner import choose_winner, standings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

__all__ = ["LossModel", "Sample", "is_modelled", "loss_ppm", "octaves_apart"]

_POINTS = 600  # at most this many measured times are used: the linear algebra takes their number cubed
_FEWEST_CONFIGS = 12  # of each size, however many sizes were measured
# The scales of the features. They were chosen on recorded times of three kernels at 10 to 19 sizes each.
_SIZE = 0.15  # for an octave
_QUOTIENT = 0.25  # for an octave between a size and a parameter
_OCTAVES = 2  # a block beyond so many times the size, or below its such part, costs no more
_MOST_WASTE = 3  # octaves
# The choices among which the likelihood decides.
_LENGTHS = (0.7, 1.5, 3.0)
_NOISES = (0.003, 0.02, 0.1)
_OWN = (0.0, 0.3, 1.0)  # variance of a config's own loss, which its values do not explain
_REACH = 4.0  # octaves within which a config's own loss is alike
_OFFSET = 0.3  # variance of a size's offset, common to all of its configs


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured bucket: its winner, and the time in nanoseconds of each usable config, in order of their keys."""

    bucket: Bucket
    winner: Config
    times: tuple[tuple[Config, int], ...]

    @classmethod
    def of(cls, bucket: Bucket, winner: Config, times: dict[Config, int]) -> Sample:
        """A sample from configs."""
        return cls(bucket, winner, tuple(sorted(times.items(), key=lambda pair: pair[0].order_key)))

    @classmethod
    def of_trials(cls, bucket: Bucket, trials: Sequence[Trial]) -> Sample | None:
        """A sample from a bucket's trials; None if no config can be used.

        Configs that were compared side by side have their times of the comparison. The times of the others are from
        the search, on the scale of the comparison, and not below the winner's.
        """
        winner = choose_winner(trials)
        if winner is None:
            return None
        compared = {winner.config: winner.median_ns} | {one.config: one.time.median_ns for one in winner.runners_up}
        searched = {one.config: one.time.median_ns for one in standings(trials)}
        scale = median([compared[one] * PPM // max(time, 1) for one, time in searched.items() if one in compared])
        times = {one: max(time * scale // PPM, winner.median_ns) for one, time in searched.items()}
        return cls.of(bucket, winner.config, {**times, **compared})

    @property
    def best_ns(self) -> int:
        """The winner's time: at least 1."""
        return max(dict(self.times)[self.winner], 1)


def is_modelled(samples: Sequence[Sample]) -> bool:
    """Whether all sizes are natural numbers: the model, and decision lists, are about these."""
    return all(type(value) is int and value >= 0 for sample in samples for value in sample.bucket)


def loss_ppm(time_ns: int, best_ns: int) -> int:
    """A loss in millionths; 0 for a config that is faster than the best, which noise may make it.

    >>> loss_ppm(200, 100), loss_ppm(90, 100)
    (500000, 0)
    """
    return max(time_ns - best_ns, 0) * PPM // max(time_ns, 1)


class LossModel:
    """Predicts losses in millionths. Made from samples whose buckets hold natural numbers; needs numpy.

    ``configs`` are the configs that it predicts: all that were measured, or of too many the best at any size.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        import numpy as np  # noqa: PLC0415  # heavy, and few processes meet sizes that were not measured

        self.samples = tuple(samples)
        self.configs = _chosen(samples)
        self._places = {config: at for at, config in enumerate(self.configs)}
        self._config_features = features(Lattice(self.configs))
        self._parameters = _parameters(self.configs)
        rows = [
            (number, self._places[config], loss_ppm(time, sample.best_ns) / PPM)
            for number, sample in enumerate(self.samples)
            for config, time in sample.times
            if config in self._places
        ]
        self._sample_of = np.array([row[0] for row in rows])
        self._config_of = np.array([row[1] for row in rows])
        losses = np.array([row[2] for row in rows])
        self._mean, self._spread = float(losses.mean()), float(losses.std()) + 1e-9
        self._values = (losses - self._mean) / self._spread
        every = [self._points(sample.bucket) for sample in self.samples]
        self._known = np.stack([every[number][place] for number, place, _ in rows])
        with one_thread():
            self._fit()

    def predict(self, bucket: Bucket) -> tuple[int, ...]:
        """The predicted loss of each of ``configs`` at a size, in millionths: natural numbers."""
        import numpy as np  # noqa: PLC0415

        near = np.array([self._nearness(bucket, sample.bucket) for sample in self.samples])[self._sample_of]
        same = np.arange(len(self.configs))[:, None] == self._config_of[None, :]
        with one_thread():
            covariance = self._kernel.between(self._points(bucket), self._known) + self._own * same * near[None, :]
            return _millionths((covariance @ self._weights) * self._spread + self._mean)

    def held_out(self, number: int) -> dict[Config, int]:
        """The losses at one sample's size, in millionths, predicted from the other samples: for its configs."""
        import numpy as np  # noqa: PLC0415

        own = np.flatnonzero(self._sample_of == number)
        with one_thread():
            residual = np.linalg.solve(self._inverse[np.ix_(own, own)], self._weights[own])
        losses = _millionths((self._values[own] - residual) * self._spread + self._mean)
        return {self.configs[place]: loss for place, loss in zip(self._config_of[own], losses, strict=True)}

    def _fit(self) -> None:
        """Chooses the kernel under which the losses are most likely."""
        import numpy as np  # noqa: PLC0415

        count = len(self._values)
        together = (self._sample_of[:, None] == self._sample_of[None, :]) * _OFFSET
        between = np.array([[self._nearness(a.bucket, b.bucket) for b in self.samples] for a in self.samples])
        own = (self._config_of[:, None] == self._config_of[None, :]) * between[np.ix_(self._sample_of, self._sample_of)]
        best: tuple[float, CovarianceKernel, float, Array] | None = None
        for length in _LENGTHS:
            alike = CovarianceKernel(length, 0.0).between(self._known, self._known) + together
            for noise in _NOISES:
                for variance in _OWN:
                    covariance: Array = alike + variance * own + noise * np.eye(count)
                    factor: Array = np.linalg.cholesky(covariance)
                    whitened: Array = np.linalg.solve(factor, self._values)
                    likely = 0.5 * count * math.log(float((whitened**2).mean()) + 1e-12)
                    likely += float(np.log(np.diag(factor)).sum())
                    if best is None or likely < best[0]:
                        best = (likely, CovarianceKernel(length, noise), variance, covariance)
        assert best is not None
        _, self._kernel, self._own, covariance = best
        self._inverse = np.linalg.inv(covariance)
        self._weights = self._inverse @ self._values

    def _points(self, bucket: Bucket) -> Array:
        """The features of each config at a size: a row for each config."""
        import numpy as np  # noqa: PLC0415

        count = len(self.configs)
        sizes = [max(float(value), 1.0) for value in bucket if isinstance(value, int)]
        columns = [self._config_features, *(np.full((count, 1), _SIZE * math.log2(size)) for size in sizes)]
        for size in sizes:
            for values in self._parameters:
                octaves = np.clip(np.log2(size / values), -_OCTAVES, _OCTAVES)
                waste = np.clip(np.log2(np.ceil(size / values) * values / size), 0, _MOST_WASTE)
                columns += [_QUOTIENT * octaves[:, None], waste[:, None]]
        return np.hstack(columns)

    def _nearness(self, here: Bucket, there: Bucket) -> float:
        """How alike a config's own loss is at two sizes: 1 at the same size."""
        return math.exp(-octaves_apart(here, there) / _REACH)


def octaves_apart(here: Bucket, there: Bucket) -> float:
    """The factors between two sizes, in octaves, summed over their numbers."""
    pairs = zip(here, there, strict=True)
    return sum(
        abs(math.log2(max(a, 1)) - math.log2(max(b, 1))) for a, b in pairs if isinstance(a, int) and isinstance(b, int)
    )


def _chosen(samples: Sequence[Sample]) -> tuple[Config, ...]:
    """All measured configs; of too many, those with the least loss at any size, winners first."""
    best: dict[Config, tuple[int, int]] = {}
    for sample in samples:
        for config, time in sample.times:
            loss, total = best.get(config, (PPM, 0))
            own = loss_ppm(time, sample.best_ns)
            best[config] = (min(loss, own), total + own)
    ordered = sorted(best, key=lambda config: (best[config], config.order_key))
    winners = ConfigSet(sample.winner for sample in samples)
    most = max(_POINTS // len(samples), _FEWEST_CONFIGS, len(winners))
    return tuple(sorted([*winners, *(one for one in ordered if one not in winners)][:most], key=lambda c: c.order_key))


def _parameters(configs: Sequence[Config]) -> list[Array]:
    """The values of each constexpr that is a positive integer in every config and differs among them."""
    import numpy as np  # noqa: PLC0415

    names = dict.fromkeys(name for config in configs for name, _ in config.values)
    found: list[Array] = []
    for name in names:
        values = [dict(config.values).get(name) for config in configs]
        numbers = [value for value in values if type(value) is int and value > 0]
        if len(numbers) == len(values) and len(set(numbers)) > 1:
            found.append(np.array(numbers, dtype=np.float64))
    return found


def _millionths(losses: Array) -> tuple[int, ...]:
    return tuple(min(max(round(float(loss) * PPM), 0), PPM - 1) for loss in losses)

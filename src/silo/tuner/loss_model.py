"""A model of the loss of each config at sizes that were not measured, learnt from all trials of a kernel.

A loss is the fraction of a config's time that the best config of the same size would save: 0 for the best, near 1 for
very slow ones. Gaussian processes predict it from the config, the size, and quotients of the two: a block that is
larger than the array, or a last block that lies partly outside of it, wastes the same fraction of time at any size. Two
processes are averaged, each weighted by its errors on held-out sizes. The first learns losses as they are, so it
predicts best which configs are very slow. The second learns them on a scale that magnifies the differences among good
configs. A third prediction is the mean of a config's regrets at the measured sizes, weighted by nearness: it does not
extrapolate, so it warns of configs that were slow nearby. The third prediction has the share in the result that makes
the choices at held-out sizes cost least.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from silo.core.config import Config, ConfigSet
from silo.core.dispatch import Bucket
from silo.core.lattice import Lattice
from silo.tuner.objective import TIME, Objective, values_of
from silo.tuner.search.model import CovarianceKernel, features, one_thread
from silo.tuner.statistics import PPM, median
from silo.tuner.trial import Trial
from silo.tuner.winner import Winner, choose_winner, standings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]
    Places = NDArray[np.intp]

__all__ = ["UNPROVEN_PPM", "LossModel", "Sample", "is_modelled", "loss_ppm", "octaves_apart", "unproven_ppm"]

# A config that won at no size must be predicted better than a winner by this much: smaller differences may be noise,
# and winners were measured more often.
UNPROVEN_PPM = 20_000

_POINTS = 600  # the most measured times that are used: the linear algebra takes time cubic in their number
_FEWEST_CONFIGS = 12  # a model covers at least this many configs, however many sizes were measured
# The scales of the features, chosen on recorded times of three kernels at 10 to 19 sizes each.
_SIZE = 0.15  # the distance of two sizes that are an octave apart
_QUOTIENT = 0.25  # the distance of two quotients of a size and a parameter that are an octave apart
_OCTAVES = 2  # the most octaves between a size and a parameter, in both directions: larger distances are clipped to it
_MOST_WASTE = 3  # the most octaves of waste (by which whole blocks exceed a size); a larger waste is clipped to it
# Length scales and noises of the Gaussian processes to choose among: those with the greatest likelihood are used.
_LENGTHS = (0.7, 1.5, 3.0)
_NOISES = (0.003, 0.02, 0.1)
_OWN = (0.3, 1.0)  # variances to try for the part of a config's loss that its values do not explain; 0 is tried too
# Configs, sizes, quotients (of a size and a parameter) and waste (the octaves by which whole blocks exceed the size)
# are four groups of features, each with its own length scale: the common one times a product of these factors. A change
# of a scale must raise the likelihood by more than the penalty, which grows with the sum of the squared logarithms of
# all factors.
_FACTORS = (0.5, 2.0)
_LEAST_LENGTH, _MOST_LENGTH = 0.2, 12.0
_PENALTY = 0.3
_SWEEPS = 2
_REACH = 4.0  # octaves over which the unexplained part of a config's loss stays correlated
_OFFSET = 0.3  # variance of a size's offset, which all of its configs share
# On the scale of the second Gaussian process (_Spread), this loss lies about halfway between no loss and the largest.
_MIDDLE = 0.1
_NODES = 9  # the number of nodes of the Gauss-Hermite quadrature that averages over a predicted loss
_MOST_LOSS = 0.9  # losses are clipped to this, the loss of a config ten times as slow as the best
# A Gaussian process's error on held-out sizes, in logarithms of times, counts as at least this when the weight of the
# process is computed.
_LEAST_ERROR = 0.001
_DRAWS = 256  # the number of random draws; each draws the losses of all configs at one size together
_JITTER = 1e-6  # variance added to a joint covariance, so that it stays positive after rounding
# The shares to choose among for the third prediction, the mean of the regrets at near sizes; and the power of the
# distance by which the weights of these sizes fall.
_SHARES = (0.0, 0.1, 0.2, 0.4, 0.7)
_FALL = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """The times of configs at one measured bucket.

    ``winner`` is the config chosen for the bucket. ``times`` has each usable config with its time in nanoseconds, in
    the order of ``Config.order_key``, so that equal measurements make equal samples.
    """

    bucket: Bucket
    winner: Config
    times: tuple[tuple[Config, int], ...]

    @classmethod
    def of(cls, bucket: Bucket, winner: Config, times: dict[Config, int]) -> Sample:
        """Makes a sample from times in any order."""
        return cls(bucket, winner, tuple(sorted(times.items(), key=lambda pair: pair[0].order_key)))

    @classmethod
    def of_trials(cls, bucket: Bucket, trials: Sequence[Trial], objective: Objective = TIME) -> Sample | None:
        """Makes a sample from a bucket's trials; None if the trials have no winner.

        If ``objective`` is another metric than time, the costs of the configs that meet its constraints take the place
        of times.

        A config that was compared side by side has its time in the comparison. The time of any other config is from the
        search, scaled to the comparison, and never less than the winner's time.
        """
        winner = choose_winner(trials, objective)
        if winner is None:
            return None
        if objective.metric != "time":
            return cls.of(bucket, winner.config, _costs(trials, winner, objective))
        trials = objective.admitted(trials)
        compared = {winner.config: winner.median_ns} | {item.config: item.time.median_ns for item in winner.runners_up}
        searched = {standing.config: standing.time.median_ns for standing in standings(trials)}
        scale = median([compared[item] * PPM // max(time, 1) for item, time in searched.items() if item in compared])
        times = {item: max(time * scale // PPM, winner.median_ns) for item, time in searched.items()}
        return cls.of(bucket, winner.config, {**times, **compared})

    @property
    def best_ns(self) -> int:
        """The winner's time in nanoseconds, at least 1."""
        return max(dict(self.times)[self.winner], 1)


def _costs(trials: Sequence[Trial], winner: Winner, objective: Objective) -> dict[Config, int]:
    """Returns the cost of each eligible config, scaled so that the winner's is 1,000,000."""
    values = values_of(objective.metric, objective.admitted(trials))
    eligible = [winner.config, *(standing.config for standing in winner.runners_up)]
    costs = {config: objective.cost_of(values[config]) for config in eligible}
    least_cost = costs[winner.config]
    return {
        config: round(max(cost / least_cost if least_cost else 1 + cost, 1) * PPM) for config, cost in costs.items()
    }


def is_modelled(samples: Sequence[Sample]) -> bool:
    """Returns whether all sizes are natural numbers: the model and decision lists need that."""
    return all(type(value) is int and value >= 0 for sample in samples for value in sample.bucket)


def loss_ppm(time_ns: int, best_ns: int) -> int:
    """Returns a loss in millionths; 0 if noise made the config faster than the best.

    >>> loss_ppm(200, 100), loss_ppm(90, 100)
    (500000, 0)
    """
    return max(time_ns - best_ns, 0) * PPM // max(time_ns, 1)


def unproven_ppm(configs: Iterable[Config], winners: Container[Config]) -> list[int]:
    """Returns how many millionths better than a winner each config must be predicted; 0 for a winner of some size."""
    return [0 if config in winners else UNPROVEN_PPM for config in configs]


class LossModel:
    """Predicts regrets in millionths, from samples whose buckets hold natural numbers. Needs numpy.

    A regret is the time beyond the best config's, divided by the best config's time. ``configs`` are the configs whose
    regrets are predicted: all that were measured or, if these are too many, the best at any size.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        import numpy as np  # noqa: PLC0415  # slow to import, and few processes predict unmeasured sizes

        self.samples = tuple(samples)
        self.configs = _chosen(samples)
        places = {config: at for at, config in enumerate(self.configs)}
        self._config_features = features(Lattice(self.configs))
        self._parameters = _parameters(self.configs)
        rows = [
            (number, places[config], loss_ppm(time, sample.best_ns) / PPM)
            for number, sample in enumerate(self.samples)
            for config, time in sample.times
            if config in places
        ]
        self._sample_of = np.array([row[0] for row in rows])
        self._config_of = np.array([row[1] for row in rows])
        losses = np.array([row[2] for row in rows])
        every = [self._points(sample.bucket) for sample in self.samples]
        self._observed_points = np.stack([every[number][position] for number, position, _ in rows])
        near = np.array([[_nearness(a.bucket, b.bucket) for b in self.samples] for a in self.samples])
        same_sample = self._sample_of[:, None] == self._sample_of[None, :]
        same_config = self._config_of[:, None] == self._config_of[None, :]
        own = same_config * near[np.ix_(self._sample_of, self._sample_of)]
        groups = self._groups
        with one_thread():
            self._processes = [
                _Process(scale, losses, self._observed_points, groups, same_sample * _OFFSET, own)
                for scale in (_As(), _Spread())
            ]
            self._held_out = [self._left_out(process) for process in self._processes]
        true = np.log1p(_regrets(losses))
        errors = [float(np.abs(np.log1p(regrets) - true).mean()) for regrets in self._held_out]
        weights = np.array([1 / max(error, _LEAST_ERROR) ** 2 for error in errors])
        self._shares = weights / weights.sum()
        # log1p of each config's regret in each sample; NaN: not tried
        self._logs = np.full((len(self.samples), len(self.configs)), np.nan)
        self._logs[self._sample_of, self._config_of] = true
        self._share = self._best_share()

    def predict(self, bucket: Bucket) -> tuple[int, ...]:
        """Returns the expected regret of each of ``configs`` at a size, in millionths: natural numbers.

        A config with an uncertain loss may be very slow, and a slow config costs more than a fast one saves. So its
        expected regret is greater than the regret of its expected loss.
        """
        import numpy as np  # noqa: PLC0415

        own, points = self._own_nearness(bucket), self._points(bucket)
        with one_thread():
            regrets = [process.predict(points, self._observed_points, own) for process in self._processes]
        return _millionths(_mixed(self._shares @ np.stack(regrets), self._near_logs(bucket), self._share))

    def draws(self, bucket: Bucket) -> Array:
        """Returns random logarithms of the regrets of ``configs`` at a size, a row each draw; equal in every run.

        The regrets of similar configs are correlated in these draws; the expected regrets of :meth:`predict` do not
        show that.
        """
        own, points = self._own_nearness(bucket), self._points(bucket)
        with one_thread():
            return self._drawn([process.joint(points, self._observed_points, own) for process in self._processes])

    def held_out_draws(self, number: int) -> tuple[tuple[Config, ...], Array]:
        """Returns the configs of one sample, and draws of their regrets at its size, made from the other samples."""
        import numpy as np  # noqa: PLC0415

        rows = np.flatnonzero(self._sample_of == number)
        configs = tuple(self.configs[int(place)] for place in self._config_of[rows])
        with one_thread():
            return configs, self._drawn([process.joint_left_out(rows) for process in self._processes])

    def _own_nearness(self, bucket: Bucket) -> Array:
        """Returns a matrix of correlations at a size: a row for each config, a column for each observation.

        An entry is the correlation of the part of the config's loss that its values do not explain with the same part
        of the observed loss; it is 0 if the observation is of another config.
        """
        import numpy as np  # noqa: PLC0415

        near = np.array([_nearness(bucket, sample.bucket) for sample in self.samples])[self._sample_of]
        return (np.arange(len(self.configs))[:, None] == self._config_of[None, :]) * near[None, :]

    def _drawn(self, joints: Sequence[tuple[Array, Array]]) -> Array:
        """Returns joint draws of the regrets.

        Each Gaussian process makes a number of draws in proportion to its weight.

        A row is one draw; it holds the logarithm of 1 plus the regret.
        """
        import numpy as np  # noqa: PLC0415

        generator = np.random.default_rng(0)
        logs: list[Array] = []
        for share, process, (means, covariance) in zip(self._shares, self._processes, joints, strict=True):
            factor = np.linalg.cholesky(covariance + _JITTER * np.eye(len(means)))
            normal = generator.standard_normal((max(round(share * _DRAWS), 1), len(means)))
            logs.append(np.log1p(process.regrets(means + normal @ factor.T)))
        return np.vstack(logs)

    def held_out(self, number: int) -> dict[Config, int]:
        """Returns the expected regret of each config of one sample, in millionths, predicted from the other samples."""
        places, regrets = self._held_out_regrets(number)
        mixed = _millionths(_mixed(regrets, self._near_logs(self.samples[number].bucket, number)[places], self._share))
        return {self.configs[position]: regret for position, regret in zip(places, mixed, strict=True)}

    def _held_out_regrets(self, number: int) -> tuple[Places, Array]:
        """Returns the indices of one sample's configs, and the regrets that the other samples predict for them."""
        import numpy as np  # noqa: PLC0415

        rows = np.flatnonzero(self._sample_of == number)
        return self._config_of[rows], self._shares @ np.stack(self._held_out)[:, rows]

    def _near_logs(self, bucket: Bucket, without: int | None = None) -> Array:
        """Returns the mean of the logarithms of 1 + regret of each config at the measured sizes, weighted by nearness.

        ``without`` is the index of a sample to leave out. NaN for a config that was tried at no other size.
        """
        import numpy as np  # noqa: PLC0415

        weights = np.array([(1 + octaves_apart(bucket, sample.bucket)) ** -_FALL for sample in self.samples])
        if without is not None:
            weights[without] = 0
        tried = ~np.isnan(self._logs) * weights[:, None]
        total = tried.sum(0)
        mean = (np.nan_to_num(self._logs) * tried).sum(0) / np.where(total > 0, total, 1)
        return np.where(total > 0, mean, np.nan)

    def _best_share(self) -> float:
        """Returns the share of the third prediction with which the choices at held-out sizes cost least.

        The third prediction is the mean of a config's regrets at near sizes. If several shares cost equally little,
        returns the smallest of them.
        """
        import numpy as np  # noqa: PLC0415

        costs = dict.fromkeys(_SHARES, 0.0)
        for number, sample in enumerate(self.samples):
            places, regrets = self._held_out_regrets(number)
            near = self._near_logs(sample.bucket, number)[places]
            winners = {other.winner for at, other in enumerate(self.samples) if at != number}
            unproven = np.array(unproven_ppm([self.configs[int(position)] for position in places], winners)) / PPM
            # added to the predictions: infinity for a config that was tried only at this size, so that it is not chosen
            smallest_known = np.where(np.isnan(near), math.inf, 0)
            for share in _SHARES:
                chosen = int(np.argmin(_mixed(regrets, near, share) + unproven + smallest_known))
                costs[share] += float(self._logs[number, places[chosen]])
        return min(_SHARES, key=lambda share: (round(costs[share], 9), share))

    def _left_out(self, process: _Process) -> Array:
        """Returns the regret that a Gaussian process expects for each observation, predicted from the other samples."""
        import numpy as np  # noqa: PLC0415

        errors = np.zeros(len(self._sample_of))
        for number in range(len(self.samples)):
            rows = np.flatnonzero(self._sample_of == number)
            errors[rows] = process.left_out(rows)
        return errors

    def _points(self, bucket: Bucket) -> Array:
        """Returns the features of each config at a size: one row per config."""
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

    @property
    def _groups(self) -> Places:
        """The number of the group of each feature column: 0 for configs, 1 for sizes, 2 for quotients, 3 for waste."""
        import numpy as np  # noqa: PLC0415

        sizes = len(self.samples[0].bucket)
        pairs = sizes * len(self._parameters)
        return np.array([*([0] * self._config_features.shape[1]), *([1] * sizes), *([2, 3] * pairs)])


class _As:
    """The scale of the first Gaussian process: losses as they are."""

    def values(self, losses: Array) -> Array:
        """Converts losses to the values that the Gaussian process is fitted to."""
        return losses

    def losses(self, values: Array) -> Array:
        """Converts values back to losses."""
        return values


class _Spread:
    """The scale of the second Gaussian process, which stretches small losses apart and compresses large ones."""

    def values(self, losses: Array) -> Array:
        """Converts losses to the values that the Gaussian process is fitted to."""
        return losses * (1 + _MIDDLE) / (losses + _MIDDLE)

    def losses(self, values: Array) -> Array:
        """Converts values back to losses; values are first clipped to the range of this scale."""
        import numpy as np  # noqa: PLC0415

        values = np.clip(values, 0, 1)
        return values * _MIDDLE / (1 + _MIDDLE - values)


class _Process:
    """A Gaussian process of losses on one scale, with the covariance kernel under which the losses are most likely.

    ``offsets`` and ``same_config`` are covariances that do not depend on features: among the configs of one size, and
    among the sizes of one config. ``groups`` is the number of each feature's group.
    """

    def __init__(
        self, scale: _As | _Spread, losses: Array, observed: Array, groups: Places, offsets: Array, same_config: Array
    ) -> None:
        import numpy as np  # noqa: PLC0415

        self._scale = scale
        values = scale.values(losses)
        self._mean, self._spread = float(values.mean()), float(values.std()) + 1e-9
        self._values = (values - self._mean) / self._spread
        covariance = self._fit(observed, groups, offsets, same_config)
        self._inverse: Array = np.linalg.inv(covariance)
        self._weights = self._inverse @ self._values
        self._deviation = math.sqrt(float(self._values @ self._weights) / len(self._values))

    def predict(self, points: Array, observed: Array, same_config: Array) -> Array:
        """Returns the expected regret at ``points``.

        ``same_config`` is the covariance of the unexplained part of each point's loss and the unexplained part of each
        known loss.
        """
        covariance = self._kernel.between(points, observed) + self._config_variance * same_config
        explained = ((covariance @ self._inverse) * covariance).sum(1)
        return self._expected(covariance @ self._weights, (1 + self._config_variance - explained) * self._deviation**2)

    def joint(self, points: Array, observed: Array, same_config: Array) -> tuple[Array, Array]:
        """Returns the means and the covariance of the losses at ``points``, which hold one point for each config.

        Means and covariance are of standardized values on the scale of the Gaussian process.
        """
        import numpy as np  # noqa: PLC0415

        covariance = self._kernel.between(points, observed) + self._config_variance * same_config
        prior = self._kernel.between(points, points) + self._config_variance * np.eye(len(points))
        explained = covariance @ self._inverse @ covariance.T
        return covariance @ self._weights, (prior - explained) * self._deviation**2

    def left_out(self, rows: Places) -> Array:
        """Returns the expected regret of the observations ``rows``, predicted from all others."""
        means, covariance = self.joint_left_out(rows)
        return self._expected(means, covariance.diagonal())

    def joint_left_out(self, rows: Places) -> tuple[Array, Array]:
        """Returns the means and the covariance of the losses that were observed at one size, predicted from all others.

        ``rows`` are the indices of these observations. Means and covariance are as in :meth:`joint`.
        """
        import numpy as np  # noqa: PLC0415

        covariance = np.linalg.inv(self._inverse[np.ix_(rows, rows)])
        means = self._values[rows] - covariance @ self._weights[rows]
        return means, (covariance - _OFFSET - self._kernel.noise * np.eye(len(rows))) * self._deviation**2

    def regrets(self, values: Array) -> Array:
        """Converts standardized values on the scale of the Gaussian process to regrets."""
        return _regrets(self._scale.losses(values * self._spread + self._mean))

    def _expected(self, means: Array, variances: Array) -> Array:
        """Returns the mean regrets of losses whose values are normally distributed with these means and variances."""
        import numpy as np  # noqa: PLC0415

        places, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        deviations = np.sqrt(np.maximum(variances, 0))
        return self.regrets(means[:, None] + deviations[:, None] * places[None, :]) @ (weights / weights.sum())

    def _fit(self, observed: Array, groups: Places, offsets: Array, same_config: Array) -> Array:
        """Chooses the covariance kernel by likelihood, and returns the covariance of the observations."""
        import numpy as np  # noqa: PLC0415

        count = len(self._values)

        def tried(kernel: CovarianceKernel, variance: float) -> tuple[float, Array]:
            covariance = kernel.covariance(observed) + offsets + variance * same_config
            factor: Array = np.linalg.cholesky(covariance)
            whitened: Array = np.linalg.solve(factor, self._values)
            likely = 0.5 * count * math.log(float((whitened**2).mean()) + 1e-12)
            return likely + float(np.log(np.diag(factor)).sum()), covariance

        common = [(length, noise) for length in _LENGTHS for noise in _NOISES]
        costs = [tried(CovarianceKernel(length, noise), 0.0) for length, noise in common]
        best = min(range(len(common)), key=lambda at: costs[at][0])
        (length, noise), (cost, covariance) = common[best], costs[best]
        kernel, variance = CovarianceKernel(length, noise), 0.0
        for own_length in _OWN:
            loss, process = tried(kernel, own_length)
            if loss < cost:
                cost, variance, covariance = loss, own_length, process
        factors = np.ones(int(groups.max()) + 1)
        for _ in range(_SWEEPS):
            before = cost
            for at in range(len(factors)):
                for factor in _FACTORS:
                    other = factors.copy()
                    other[at] *= factor
                    if not _LEAST_LENGTH < length * other[at] < _MOST_LENGTH:
                        continue
                    own_lengths = CovarianceKernel(length * other[groups], noise)
                    loss, process = tried(own_lengths, variance)
                    loss += _PENALTY * float((np.log(other) ** 2).sum())
                    if loss < cost - 1e-9:
                        cost, covariance, kernel, factors = loss, process, own_lengths, other
            if cost == before:
                break
        self._kernel, self._config_variance = kernel, variance
        return covariance


def _regrets(losses: Array) -> Array:
    """Converts losses to regrets; losses are first clipped to 0.9: a config ten times as slow as the best."""
    import numpy as np  # noqa: PLC0415

    limited = np.clip(losses, 0, _MOST_LOSS)
    return limited / (1 - limited)


def _mixed(regrets: Array, near_logs: Array, share: float) -> Array:
    """Returns the geometric mean of the predicted regrets and the mean regrets at near sizes.

    The mean regrets have the weight ``share``. A config that was tried at no other size keeps its predicted regret.
    """
    import numpy as np  # noqa: PLC0415

    logs = np.log1p(regrets)
    return np.expm1(logs + share * (np.where(np.isnan(near_logs), logs, near_logs) - logs))


def _nearness(bucket: Bucket, other: Bucket) -> float:
    """Returns the correlation of a config's unexplained loss at two sizes: 1 at the same size."""
    return math.exp(-octaves_apart(bucket, other) / _REACH)


def octaves_apart(bucket: Bucket, other: Bucket) -> float:
    """Returns the distance of two sizes: the sum of the distances of their numbers, in octaves (powers of two)."""
    pairs = zip(bucket, other, strict=True)
    return sum(
        abs(math.log2(max(a, 1)) - math.log2(max(b, 1))) for a, b in pairs if isinstance(a, int) and isinstance(b, int)
    )


def _chosen(samples: Sequence[Sample]) -> tuple[Config, ...]:
    """Returns all measured configs or, if these are too many, those with the least loss at any size, winners first."""
    best: dict[Config, tuple[int, int]] = {}
    for sample in samples:
        for config, time in sample.times:
            loss, total = best.get(config, (PPM, 0))
            own = loss_ppm(time, sample.best_ns)
            best[config] = (min(loss, own), total + own)
    ordered = sorted(best, key=lambda config: (best[config], config.order_key))
    winners = ConfigSet(sample.winner for sample in samples)
    config_limit = max(_POINTS // len(samples), _FEWEST_CONFIGS, len(winners))
    return tuple(
        sorted(
            [*winners, *(other for other in ordered if other not in winners)][:config_limit], key=lambda c: c.order_key
        )
    )


def _parameters(configs: Sequence[Config]) -> list[Array]:
    """Returns the values of each constexpr that is a positive integer in every config and differs among them."""
    import numpy as np  # noqa: PLC0415

    names = dict.fromkeys(name for config in configs for name, _ in config.values)
    columns: list[Array] = []
    for name in names:
        values = [dict(config.values).get(name) for config in configs]
        numbers = [value for value in values if type(value) is int and value > 0]
        if len(numbers) == len(values) and len(set(numbers)) > 1:
            columns.append(np.array(numbers, dtype=np.float64))
    return columns


def _millionths(regrets: Array) -> tuple[int, ...]:
    return tuple(round(float(regret) * PPM) for regret in regrets)

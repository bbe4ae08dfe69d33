"""A surrogate search: a model of the times seen so far predicts which config is most likely to be better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from silo.core.host_arrays import has_numpy
from silo.errors import TuneError
from silo.tuner.search.model import (
    CovarianceKernel,
    Posterior,
    expected_improvement,
    feature_axes,
    features,
    fit_kernel,
    left_out,
    one_thread,
    rank_correlation,
)
from silo.tuner.search.search_state import SearchState, draws

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

__all__ = ["Surrogate", "plan"]

_FIRST = 16  # configs to measure before the model is used, seeds included
_SEEDS = 8  # the most seeds among the first _FIRST configs
# With a limit of fewer evaluations, the model is used after half of them, and half of its covariance is additive.
_FEW_EVALUATIONS = 32
# Some of the first configs are chosen to spread over the space: for each, this many configs are drawn at random, and
# the one that is farthest from the configs chosen so far is taken.
_DRAWN = 20
_REFIT = 8  # the model's covariance kernel is fitted again after this many more outcomes
_TOO_FEW = 3  # with fewer different times, no model can be fitted
_CLIP = 0.6  # times above this quantile are set to it: the exact time of a bad config does not matter
# The model chooses every config once its rank correlation on held-out outcomes reaches this value; at or below zero,
# configs are drawn at random; in between, it chooses a proportional share. The standard error is added to the
# correlation first, so that the model loses trust only if its correlation is low beyond chance.
_TRUSTED = 0.2
_JUDGED = 40  # with fewer outcomes, the model is always trusted
_KNOWN = 240  # the most observations that the model is fitted to
_CANDIDATES = 16_384  # the most configs that the model rates, besides the neighbours of the best


@dataclass
class _Model:
    """The model that was fitted when the first ``fitted`` outcomes were known.

    ``known`` are the observed configs that it was fitted to; ``posterior`` predicts ``candidates`` from ``rows``, which
    are observed and pending configs. ``places`` maps a config to its position among the candidates. ``trust`` is the
    share of the configs that the model may choose, which is larger the better it predicts known outcomes.
    """

    fitted: int
    trust: float
    known: tuple[int, ...]
    kernel: CovarianceKernel
    candidates: list[int]
    places: dict[int, int]
    posterior: Posterior
    rows: list[int]


class Surrogate:
    """Proposes configs by expected improvement, for one search state. Its own state follows from the observations."""

    def __init__(self, board: SearchState) -> None:
        if not has_numpy():
            raise TuneError(
                f"the model that searches a space of {len(board)} configs needs numpy, which is not installed: "
                "install it (pip install numpy), or choose the searcher neighbourhood, genetic or exhaustive"
            )
        self._board = board
        self._model: _Model | None = None

    def next(self, board: SearchState) -> int | None:
        """Returns the next config: at first seeds and configs far from each other, then the most promising config."""
        with one_thread():
            return self._next(board)

    def near_best(self, board: SearchState) -> int | None:
        """Returns the neighbour of the best config that is predicted to be fastest.

        Neighbours that were observed or proposed are left out. Returns None if no other neighbour exists, or if the
        model is not trusted.
        """
        with one_thread():
            return self._near_best(board)

    def _next(self, board: SearchState) -> int | None:
        if not board.left:
            return None
        first = next((index for index in self._begin if board.is_free(index)), None)
        if first is not None:
            return first
        model = self._refitted()
        if model is None:
            return next(index for index in draws(len(board), board.random("rest")) if board.is_free(index))
        if not self._is_trusted(board, model):
            generator = board.random(f"drawn {len(board.times) + len(board.pending)}")
            return next(index for index in draws(len(board), generator) if board.is_free(index))
        return self._most_promising(board, model)

    def _near_best(self, board: SearchState) -> int | None:
        import numpy as np  # noqa: PLC0415

        if board.best is None:
            return None
        near = [index for index in board.lattice.neighbours(board.best) if board.is_free(index)]
        model = self._refitted()
        if not near or model is None:
            return near[0] if near else None
        # A model that is not trusted predicts badly: in this space, configs that are close do not have similar times.
        if not self._is_trusted(board, model):
            return None
        known_points = self._model_configs(model)
        posterior = Posterior(model.kernel, self._points[near])
        posterior.extend(self._points[known_points])
        return near[int(np.argmin(posterior.predict(_standardised(board.times, known_points)).mean))]

    def _is_trusted(self, board: SearchState, model: _Model) -> bool:
        """Returns whether the model chooses the next config, at random with probability ``model.trust``.

        The random number depends only on the number of proposals, so a resumed search decides the same.
        """
        return board.random(f"trust {len(board.times) + len(board.pending)}").random() < model.trust

    @property
    def _has_few_evaluations(self) -> bool:
        return self._board.evaluations is not None and self._board.evaluations < _FEW_EVALUATIONS

    @cached_property
    def _points(self) -> Array:
        return features(self._board.lattice)

    @cached_property
    def _axes(self) -> tuple[slice, ...]:
        return feature_axes(self._board.lattice)

    @cached_property
    def _begin(self) -> list[int]:
        """The configs to measure first: the best seeds, the first config of the space, and some spread over the space.

        The spread configs keep away from the seeds and from each other, but not from the first config: it often lies in
        a corner, and a spread that begins in a corner fills the other corners before the middle.
        """
        import numpy as np  # noqa: PLC0415

        board, points = self._board, self._points
        generator = board.random("first")
        failed = {index for index, seed in board.seeds.items() if seed.failed}
        chosen = board.hopeful_seeds()[:_SEEDS] or [generator.randrange(len(board))]
        distances = np.full(len(board), np.inf)
        for index in chosen:
            distances = np.minimum(distances, ((points - points[index]) ** 2).sum(1))
        count = _FIRST if board.first is None else board.first
        if board.first is None and self._has_few_evaluations:
            count = min(count, (board.evaluations or 0) // 2)
        while len(chosen) < min(count - 1, len(board) - len(failed)):
            drawn = [generator.randrange(len(board)) for _ in range(_DRAWN)]
            drawn = [index for index in drawn if distances[index] > 0 and index not in failed]
            if not drawn:  # every drawn config has the features of a chosen one, or hardly any config is left
                remaining = (number for number in range(len(board)) if number not in failed and number not in chosen)
                drawn = [next(remaining)]
            farthest = max(drawn, key=distances.__getitem__)
            chosen.append(farthest)
            distances = np.minimum(distances, ((points - points[farthest]) ** 2).sum(1))
        # Index 0 is the default: it is always measured, so that the winner is never slower than the default.
        seeds = [index for index in chosen if index in board.seeds]
        return list(dict.fromkeys([*seeds, 0, *chosen]))

    def _refitted(self) -> _Model | None:
        """Returns the model, fitted again after every ``_REFIT`` outcomes; None while too few are known."""
        times = self._board.times
        fitted = len(times) // _REFIT * _REFIT
        if not fitted or len({time for time in times.values() if time is not None}) < _TOO_FEW:
            return None
        if self._model is None or self._model.fitted != fitted:
            early = dict(list(times.items())[:fitted])
            if len({time for time in early.values() if time is not None}) < _TOO_FEW:
                early = times
            observed = _representative(early)
            points, values = self._points[list(observed)], _standardised(times, observed)
            kernel = fit_kernel(points, values, self._axes, additive=self._has_few_evaluations)
            correlation = rank_correlation(left_out(kernel, points, values), _costs(times, observed))
            doubt = (len(observed) - 1) ** -0.5  # the standard error of the rank correlation of unrelated values
            trust = min(max((correlation + doubt) / _TRUSTED, 0.0), 1.0) if fitted >= _JUDGED else 1.0
            candidates = self._candidates(observed)
            posterior = Posterior(kernel, self._points[candidates])
            places = {index: at for at, index in enumerate(candidates)}
            self._model = _Model(fitted, trust, observed, kernel, candidates, places, posterior, [])
        return self._model

    def _model_configs(self, model: _Model) -> list[int]:
        """Returns the observed configs that the model uses: those that it was fitted to, and all later ones."""
        return [*model.known, *(index for index in list(self._board.times)[model.fitted :] if index not in model.known)]

    def _most_promising(self, board: SearchState, model: _Model) -> int:
        import numpy as np  # noqa: PLC0415

        known_points = self._model_configs(model)
        rows = known_points + list(board.pending)
        same = next((at for at, pair in enumerate(zip(model.rows, rows, strict=False)) if pair[0] != pair[1]), None)
        same = min(len(model.rows), len(rows)) if same is None else same
        model.posterior.truncate(same)
        if rows[same:]:
            model.posterior.extend(self._points[rows[same:]])
        model.rows = rows
        values = _standardised(board.times, known_points)
        gain = expected_improvement(model.posterior.predict(values), float(values.min()))
        gain[[model.places[index] for index in (*board.times, *board.pending) if index in model.places]] = -np.inf
        largest_gain = gain.max()
        if largest_gain == -np.inf:
            return next(index for index in range(len(board)) if board.is_free(index))
        # A restored search adds the same rows in other batches, with other rounding errors, so nearly equal gains count
        # as equal, and the first of them is taken.
        return model.candidates[int(np.argmax(gain >= largest_gain - abs(largest_gain) * 1e-9))]

    def _candidates(self, measured: tuple[int, ...]) -> list[int]:
        """Returns the configs to rate: all; of a large space, a random sample and the neighbours of the best few.

        Neighbours here are the configs that differ from one of the four best in the value of one parameter.
        """
        if len(self._board) <= _CANDIDATES:
            return list(range(len(self._board)))
        lattice = self._board.lattice
        best = sorted(measured, key=lambda index: (self._board.cost(index), index))[:4]
        lines = [near for index in best for axis in range(len(lattice.axes)) for near in lattice.line(index, axis)]
        return sorted({*self._sample, *lines})

    @cached_property
    def _sample(self) -> list[int]:
        generator = self._board.random("candidates")
        return sorted(generator.sample(range(len(self._board)), _CANDIDATES))


def plan(board: SearchState) -> Surrogate:
    """Returns a search by a model that continues until every config was measured."""
    return Surrogate(board)


def _representative(times: dict[int, float | None]) -> tuple[int, ...]:
    """Returns the observed configs to fit the model to: all or, if they are too many, the fastest and the latest."""
    if len(times) <= _KNOWN:
        return tuple(times)
    cost = {index: math.inf if time is None else time for index, time in times.items()}
    fastest = sorted(cost, key=lambda index: (cost[index], index))[: _KNOWN // 2]
    selected = {*fastest, *list(times)[-_KNOWN // 2 :]}
    return tuple(index for index in times if index in selected)


def _costs(times: dict[int, float | None], measured: Sequence[int]) -> Array:
    """Returns the times of the configs ``measured``; infinity for configs that failed."""
    import numpy as np  # noqa: PLC0415

    return np.array([math.inf if (time := times[index]) is None else time for index in measured])


def _standardised(times: dict[int, float | None], measured: Sequence[int]) -> Array:
    """Returns log times with mean 0 and variance 1; failures and slow configs count as the clipping quantile."""
    import numpy as np  # noqa: PLC0415

    values = np.array([math.nan if (time := times[index]) is None else math.log(max(time, 1e-3)) for index in measured])
    worst = np.quantile(values[~np.isnan(values)], _CLIP)
    values = np.fmin(values, worst)
    return (values - values.mean()) / (values.std() + 1e-9)

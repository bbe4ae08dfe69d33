"""The model's part in a search: trusted where it foretells what it was not told, left out where it does not.

Counted in evaluations, with fixed seeds: no timings.
"""

from statistics import fmean

import pytest

pytest.importorskip("numpy")

import numpy as np

from silo.core.config import Config, ConfigSet
from silo.tuner.search import searchers
from silo.tuner.search.model import CovarianceKernel, Posterior, fit_kernel, left_out, rank_correlation
from tuning_samples import make_searcher

BETWEEN, BLOCKS, TILES = range(4), range(32, 416, 32), (1, 2, 4, 6, 8, 10)
SPACE = tuple(Config.of(between=a, block=b, tile=c) for a in BETWEEN for b in BLOCKS for c in TILES)
SEEDS, EVALUATIONS, LEARNT = 16, 100, 48


def is_good(config, seed):
    """A third of the configs, none next to another of them."""
    values = config.as_dict()
    return (values["between"] + BLOCKS.index(values["block"]) + TILES.index(values["tile"]) + seed) % 3 == 0


def searched(name, seed):
    """How many of the configs named after the first outcomes are good, and the least time found."""
    noise = np.random.default_rng(seed).random(len(SPACE))
    times = {config: noise[index] + (1 if is_good(config, seed) else 3) for index, config in enumerate(SPACE)}
    searcher, waiting, done = make_searcher(name, SPACE, f"seed {seed}"), [], []
    while len(done) < EVALUATIONS:
        waiting += searcher.suggest(min(8, EVALUATIONS - len(done)) - len(waiting))
        done.append(waiting.pop(0))
        searcher.observe(done[-1], times[done[-1]])
    later = done[LEARNT:]
    return sum(is_good(config, seed) for config in later) / len(later), min(times[config] for config in done)


@pytest.mark.parametrize("name", ["surrogate", "auto"])
def test_where_features_mislead_it_is_no_worse_than_random(name):
    own = [searched(name, seed) for seed in range(SEEDS)]
    drawn = [searched("random", seed) for seed in range(4 * SEEDS)]
    share, chance = (fmean(one for one, _ in runs) for runs in (own, drawn))
    assert chance == pytest.approx(1 / 3, abs=0.03)
    assert share > chance - 0.06, "three standard errors; a model that is believed anyway names half as many"
    best, worst = (fmean(one for _, one in runs) for runs in (own, drawn))
    assert best < worst + 0.02


def test_where_the_model_explains_what_is_fast_it_is_followed():
    noise = np.random.default_rng(1).random(len(SPACE))

    def time_of(config):
        values = config.as_dict()
        steps = abs(BLOCKS.index(values["block"]) - 7) + 2 * abs(TILES.index(values["tile"]) - 2)
        return 100 * (1 + steps + values["between"]) + noise[SPACE.index(config)]

    best = min(SPACE, key=time_of)
    for seed in range(4):
        searcher, done = make_searcher("surrogate", SPACE, f"seed {seed}"), []
        while best not in done:
            (config,) = searcher.suggest(1)
            done.append(config)
            searcher.observe(config, time_of(config))
        assert len(done) <= 60, "drawing takes 144 on average"


def test_a_parameter_that_changes_nothing_gets_a_long_length():
    generator = np.random.default_rng(3)
    points = generator.random((40, 4))  # two parameters: of one column, and of three
    values = np.sin(6 * points[:, 0])
    values = (values - values.mean()) / values.std()
    kernel = fit_kernel(points, values, (slice(0, 1), slice(1, 4)))
    assert isinstance(kernel.length, np.ndarray)
    assert kernel.length.shape == (4,)
    assert len(set(kernel.length[1:])) == 1
    assert kernel.length[1] > 2 * kernel.length[0]

    # It predicts better than the kernel with one length.
    def error(one):
        return float(((left_out(one, points, values) - values) ** 2).mean())

    assert error(kernel) < error(fit_kernel(points, values)) / 2
    # With few values, all parameters share one.
    assert isinstance(fit_kernel(points[:10], values[:10], (slice(0, 1), slice(1, 4))).length, float)


def test_of_few_values_an_additive_kernel_predicts_sums_of_effects_better():
    """The error at 200 points, from 16 values of eight parameters."""
    axes = tuple(slice(at, at + 1) for at in range(8))
    errors = {False: [], True: []}
    for seed in range(8):
        generator = np.random.default_rng(seed)
        points, effects = generator.random((216, 8)), generator.normal(size=8)
        values = points @ effects + 0.5 * np.abs(points - 0.4) @ effects
        values = (values - values[:16].mean()) / values[:16].std()
        for additive, errors_of_kind in errors.items():
            kernel = fit_kernel(points[:16], values[:16], axes, additive=additive)
            assert bool(kernel.axes) == additive
            posterior = Posterior(kernel, points[16:])
            posterior.extend(points[:16])
            errors_of_kind.append(float(((posterior.predict(values[:16]).mean - values[16:]) ** 2).mean()))
    assert fmean(errors[True]) < 0.85 * fmean(errors[False])


def test_with_few_evaluations_the_model_chooses_after_half_of_them():
    """The time falls along one parameter: configs that a model chose have a high value of it."""

    def blocks(evaluations):
        searcher, named = searchers.make_searcher("surrogate", ConfigSet(SPACE), "seed", evaluations=evaluations), []
        for _ in range(16):
            (config,) = searcher.suggest(1)
            named.append(next(block for block in BLOCKS if block == config.as_dict()["block"]))
            searcher.observe(config, 10_000.0 - named[-1])
        return named

    few, many = blocks(25), blocks(100)
    assert few[:12] == many[:12]
    assert min(few[13:]) >= 352 > min(many[13:])


def test_leaving_one_out_is_what_a_model_of_the_others_says():
    generator = np.random.default_rng(0)
    points, values = generator.random((12, 3)), generator.normal(size=12)
    kernel = CovarianceKernel(0.6, 0.01)
    for at, foretold in enumerate(left_out(kernel, points, values)):
        others = np.arange(12) != at
        posterior = Posterior(kernel, points[at : at + 1])
        posterior.extend(points[others])
        assert foretold == pytest.approx(posterior.predict(values[others]).mean[0])


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 1000], 1),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1),
        ([1, 1, 1], [1, 2, 3], 0),
        ([1, 2, 3], [1, np.inf, np.inf], 3**0.5 / 2),  # failures share their place
    ],
)
def test_rank_correlation(left, right, expected):
    assert rank_correlation(np.array(left, float), np.array(right, float)) == pytest.approx(expected)

"""Shortlists for sizes that were not measured, and searches that end after them."""
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

import itertools
import math
import random

import pytest

from silo.calls.first_call import early_end_of
from silo.core.config import Config, ConfigSet
from silo.core.device import Target
from silo.core.dispatch import bucket_of
from silo.store.store import MemoryStore
from silo.tuner.early_end import EarlyEnd, shortlist_measured
from silo.tuner.generalization import generalize, regret_ppm
from silo.tuner.loss_model import Sample
from silo.tuner.policy import TimeSpent
from silo.tuner.replay import RecordedOutcome, RecordedSpace, ReplayEvaluator
from silo.tuner.search.search_state import Seed
from silo.tuner.session import tune
from silo.tuner.session_values import SearchOptions, SessionWatch
from silo.tuner.shortlist import Shortlist, shortlist
from silo.tuner.statistics import PPM
from silo.tuner.trial import Status

np = pytest.importorskip("numpy", reason="a model predicts the configs that were not measured")

KEY = ["m", "n"]
SIZES = [(1 << rows, 1 << columns) for rows in range(4, 13) for columns in range(4, 13)]
TILES = tuple(Config.of(BM=rows, BN=columns) for rows, columns in itertools.product((16, 64, 256, 1024), repeat=2))
CPU = Target("cpu", "x86-64-v3")


def tiled_ns(m, n, config):
    """The time of a kernel whose blocks are padded: a block larger than the array costs as much as its own size."""
    tile = config.as_dict()
    programs = -(-m // tile["BM"]) * -(-n // tile["BN"])
    return round(programs * (1000 + tile["BM"] * tile["BN"] * (1 + 8 / tile["BN"])))


def sample(shape, configs=TILES):
    m, n = shape
    times = {config: tiled_ns(m, n, config) for config in configs}
    return Sample.of(bucket_of(shape), min(times, key=lambda config: (times[config], config.order_key)), times)


def learnt(shapes, configs=TILES):
    samples = [sample(shape, configs) for shape in shapes]
    return generalize(KEY, samples, TILES[0], ConfigSet(config for one in samples for config, _ in one.times).listed)


def test_the_best_of_a_shortlist_is_near_the_best_config_at_sizes_that_were_not_measured():
    rules, shortlists = [], []
    for seed in range(4):
        shapes = random.Random(seed).sample(SIZES, 8)
        generalization = learnt(shapes)
        for shape in random.Random(seed + 100).sample(SIZES, 12):
            if shape in shapes:
                continue
            predicted = shortlist(generalization, shape, len(TILES))
            assert predicted.configs[0] == generalization.rules.lookup(shape).config
            assert len(set(predicted.configs)) == len(predicted.configs) <= 5
            regrets = [regret_ppm(sample(shape), config) for config in predicted.configs]
            rules.append(regrets[0])
            shortlists.append(min(regrets))
    assert max(shortlists) < 150_000 < max(rules)
    assert sum(shortlists) / len(shortlists) < 10_000


def test_a_shortlist_is_equal_each_time_and_absent_at_measured_sizes_and_without_a_model():
    shapes = random.Random(0).sample(SIZES, 8)
    generalization = learnt(shapes)
    other = next(shape for shape in SIZES if shape not in shapes)
    assert shortlist(generalization, other, len(TILES)) == shortlist(learnt(shapes), other, len(TILES))
    assert shortlist(generalization, shapes[0], len(TILES)) is None
    assert shortlist(learnt(shapes[:3]), other, len(TILES)) is None


def test_sizes_of_which_few_configs_were_measured_show_nothing():
    """Otherwise sizes of shortlists, whose winners are the best of a few, would confirm the next shortlist."""
    shapes = random.Random(0).sample(SIZES, 8)
    other = next(shape for shape in SIZES if shape not in shapes)
    few = shortlist(learnt(shapes, TILES[:5]), other, len(TILES))
    assert few.held_out_ppm is None
    assert shortlist(learnt(shapes, TILES[:5]), other, 5).held_out_ppm is not None  # all of a small space
    assert few.reason == "predicted from other sizes"
    assert early_end_of(CPU, TimeSpent(), few) == EarlyEnd()


@pytest.mark.parametrize(("held_out_ppm", "ends"), [(0, True), (30_000, True), (30_001, False), (None, False)])
def test_a_search_may_end_after_a_shortlist_if_those_of_measured_sizes_lost_little(held_out_ppm, ends):
    predicted = Shortlist(TILES[:3], held_out_ppm)
    early = early_end_of(CPU, TimeSpent(), predicted)
    assert early == (EarlyEnd(first=3, shortlist=TILES[:3]) if ends else EarlyEnd())
    assert early_end_of(CPU, TimeSpent(1.0, "enough"), predicted) is None
    assert early_end_of(Target("cuda", "sm_90a"), TimeSpent(), predicted) is None


def test_the_draws_of_a_model_have_the_expected_regrets():
    model = learnt(random.Random(0).sample(SIZES, 8)).fitted.model
    bucket = bucket_of((2048, 128))
    expected = np.array(model.predict(bucket)) / PPM
    drawn = np.expm1(model.draws(bucket)).mean(axis=0)
    assert np.corrcoef(np.log1p(expected), np.log1p(drawn))[0, 1] > 0.95
    configs, held_out = model.held_out_draws(0)
    assert held_out.shape == (len(model.draws(bucket)), len(configs)) == (len(held_out), len(TILES))


def test_a_shortlist_that_was_measured_ends_a_search_if_a_config_of_it_works():
    early = EarlyEnd(shortlist=TILES[:3])
    times = {config.order_key: 5.0 for config in TILES[:2]}
    assert "1 of the 3 configs" in shortlist_measured(TILES, times, early).reason
    assert shortlist_measured(TILES, times | {TILES[2].order_key: None}, early)
    assert shortlist_measured(TILES[:2], times, early)  # the third was set aside
    assert not shortlist_measured(TILES, dict.fromkeys(config.order_key for config in TILES), early)
    assert not shortlist_measured(TILES, times, EarlyEnd())


@pytest.mark.parametrize("failing", [False, True])
def test_a_session_measures_the_shortlist_and_goes_on_only_if_all_of_it_fails(failing):
    predicted = TILES[5:9]
    broken = RecordedOutcome(Status.RUN, (), 1, 1)
    outcomes = {
        config.order_key: broken
        if failing and config in predicted
        else RecordedOutcome(Status.OK, (tiled_ns(256, 256, config),) * 9, 1, 1)
        for config in TILES
    }
    space, records = RecordedSpace("tiled", "cpu", TILES, outcomes), MemoryStore().records
    evaluator = ReplayEvaluator(space)
    options = SearchOptions(
        early=EarlyEnd(first=len(predicted), shortlist=predicted), seeds=tuple(Seed(config) for config in predicted)
    )
    outcome = tune(
        space.study(), ConfigSet(TILES), evaluator, records, options, watch=SessionWatch(None, evaluator.clock)
    )
    tried = {trial.config for trial in outcome.trials}
    assert tried >= set(predicted)
    if failing:
        assert outcome.measured >= EarlyEnd().least
        assert outcome.winner.config not in predicted
    else:
        assert outcome.measured == len(predicted)
        assert outcome.stopped == "enough"
        assert "other sizes predict that one of 4 configs" in outcome.summary
        best = min(predicted, key=lambda config: tiled_ns(256, 256, config))
        assert math.isclose(tiled_ns(256, 256, outcome.winner.config), tiled_ns(256, 256, best))

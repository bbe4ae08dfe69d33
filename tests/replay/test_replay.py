"""Tuning on recorded spaces: a small one written here, and large ones where they are at hand."""

import gzip
import json
import os
from pathlib import Path

import pytest

from silo.core.config import Config
from silo.errors import TuneError
from silo.store.store import MemoryStore
from silo.tuner.replay import RecordedSpace, ReplayEvaluator, replay_search
from silo.tuner.session_values import Budget
from silo.tuner.statistics import median
from silo.tuner.trial import Status
from tuning_samples import make_searcher, tune

SPACES = os.environ.get("SILO_TEST_SPACES")


def cache(**changes):
    def row(block, time, times=(), **more):
        return {"block": block, "pad": 0, "time": time, "times": list(times), "compile_time": 20.0, **more}

    rows = {
        "16,0": row(16, 4.0, [5.0, 4.0, 4.0, 4.5, 3.9], benchmark_time=30.0, verification_time=2.0),
        "32,0": row(32, 2.0, [2.5, 2.0, 2.0, 2.0, 1.9], benchmark_time=20.0),
        "64,0": {"block": 64, "pad": 0, "time": "RuntimeFailedConfig", "compile_time": 3000.0, "benchmark_time": 1.0},
        "128,0": {"block": 128, "pad": 0, "time": "CompilationFailedConfig", "compile_time": 50.0},
    }
    return {
        "device_name": "Test GPU",
        "kernel_name": "conv",
        "tune_params_keys": ["block", "pad"],
        "tune_params": {"block": [16, 32, 64, 128], "pad": [0]},
        "cache": rows,
        **changes,
    }


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(cache()))
    return RecordedSpace.load(path)


def config(block):
    return Config.of(block=block, pad=0)


def test_a_file_is_read(space):
    assert (space.kernel, space.device) == ("conv", "Test GPU")
    assert space.configs == tuple(config(block) for block in (16, 32, 64, 128))
    outcome = space.outcomes[config(16).order_key]
    assert outcome.samples_ns == (5_000_000, 4_000_000, 4_000_000, 4_500_000, 3_900_000)
    assert (outcome.compile_ns, outcome.bench_ns) == (20_000_000, 32_000_000)
    statuses = [space.outcomes[config(block).order_key].status for block in (32, 64, 128)]
    assert statuses == [Status.OK, Status.RUN, Status.COMPILE]
    assert space.optimum_ns == 2_000_000


def test_averages_are_those_of_the_samples(space):
    assert space.outcomes[config(16).order_key].average_ns == 4_280_000
    assert space.outcomes[config(64).order_key].average_ns is None
    assert space.best_average_ns == 2_080_000
    worked = space.without_failures()
    assert worked.configs == (config(16), config(32))
    assert worked.outcomes.keys() == {one.order_key for one in worked.configs}


@pytest.mark.parametrize("searcher", ["auto", "genetic", "descent"])
@pytest.mark.parametrize("failures", [False, True])
def test_a_replayed_search_is_the_sessions(searcher, failures, tmp_path):
    def row(block, tile, pad):
        time = "CompilationFailedConfig" if failures and block * tile > 300 else 1.0 + abs(block - 48) / 16 + tile % 5
        times = [] if isinstance(time, str) else [time]
        return {"block": block, "tile": tile, "pad": pad, "time": time, "times": times, "compile_time": 1.0}

    rows = [row(block, tile, pad) for block in range(16, 144, 16) for tile in range(1, 6) for pad in (0, 1)]
    path = tmp_path / "cache.json"
    names = ["block", "tile", "pad"]
    path.write_text(json.dumps(cache(tune_params_keys=names, cache={str(at): one for at, one in enumerate(rows)})))
    space = RecordedSpace.load(path)
    study, order = space.study(), []

    class Noting(ReplayEvaluator):
        def evaluate(self, config):
            order.append(config)
            return super().evaluate(config)

    tune(study, space.configs, Noting(space), MemoryStore().records, searcher=searcher, budget=Budget(evaluations=40))
    averages = [space.outcomes[config.order_key].average_ns for config in order]
    assert replay_search(space, make_searcher(searcher, space.configs, study.key), 40) == averages


def test_files_may_be_compressed_or_cut_off(space, tmp_path):
    compressed = tmp_path / "cache.json.gz"
    compressed.write_bytes(gzip.compress(json.dumps(cache()).encode()))
    assert RecordedSpace.load(compressed) == space
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(cache())[:-2] + ",\n")  # how a run leaves it that did not end well
    assert RecordedSpace.load(cut) == space


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cache": {}}', json.dumps(cache(cache={"1": {"time": "Odd"}}))])
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(TuneError, match=r"other\.json: not a kernel-tuner file"):
        RecordedSpace.load(path)


def test_missing_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(TuneError, match="no such file"):
        RecordedSpace.load(tmp_path / "none.json")
    damaged = tmp_path / "damaged.json.gz"
    damaged.write_bytes(gzip.compress(b"{}" * 1000)[:20])
    with pytest.raises(TuneError, match="not a kernel-tuner file"):
        RecordedSpace.load(damaged)


def test_replay_costs_what_it_cost(space):
    evaluator = ReplayEvaluator(space, samples=3)
    trial = evaluator.evaluate(config(16))
    assert trial.samples_ns == (5_000_000, 4_000_000, 4_000_000)
    assert evaluator.clock() == 52_000_000
    failed = evaluator.evaluate(config(64))
    assert failed.status is Status.RUN
    assert evaluator.clock() == 52_000_000 + 3_001_000_000
    with pytest.raises(TuneError, match="not in the recorded space"):
        evaluator.evaluate(config(17))


def test_tuning_within_recorded_time(space):
    evaluator = ReplayEvaluator(space)
    records = MemoryStore().records
    outcome = tune(space.study(), space.configs, evaluator, records, budget=Budget(seconds=1.0), clock=evaluator.clock)
    # The third config used up the budget by failing after three seconds of compiling.
    assert (outcome.measured, outcome.stopped) == (3, "seconds")
    assert outcome.failures == {"run": 1}
    assert outcome.require_winner().config == config(32)
    assert outcome.seconds == pytest.approx(3.093)


@pytest.fixture(scope="module")
def convolution():
    if not SPACES:
        pytest.skip("SILO_TEST_SPACES names no folder of recorded spaces")
    path = Path(SPACES) / "convolution_milo-A100.json.gz"
    return RecordedSpace.load(path)


def test_a_recorded_space_in_full(convolution):
    statuses = [outcome.status for outcome in convolution.outcomes.values()]
    assert [statuses.count(status) for status in (Status.OK, Status.RUN, Status.COMPILE)] == [4201, 155, 6]
    evaluator = ReplayEvaluator(convolution)
    study, records = convolution.study(), MemoryStore().records
    outcome = tune(study, convolution.configs, evaluator, records, searcher="exhaustive", clock=evaluator.clock)
    assert outcome.failures == {"compile": 6, "run": 155}
    winner = outcome.require_winner()
    true = median(convolution.outcomes[winner.config.order_key].samples_ns)
    assert true <= 1.01 * convolution.optimum_ns


def test_random_search_is_resumed_exactly(convolution):
    study, records = convolution.study(), MemoryStore().records
    first = ReplayEvaluator(convolution)
    tune(study, convolution.configs, first, records, searcher="random", budget=Budget(evaluations=40))
    second = ReplayEvaluator(convolution)
    resumed = tune(study, convolution.configs, second, records, searcher="random", budget=Budget(evaluations=100))
    whole = ReplayEvaluator(convolution)
    undisturbed = tune(
        study, convolution.configs, whole, MemoryStore().records, searcher="random", budget=Budget(evaluations=100)
    )
    assert (first.evaluations, second.evaluations, whole.evaluations) == (40, 60, 100)
    assert {t.config for t in resumed.trials} == {t.config for t in undisturbed.trials}
    assert resumed.require_winner().median_ns <= 3 * convolution.optimum_ns

"""A search that ends early: the decision alone, in a session, and across processes."""

import itertools
import math

import pytest

from fake_backend.measure import fake_study
from silo.calls import decision
from silo.calls.first_call import early_end_of
from silo.core.config import Config, ConfigSet
from silo.core.device import Target
from silo.errors import CompileError
from silo.store.store import MemoryStore
from silo.tuner.early_end import MOST_CONFIGS, EarlyEnd, known_well_enough, unconfirmed
from silo.tuner.policy import BEGUN, TimeSpent, TuneMode, Unfinished, note_effort, read_effort, settle
from silo.tuner.replay import RecordedOutcome, RecordedSpace, ReplayEvaluator
from silo.tuner.search.search_state import Seed
from silo.tuner.session import tune
from silo.tuner.session_values import SearchOptions, SessionWatch
from silo.tuner.trial import Status

pytest.importorskip("numpy", reason="a model predicts the configs that were not measured")

SIZES = (16, 32, 64, 128, 256, 512)
CONFIGS = tuple(Config.of(BM=rows, BN=columns) for rows, columns in itertools.product(SIZES, SIZES))


def bowl(config, depth=0.3):
    """Times with one best tile, 64 by 128: a step away from it costs ``depth`` or more."""
    rows, columns = (math.log2(value) for value in config.as_dict().values())
    return 1e6 * (1 + depth * ((rows - 6) ** 2 + (columns - 7) ** 2))


def costs(configs, time=bowl):
    return {config.order_key: time(config) for config in configs}


def test_a_few_configs_are_measured_in_any_case():
    decision = known_well_enough(CONFIGS, costs(CONFIGS[:11]))
    assert not decision
    assert decision.reason == "11 configs are measured, and 12 are in any case"


def test_equal_times_promise_nothing():
    decision = known_well_enough(CONFIGS, costs(CONFIGS[:12], lambda _: 5.0))
    assert decision
    assert decision.reason == "the other 24 of 36 configs are expected to gain 0.0 % at most"


def test_times_that_fall_towards_configs_that_were_not_measured_promise_more():
    far = [config for config in CONFIGS if min(config.as_dict().values()) <= 32][:14]
    decision = known_well_enough(CONFIGS, costs(far))
    assert not decision
    assert "are expected to gain" in decision.reason


def test_a_best_config_among_slower_ones_on_all_sides_is_known():
    around = CONFIGS[:30]  # all but those with BM=512
    assert known_well_enough(CONFIGS, costs(around))
    assert not unconfirmed(CONFIGS, costs(around))


def test_the_configs_a_step_from_the_two_best_are_measured_first():
    measured = [config for config in CONFIGS if config.as_dict()["BM"] == 64]
    beside = {Config.of(BM=rows, BN=columns) for rows in (32, 128) for columns in (128, 64)}  # 64 by 64 comes second
    assert set(unconfirmed(CONFIGS, costs(measured))) == beside
    failed = costs(measured) | {Config.of(BM=32, BN=128).order_key: None}
    assert set(unconfirmed(CONFIGS, failed)) == beside - {Config.of(BM=32, BN=128)}
    assert unconfirmed(CONFIGS, dict.fromkeys(costs(measured))) == ()


def test_times_that_are_alike_need_no_more():
    measured = [config for config in CONFIGS if config.as_dict()["BM"] == 64]
    assert unconfirmed(CONFIGS, costs(measured, lambda config: bowl(config, 0.001))) == ()


def test_gains_that_noise_would_hide_are_not_sought():
    """Up to a tenth: a best time known to a third says nothing about a config that promises a fifth."""
    rough = costs(CONFIGS[:18], lambda config: bowl(config, 0.02))
    quiet = known_well_enough(CONFIGS, rough)
    gain = float(quiet.reason.rpartition("gain ")[2].split()[0]) / 100
    assert not quiet
    assert 0.03 < gain < 0.1
    assert not known_well_enough(CONFIGS, rough, noise=gain - 0.002)
    noisy = known_well_enough(CONFIGS, rough, noise=gain + 0.002)
    assert noisy
    assert noisy.reason.startswith(quiet.reason)
    far = costs([config for config in CONFIGS if min(config.as_dict().values()) <= 32][:14])
    assert not known_well_enough(CONFIGS, far, noise=0.5)


def test_failures_are_no_times():
    assert not known_well_enough(CONFIGS, dict.fromkeys(costs(CONFIGS[:12])))
    some = costs(CONFIGS[:12], lambda _: 5.0) | dict.fromkeys(costs(CONFIGS[12:18]))
    assert known_well_enough(CONFIGS, some).reason.startswith("the other 18 of 36")


def test_a_large_space_is_not_modelled():
    configs = tuple(Config.of(BLOCK=block) for block in range(MOST_CONFIGS + 1))
    assert "would take too long" in known_well_enough(configs, costs(configs[:20], lambda _: 5.0)).reason


def recorded(time):
    outcomes = {
        config.order_key: RecordedOutcome(
            Status.OK, tuple(round(time(config) * (1 + n / 1000)) for n in range(9)), 1, 1
        )
        for config in CONFIGS
    }
    return RecordedSpace("product", "cpu", CONFIGS, outcomes)


def session(space, records, early=EarlyEnd(), seeds=()):  # noqa: B008  # frozen
    evaluator = ReplayEvaluator(space)
    options = SearchOptions(early=early, seeds=tuple(Seed(config) for config in seeds))
    return tune(
        space.study(), ConfigSet(CONFIGS), evaluator, records, options, watch=SessionWatch(None, evaluator.clock)
    )


@pytest.mark.parametrize("depth", [0.01, 0.05, 0.3])
def test_a_session_ends_early_with_the_best_config(depth):
    space, records = recorded(lambda config: bowl(config, depth)), MemoryStore().records
    outcome = session(space, records)
    assert outcome.stopped == "enough"
    assert EarlyEnd().least <= outcome.measured <= len(CONFIGS) * 2 // 3
    assert outcome.winner.config == Config.of(BM=64, BN=128)
    assert "configs are expected to gain" in outcome.summary
    assert "silo tune measures the rest" in outcome.summary


def test_a_session_without_limits_measures_the_rest():
    space, records = recorded(bowl), MemoryStore().records
    first = session(space, records)
    then = session(space, records, early=None)
    assert then.stopped == "complete"
    assert then.measured == len(CONFIGS) - first.measured
    assert then.winner.config == first.winner.config


def test_a_session_that_ended_early_measures_nothing_the_next_time():
    space, records = recorded(bowl), MemoryStore().records
    first = session(space, records)
    again = session(space, records)
    assert (again.stopped, again.measured, again.reused) == ("enough", 0, first.measured)


def test_a_peak_beside_the_best_config_is_found():
    """Times that drop at one config alone, as where a block first holds a row."""
    peak = Config.of(BM=64, BN=64)  # the model's own proposals miss it
    space = recorded(lambda config: 5e5 if config == peak else bowl(config, 0.05))
    assert session(space, MemoryStore().records).winner.config == peak


def test_configs_that_the_machine_kept_from_being_tried_hold_nothing_up():
    space = recorded(bowl)
    evaluator = ReplayEvaluator(space)
    real, refused = evaluator.evaluate, [Config.of(BM=64, BN=64), Config.of(BM=16, BN=16)]

    def evaluate(config, reference=None):
        if config in refused:
            raise CompileError("c: No space left on device")
        return real(config, reference)

    evaluator.evaluate = evaluate
    outcome = tune(space.study(), ConfigSet(CONFIGS), evaluator, MemoryStore().records, SearchOptions(early=EarlyEnd()))
    assert outcome.stopped == "enough"
    assert outcome.winner.config == Config.of(BM=64, BN=128)
    assert outcome.faults
    assert {config for config, _ in outcome.faults} <= set(refused)


STUDY = fake_study()


def test_an_early_end_is_a_decision_until_the_rest_is_measured():
    records = MemoryStore().records
    note_effort(STUDY, records, BEGUN)
    note_effort(STUDY, records, "enough", 1.0)
    effort = read_effort(STUDY, records)
    assert effort.ended_early
    assert not effort.is_cut_off
    settle(STUDY, records)
    assert not read_effort(STUDY, records).ended_early
    assert "ended early" in str(Unfinished(12, 36, 1.0, 60.0, early=True))


@pytest.mark.parametrize(
    ("mode", "early", "goes_on"),
    [
        (TuneMode.AUTO, True, False),
        (TuneMode.BACKGROUND, True, True),
        (TuneMode.AUTO, False, True),
        (TuneMode.BACKGROUND, False, True),
    ],
)
def test_only_searches_beside_a_program_go_on_after_an_early_end(monkeypatch, mode, early, goes_on):
    monkeypatch.setattr(decision, "unfinished", lambda *_: Unfinished(12, 36, 1.0, 60.0, early))
    assert bool(decision._to_go_on(None, None, mode)) == goes_on


def test_searches_end_early_on_a_cpu_and_once():
    cpu = Target("cpu", "x86-64-v3")
    assert early_end_of(cpu, TimeSpent()) == EarlyEnd()
    assert early_end_of(cpu, TimeSpent(1.0, "seconds")) == EarlyEnd()
    assert early_end_of(cpu, TimeSpent(1.0, "enough")) is None
    assert early_end_of(Target("cuda", "sm_90a"), TimeSpent()) is None

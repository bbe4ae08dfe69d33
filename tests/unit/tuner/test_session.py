# pyright: reportOperatorIssue=false

import dataclasses
import itertools
from random import Random

import pytest

from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.core.values import canonical_json, parse_json
from silo.errors import (
    CompileError,
    CompilerMissingError,
    CompileTimeoutError,
    LaunchError,
    LaunchTimeoutError,
    StoreError,
    TuneError,
)
from silo.tuner.ledger import read_trials
from silo.tuner.search.search_state import Seed
from silo.tuner.session_values import Budget, TuneInterrupted
from silo.tuner.trial import Stage, Status
from silo.tuner.winner import choose_winner
from tuning_samples import tune

STUDY = fake_study()
SPACE = [Config.of(BLOCK=1 << power, num_warps=warps) for power in range(5, 11) for warps in (2, 4)]
BEST = SPACE[7]
LANDSCAPE = FakeLandscape(optimum=BEST)


class Records:
    """A store in memory that keeps bytes, as a real one does."""

    def __init__(self):
        self.lines = []

    def append(self, key, record):
        self.lines.append((key, canonical_json(record)))

    def read(self, key):
        return iter([parse_json(line) for owner, line in self.lines if owner == key])


def run(records, space=SPACE, landscape=LANDSCAPE, study=STUDY, **options):
    evaluator = options.pop("evaluator", None) or FakeEvaluator(study, landscape)
    return tune(study, space, evaluator, records, **options), evaluator


@pytest.mark.parametrize("searcher", ["exhaustive", "random"])
def test_finds_the_optimum_and_keeps_every_trial(searcher):
    records = Records()
    outcome, evaluator = run(records, searcher=searcher)
    assert outcome.require_winner().config == BEST
    assert (outcome.measured, outcome.reused, outcome.stopped) == (len(SPACE), 0, "complete")
    assert set(read_trials(STUDY, records)) == set(outcome.trials)
    assert sorted(evaluator.evaluated, key=str) == sorted(SPACE, key=str)
    assert sorted(evaluator.prepared, key=str) == sorted(SPACE, key=str)


def test_the_second_run_measures_nothing():
    records = Records()
    landscape = FakeLandscape(base_ns=10_000, failing_permille=300, noise_permille=40)
    first, _ = run(records, landscape=landscape)
    kept = list(records.lines)
    second, evaluator = run(records, landscape=landscape)
    assert evaluator.evaluated == evaluator.prepared == evaluator.compared == []
    assert records.lines == kept
    assert (second.measured, second.reused) == (0, len(SPACE))
    assert second.winner == first.winner
    assert second.failures == first.failures


def test_adding_a_config_measures_one():
    records = Records()
    run(records, space=SPACE[:-1])
    outcome, evaluator = run(records)
    assert evaluator.evaluated == [SPACE[-1]]
    assert (outcome.measured, outcome.reused) == (1, len(SPACE) - 1)


def test_a_config_that_left_the_space_cannot_win():
    records = Records()
    run(records)
    rest = [config for config in SPACE if config != BEST]
    outcome, evaluator = run(records, space=rest)
    assert evaluator.evaluated == []
    assert outcome.require_winner().config == LANDSCAPE.best(rest)


def test_finalists_are_compared_once_and_kept_together():
    records = Records()
    outcome, evaluator = run(records, landscape=AlikeLandscape(noise_permille=5))
    assert [len(configs) for configs in evaluator.compared] == [4]
    finals = [trial for trial in outcome.trials if trial.stage is Stage.FINAL]
    assert {trial.config for trial in finals} == set(evaluator.compared[0])
    assert len(records.lines) == len(SPACE) + 2  # the finalists are one record, and the study is in the catalog
    assert outcome.require_winner().config in evaluator.compared[0]
    assert all(trial.compile_ns == 0 for trial in finals)


def test_what_noise_would_pick_is_compared_again():
    class Loud(FakeEvaluator):
        def compare(self, configs):
            super().compare(configs)
            chance = Random(len(self.compared))
            return {one: [chance.randint(1000, 1500) for _ in range(60)] for one in configs}

    evaluator = Loud(STUDY, Ramp())
    outcome, _ = run(Records(), evaluator=evaluator)
    assert len(evaluator.compared) == 3
    assert all(set(one) <= set(before) for before, one in itertools.pairwise(evaluator.compared)), "who lost is out"
    finals = [trial for trial in outcome.trials if trial.stage is Stage.FINAL]
    assert len(finals) == sum(map(len, evaluator.compared))
    again = Loud(STUDY, Ramp())
    records = Records()
    run(records, evaluator=evaluator)
    run(records, evaluator=again)
    assert again.compared == [], "what was compared is not compared by a later session"


class AlikeLandscape(FakeLandscape):
    def time_ns(self, config):
        return 100_000


@pytest.mark.parametrize("error", [None, LaunchError("an illegal address"), CompileError("gone")])
def test_a_finalist_that_fails_later_is_out_and_others_are_compared(error):
    class Fragile(FakeEvaluator):
        def compare(self, configs):
            samples = dict(super().compare(configs))
            if samples.pop(SPACE[0], None) and error:
                raise error
            return samples

    records = Records()
    evaluator = Fragile(STUDY, Ramp())  # SPACE[0] is the fastest
    outcome, _ = run(records, evaluator=evaluator)
    assert evaluator.compared[0][0] == SPACE[0]
    assert SPACE[4] in evaluator.compared[-1], "the next in turn takes its place"
    assert SPACE[0] not in evaluator.compared[-1]
    assert outcome.require_winner().config != SPACE[0]
    assert outcome.failures == {"run": 1}


class Ramp(FakeLandscape):
    def time_ns(self, config):
        return 100_000 + SPACE.index(config) * 300


def test_failures_cost_one_config_each_and_are_kept_with_their_kind():
    records = Records()
    kinds = (Status.COMPILE, Status.TIMEOUT, Status.RUN, Status.WRONG)
    landscape = FakeLandscape(failures=dict(zip(SPACE, kinds, strict=False)), optimum=BEST)
    outcome, _ = run(records, landscape=landscape)
    assert outcome.failures == {"compile": 1, "run": 1, "timeout": 1, "wrong": 1}
    assert outcome.require_winner().config == BEST
    kept = {trial.config: trial for trial in read_trials(STUDY, records)}
    assert [kept[config].status for config in SPACE[:4]] == list(kinds)
    assert all(kept[config].message for config in SPACE[:4])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CompileError("no"), Status.COMPILE),
        (CompileTimeoutError("60 s"), Status.TIMEOUT),
        (LaunchError("out of resources"), Status.RUN),
    ],
)
def test_errors_of_a_config_become_trials(error, status):
    class Raising(FakeEvaluator):
        def evaluate(self, config):
            if config == SPACE[1]:
                raise error
            return super().evaluate(config)

    outcome, _ = run(Records(), evaluator=Raising(STUDY, LANDSCAPE))
    (failed,) = [trial for trial in outcome.trials if trial.status is not Status.OK]
    assert (failed.config, failed.status, failed.message) == (SPACE[1], status, str(error))


@pytest.mark.parametrize("error", [CompileTimeoutError("60 s"), LaunchTimeoutError("10 s")])
def test_where_cpus_may_be_short_a_time_limit_says_nothing_about_a_config(error):
    class Raising(FakeEvaluator):
        def evaluate(self, config):
            if config == SPACE[1]:
                raise error
            return super().evaluate(config)

    records = Records()
    outcome, _ = run(records, evaluator=Raising(STUDY, LANDSCAPE), timeouts_count=False)
    assert not outcome.failures
    assert [(config, "CPUs were short" in fault) for config, fault in outcome.faults] == [(SPACE[1], True)]
    assert SPACE[1] not in {trial.config for trial in read_trials(STUDY, records)}


def test_what_is_no_configs_fault_ends_the_session():
    class NoCompiler(FakeEvaluator):
        def evaluate(self, config):
            if config == SPACE[2]:
                raise CompilerMissingError("install gcc")
            return super().evaluate(config)

    records = Records()
    with pytest.raises(CompilerMissingError):
        run(records, evaluator=NoCompiler(STUDY, LANDSCAPE))
    assert len(read_trials(STUDY, records)) == 2  # what was finished is kept, the innocent config is not marked


def test_failed_configs_can_be_tried_again():
    records = Records()
    run(records, landscape=FakeLandscape(optimum=BEST, failures={SPACE[0]: Status.TIMEOUT, SPACE[1]: Status.WRONG}))
    outcome, evaluator = run(records, retry=frozenset({Status.TIMEOUT}))
    assert evaluator.evaluated == [SPACE[0]]
    assert outcome.measured == 1


def test_all_failed():
    everything = FakeLandscape(failures=dict.fromkeys(SPACE, Status.COMPILE))
    outcome, _ = run(Records(), landscape=everything)
    assert outcome.winner is None
    with pytest.raises(TuneError, match=r"all 12 configs that were tried failed[\s\S]*BLOCK=32.*compile: fails as"):
        outcome.require_winner()


def test_an_empty_space_is_an_error():
    with pytest.raises(TuneError, match="empty"):
        run(Records(), space=[])


def test_duplicates_in_a_space_count_once():
    outcome, evaluator = run(Records(), space=SPACE + SPACE[:3])
    assert len(evaluator.evaluated) == outcome.measured == len(SPACE)


def test_budget_of_evaluations_goes_on_where_it_was():
    whole = Records()
    undisturbed, _ = run(whole, searcher="random", budget=Budget(evaluations=8))
    assert (undisturbed.measured, undisturbed.stopped) == (8, "evaluations")

    pieces = Records()
    run(pieces, searcher="random", budget=Budget(evaluations=3))
    outcome, evaluator = run(pieces, searcher="random", budget=Budget(evaluations=8))
    assert (outcome.measured, outcome.reused) == (5, 3)
    assert {trial.config for trial in outcome.trials} == {trial.config for trial in undisturbed.trials}
    assert len(evaluator.prepared) == 5  # nothing is compiled that will not be measured


def test_a_budget_as_large_as_the_space_completes():
    outcome, _ = run(Records(), budget=Budget(evaluations=len(SPACE)))
    assert outcome.stopped == "complete"


def test_budget_of_seconds_counts_compile_and_measurement():
    now = itertools.count(step=10**8)  # each look at the clock takes a tenth of a second
    ticks = []

    def clock():
        ticks.append(next(now))
        return ticks[-1]

    outcome, evaluator = run(Records(), budget=Budget(seconds=1.0), clock=clock)
    assert outcome.stopped == "seconds"
    assert 0 < outcome.measured < len(SPACE)
    assert len(evaluator.evaluated) == outcome.measured
    assert outcome.winner is not None


def test_kept_trials_cost_no_time():
    records = Records()
    run(records)
    outcome, _ = run(records, budget=Budget(seconds=1e-9))
    assert (outcome.reused, outcome.stopped) == (len(SPACE), "complete")


class Interrupting(FakeEvaluator):
    def evaluate(self, config):
        if len(self.evaluated) == 5:
            raise KeyboardInterrupt
        return super().evaluate(config)


def test_ctrl_c_loses_only_the_trial_in_flight():
    records = Records()
    with pytest.raises(TuneInterrupted, match="interrupted, the next run goes on") as caught:
        run(records, evaluator=Interrupting(STUDY, LANDSCAPE))
    assert isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.outcome.measured == 5
    assert len(read_trials(STUDY, records)) == 5
    outcome, evaluator = run(records)
    assert evaluator.evaluated == SPACE[5:]
    undisturbed, _ = run(Records())
    assert outcome.winner == undisturbed.winner


def test_trials_of_another_process_are_used_as_they_appear():
    records = Records()

    class Shared(FakeEvaluator):
        def evaluate(self, config):
            if not self.evaluated:  # meanwhile another process did everything else
                other = FakeEvaluator(STUDY, LANDSCAPE)
                tune(STUDY, [c for c in SPACE if c != config], other, records)
            return super().evaluate(config)

    outcome, evaluator = run(records, evaluator=Shared(STUDY, LANDSCAPE))
    assert evaluator.evaluated == SPACE[:1]
    assert (outcome.measured, outcome.reused) == (1, len(SPACE) - 1)
    assert outcome.require_winner().config == BEST


def test_a_store_that_cannot_be_written_costs_a_note():
    class Full(Records):
        def append(self, key, record):
            raise StoreError("no space left on device")

    outcome, _ = run(Full())
    assert outcome.require_winner().config == BEST
    assert len(outcome.notes) == 1
    assert "no space left" in outcome.summary


def test_a_store_that_cannot_be_read_costs_a_note():
    class Broken(Records):
        def read(self, key):
            raise OSError("input/output error")

    outcome, _ = run(Broken())
    assert outcome.require_winner().config == BEST
    assert len(outcome.notes) == 1


def test_records_of_a_newer_silo_are_skipped_and_told():
    records = Records()
    records.append(STUDY.key, {"schema": "trials/9", "trials": []})
    records.append(STUDY.key, "what is this")
    outcome, _ = run(records)
    assert outcome.measured == len(SPACE)
    assert any("skipped" in note for note in outcome.notes)


def test_trials_that_do_not_belong_are_not_kept():
    class Stranger(FakeEvaluator):
        def evaluate(self, config):
            return dataclasses.replace(super().evaluate(config), policy="other/1")

    with pytest.raises(ValueError, match="does not belong"):
        run(Records(), evaluator=Stranger(STUDY, LANDSCAPE))


def test_progress_counts():
    seen = []
    landscape = FakeLandscape(optimum=BEST, failures={SPACE[0]: Status.COMPILE})
    run(Records(), landscape=landscape, progress=seen.append)
    assert [event.done for event in seen if event.phase == "search"] == list(range(1, len(SPACE) + 1))
    assert seen[0].failures == {"compile": 1}
    assert seen[0].best is None
    assert seen[-1].phase == "done"
    assert seen[-1].best == BEST
    assert seen[-1].best_ns == landscape.time_ns(BEST)
    assert all(event.total == len(SPACE) for event in seen)
    assert seen[3].last.config == SPACE[3]


def test_the_log_line_says_it_all():
    outcome, _ = run(Records(), landscape=FakeLandscape(optimum=BEST, failures={SPACE[0]: Status.WRONG}))
    line = dataclasses.replace(outcome, seconds=2.13).summary
    assert line == (
        f"tuned add[n~2^20] on fake:v1: 12 configs in 2.1 s, failed: 1 wrong; winner {BEST} at 50 us; kept in the store"
    )


def test_the_winner_is_a_view_over_the_kept_trials():
    records = Records()
    outcome, _ = run(records, landscape=FakeLandscape(noise_permille=30, failing_permille=100))
    assert choose_winner(reversed(read_trials(STUDY, records))) == outcome.winner


LARGE = [
    Config.of(BLOCK=1 << power, num_warps=warps, TILE=tile)
    for power in range(5, 12)
    for warps in (1, 2, 4, 8)
    for tile in range(12)
]


def test_the_default_searcher_stops_by_itself_in_a_large_space():
    outcome, evaluator = run(Records(), space=LARGE, ahead=4)
    assert (outcome.measured, outcome.stopped) == (256, "evaluations")
    assert len(set(evaluator.evaluated)) == 256


def test_whoever_asks_for_all_gets_all():
    outcome, _ = run(Records(), space=LARGE, searcher="exhaustive")
    assert (outcome.measured, outcome.stopped) == (len(LARGE), "complete")


def test_seeds_are_measured_first():
    _, evaluator = run(Records(), seeds=[Seed(BEST), Seed(Config.of(BLOCK=7))], budget=Budget(evaluations=2))
    assert evaluator.evaluated == [BEST, SPACE[0]]


@pytest.mark.parametrize("searcher", ["auto", "genetic", "neighbourhood"])
def test_a_search_that_was_killed_goes_on_and_measures_nothing_twice(searcher):
    records = Records()
    first, _ = run(records, space=LARGE, searcher=searcher, budget=Budget(evaluations=30))
    second, evaluator = run(records, space=LARGE, searcher=searcher, budget=Budget(evaluations=50))
    assert (first.measured, second.measured, second.reused) == (30, 20, 30)
    assert not {trial.config for trial in first.trials} & set(evaluator.evaluated)
    third, evaluator = run(records, space=LARGE, searcher=searcher, budget=Budget(evaluations=50))
    assert (third.measured, third.reused) == (0, 50)
    assert evaluator.prepared == []


class Told:
    """A searcher of somebody else, which notes what it is told."""

    def __init__(self, configs):
        self.left = list(configs)
        self.observed = []
        self.finished_after = None

    def suggest(self, count):
        chosen, self.left = self.left[:count], self.left[count:]
        return chosen

    def observe(self, config, time_ns):
        self.observed.append((config, time_ns))

    def finish(self):
        if self.finished_after is None:
            self.finished_after = len(self.observed)

    def state(self):
        return None

    def restore(self, state):
        pass


def test_the_searcher_is_told_when_the_budget_nears_its_end():
    told = Told(LARGE)
    run(Records(), space=LARGE, searcher=told, budget=Budget(evaluations=100), ahead=1)
    assert told.finished_after == 90
    told = Told(LARGE)
    now = itertools.count(step=10**7)
    run(Records(), space=LARGE, searcher=told, budget=Budget(seconds=2.0), clock=lambda: next(now))
    assert 0 < told.finished_after < len(told.observed)


def test_the_searcher_is_told_what_the_store_knows():
    records = Records()
    landscape = FakeLandscape(optimum=BEST, failures={SPACE[2]: Status.COMPILE})
    run(records, landscape=landscape, searcher="exhaustive", budget=Budget(evaluations=5))
    told = Told(SPACE[5:])
    run(records, landscape=landscape, searcher=told)
    assert [config for config, _ in told.observed[:5]] == SPACE[:5]
    assert [time is None for _, time in told.observed[:5]] == [config == SPACE[2] for config in SPACE[:5]]


def test_a_budget_smaller_than_what_is_known_measures_nothing():
    records = Records()
    run(records, budget=Budget(evaluations=6))
    outcome, evaluator = run(records, budget=Budget(evaluations=2))
    assert (outcome.measured, outcome.reused, outcome.stopped) == (0, 6, "evaluations")
    assert evaluator.prepared == []


@pytest.mark.parametrize(
    "limits", [{"evaluations": 0}, {"evaluations": -1}, {"seconds": 0.0}, {"seconds": float("nan")}]
)
def test_a_budget_of_nothing_is_refused(limits):
    with pytest.raises(TuneError, match="measures nothing"):
        Budget(**limits)


def test_bad_input_is_refused_before_anything_is_compiled():
    evaluator = FakeEvaluator(STUDY, LANDSCAPE)
    for space, searcher, message in (((), "auto", "space is empty"), (SPACE, "annealing", "unknown searcher")):
        with pytest.raises(TuneError, match=message):
            run(Records(), space=space, searcher=searcher, evaluator=evaluator)
    assert evaluator.prepared == evaluator.evaluated == []

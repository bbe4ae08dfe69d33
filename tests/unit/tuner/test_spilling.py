"""Configs that spill: which are set aside, which of them are measured in the end, and what is kept of that."""
# pyright: reportOperatorIssue=false

from __future__ import annotations

import itertools

import pytest

from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.core.device import Target
from silo.errors import StoreError, TuneError
from silo.store.store import MemoryStore
from silo.tuner.lanes import ThreadedLanes
from silo.tuner.ledger import read_trials
from silo.tuner.search.searchers import SEARCHERS
from silo.tuner.session_values import Budget
from silo.tuner.spilling import SpillingConfig, judge, known_spills, ranked, spill_limit
from silo.tuner.trial import Status
from tuning_samples import space_of, tune

STUDY = fake_study()
SPACE = [Config.of(BLOCK=1 << power, num_warps=warps) for power in range(5, 11) for warps in (2, 4)]
# The last six spill, the largest most.
SPILLS = {config: 10 * config.as_dict()["BLOCK"] for config in SPACE[6:]}
LIMIT = 16
SPILLING = set(SPILLS)
LEAST = set(SPACE[6:8])  # a third of them


def run(records, space=SPACE, *, spills=SPILLS, limit=LIMIT, lanes=0, **options):
    landscape = FakeLandscape(spills=spills, **options.pop("landscape", {}))
    evaluators = [FakeEvaluator(STUDY, landscape) for _ in range(lanes or 1)]
    if not lanes:
        outcome = tune(STUDY, space, evaluators[0], records, most_spills=limit, **options)
    else:
        with ThreadedLanes(evaluators) as threaded:
            outcome = tune(STUDY, space, threaded, records, most_spills=limit, **options)
    return outcome, [config for one in evaluators for config in one.evaluated]


def store():
    return MemoryStore().records


def test_who_has_a_limit():
    for kind, least in (("cuda", 16), ("hip", 32), ("cpu", 16)):
        assert spill_limit(Target(kind), by_heuristic=True) == least
        assert spill_limit(Target(kind), by_heuristic=False) is None
        assert spill_limit(Target(kind), by_heuristic=False, requested=0) == 0
        assert spill_limit(Target(kind), by_heuristic=True, requested=500) == 500


@pytest.mark.parametrize(
    ("count", "others", "evaluations", "measured"),
    [
        (1, True, None, 1),
        (2, True, None, 1),
        (3, True, None, 1),
        (4, True, None, 2),
        (9, True, 0, 3),
        (9, False, None, 9),
        (9, False, 5, 5),
        (9, False, 1, 3),
        (0, False, None, 0),
    ],
)
def test_the_least_spilling_third_or_all_where_nothing_else_works(count, others, evaluations, measured):
    aside = [SpillingConfig(Config.of(BLOCK=place), 20 + place) for place in range(count)]
    verdicts = judge(aside, others_work=others, evaluations=evaluations)
    assert [bool(one.decision) for one in verdicts] == [place < measured for place in range(count)]
    assert [one.one for one in verdicts] == aside
    assert all(one.decision.reason for one in verdicts)


def test_rank_is_by_spills_then_by_place_and_of_this_space():
    found = [SpillingConfig(config, 30) for config in reversed(SPACE[:3])] + [SpillingConfig(SPACE[5], 20)]
    stranger = SpillingConfig(Config.of(BLOCK=3), 1)
    assert [one.config for one in ranked([*found, stranger], space_of(SPACE))] == [SPACE[5], *SPACE[:3]]


@pytest.mark.parametrize("lanes", [0, 1, 3])
@pytest.mark.parametrize("searcher", [name for name in SEARCHERS if not name.startswith("descent")])
def test_spilling_configs_are_measured_last_and_only_the_best_of_them(searcher, lanes):
    records = store()
    outcome, seen = run(records, searcher=searcher, lanes=lanes)
    assert len(seen) == len(set(seen)) == 8
    assert set(seen) == set(SPACE) - SPILLING | LEAST
    if lanes < 2:
        assert seen[-2:] == SPACE[6:8]
    assert {trial.config for trial in read_trials(STUDY, records)} == set(seen)
    assert (outcome.measured, outcome.reused, outcome.failures, outcome.stopped) == (8, 0, {}, "complete")
    assert [one.config for one in outcome.aside] == SPACE[8:]
    line = "6 of 12 configs spill 2560 to 10240 values a thread to local memory (above 16): "
    line += "2 measured last, 4 set aside"
    assert outcome.remarks == (line,)
    assert line in outcome.summary
    assert outcome.summary.endswith("kept in the store")


@pytest.mark.parametrize("searcher", ["descent", "descent-all-directions"])
def test_a_search_that_waits_for_outcomes_is_not_stuck(searcher):
    spills = {config: 20 + place for place, config in enumerate(SPACE[1:])}
    records = store()
    outcome, seen = run(records, spills=spills, searcher=searcher)
    assert seen[0] == SPACE[0]
    assert len(seen) == len(set(seen)) == 1 + -(-len(known_spills(STUDY, records)) // 3)
    assert outcome.require_winner()


def test_a_spilling_config_may_win():
    fast = SPACE[7]
    outcome, _ = run(store(), landscape={"optimum": fast})
    assert outcome.require_winner().config == fast


@pytest.mark.parametrize("searcher", ["auto", "random", "genetic"])
def test_a_second_session_measures_and_compiles_nothing(searcher):
    records = store()
    first, _ = run(records, searcher=searcher)
    evaluator = FakeEvaluator(STUDY, FakeLandscape(spills=SPILLS))
    second = tune(STUDY, SPACE, evaluator, records, most_spills=LIMIT, searcher=searcher)
    assert evaluator.evaluated == evaluator.prepared == evaluator.compared == []
    assert (second.measured, second.reused, second.winner) == (0, 8, first.winner)
    assert (second.aside, second.remarks) == (first.aside, first.remarks)


def test_what_fails_of_those_set_aside_makes_no_room_for_more():
    records = store()
    failures = {SPACE[6]: Status.RUN}
    outcome, seen = run(records, landscape={"failures": failures})
    assert set(seen) & SPILLING == LEAST
    assert outcome.failures == {"run": 1}
    assert run(records, landscape={"failures": failures})[1] == []


def test_without_a_limit_all_are_measured_and_with_a_higher_one_more():
    records = store()
    outcome, seen = run(records, limit=None)
    assert (seen, outcome.aside, outcome.remarks) == (SPACE, (), ())
    assert known_spills(STUDY, records) == ()
    records = store()
    run(records)
    outcome, seen = run(records, limit=2560)
    assert seen == [SPACE[8], SPACE[9]] == [config for config in SPACE[8:] if SPILLS[config] <= 5120]
    outcome, seen = run(records, limit=None)
    assert seen == SPACE[10:]


def test_exactly_the_limit_is_no_spilling():
    spills = {SPACE[0]: LIMIT, SPACE[1]: LIMIT + 1}
    outcome, seen = run(store(), spills=spills)
    assert seen[-1] == SPACE[1], "the only one is measured, last"
    assert outcome.remarks == ("1 of 12 configs spill 17 values a thread to local memory (above 16): 1 measured last",)


@pytest.mark.parametrize("lanes", [0, 2])
def test_where_all_spill_all_are_measured_by_rank(lanes):
    spills = {config: 1000 - place for place, config in enumerate(SPACE)}
    records = store()
    outcome, seen = run(records, spills=spills, lanes=lanes)
    assert sorted(seen, key=str) == sorted(SPACE, key=str)
    if not lanes:
        assert seen == SPACE[::-1]
    assert outcome.require_winner()
    assert (outcome.measured, outcome.aside) == (12, ())
    assert run(records, spills=spills, lanes=lanes)[1] == []


def test_where_the_others_fail_all_are_measured():
    failures = dict.fromkeys(SPACE[:6], Status.COMPILE)
    records = store()
    outcome, seen = run(records, landscape={"failures": failures})
    assert seen[-6:] == SPACE[6:]
    assert outcome.require_winner().config in SPILLING
    assert run(records, landscape={"failures": failures})[1] == []


def test_where_nothing_works_that_is_said_with_what_spilled():
    failures = dict.fromkeys(SPACE, Status.RUN)
    outcome, seen = run(store(), landscape={"failures": failures})
    assert len(seen) == 12
    with pytest.raises(TuneError, match=r"all 12 configs that were tried failed[\s\S]*6 of 12 configs spill"):
        outcome.require_winner()


def test_evaluations_are_those_measured():
    outcome, seen = run(store(), searcher="exhaustive", budget=Budget(evaluations=4))
    assert seen[:4] == SPACE[:4]
    backwards = SPACE[::-1]
    records = store()
    outcome, seen = run(records, backwards, searcher="exhaustive", budget=Budget(evaluations=4))
    assert seen[:4] == SPACE[5:1:-1], "six that spill cost no evaluation"
    assert set(seen[4:]) == LEAST
    assert outcome.stopped == "evaluations"
    assert run(records, backwards, searcher="exhaustive", budget=Budget(evaluations=4))[1] == []
    assert run(records, backwards, searcher="exhaustive", budget=Budget(evaluations=5))[1] == [SPACE[1]]


def test_where_all_spill_a_budget_of_evaluations_holds():
    spills = {config: 1000 + place for place, config in enumerate(SPACE)}
    records = store()
    _, seen = run(records, spills=spills, budget=Budget(evaluations=6))
    assert seen == SPACE[:6]
    assert run(records, spills=spills, budget=Budget(evaluations=6))[1] == []
    assert run(records, spills=spills, budget=Budget(evaluations=7))[1] == [SPACE[6]]


def test_adding_a_config_measures_at_most_one():
    for added in (SPACE[11], SPACE[0], SPACE[6]):
        records = store()
        run(records, [config for config in SPACE if config != added])
        _, seen = run(records)
        assert seen == ([added] if added not in SPILLING - LEAST else [])


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", range(8))
def test_a_session_that_was_killed_goes_on_and_measures_nothing_twice(after):
    class Dying(FakeEvaluator):
        def evaluate(self, config):
            if len(self.evaluated) == after:
                raise Killed
            return super().evaluate(config)

    records = store()
    dying = Dying(STUDY, FakeLandscape(spills=SPILLS))
    with pytest.raises(Killed):
        tune(STUDY, SPACE, dying, records, most_spills=LIMIT)
    outcome, seen = run(records)
    whole, _ = run(store())
    assert sorted(dying.evaluated + seen, key=str) == sorted({trial.config for trial in whole.trials}, key=str)
    assert outcome.winner == whole.winner


def test_time_that_is_up_leaves_them_unless_nothing_else_works():
    class Slow(FakeEvaluator):
        now = 0

        def evaluate(self, config):
            Slow.now += 10**9
            return super().evaluate(config)

    def seen(spills, seconds):
        Slow.now = 0
        evaluator = Slow(STUDY, FakeLandscape(spills=spills))
        tune(
            STUDY, SPACE, evaluator, store(), most_spills=LIMIT, budget=Budget(seconds=seconds), clock=lambda: Slow.now
        )
        return evaluator.evaluated

    assert seen(SPILLS, 5.0) == SPACE[:5]
    assert seen(SPILLS, 100.0)[6:] == SPACE[6:8]
    everything = dict.fromkeys(SPACE, 100)
    assert seen(everything, 5.0) == SPACE[:5]


class Told:
    """A searcher that suggests in order and notes what it is told."""

    def __init__(self):
        self.left, self.observed = list(SPACE), []

    def suggest(self, count):
        chosen, self.left = self.left[:count], self.left[count:]
        return chosen

    def observe(self, config, time_ns):
        self.observed.append((config, time_ns is not None))

    def finish(self):
        pass


def test_the_searcher_is_told_of_a_failure_and_later_of_the_time():
    told = Told()
    run(store(), searcher=told)
    assert told.observed[:6] == [(config, True) for config in SPACE[:6]]
    assert told.observed[6:12] == [(config, False) for config in SPACE[6:]]
    assert told.observed[12:] == [(config, True) for config in SPACE[6:8]]


def test_progress_counts_those_set_aside():
    events = []
    run(store(), progress=events.append)
    assert max(event.aside for event in events) == 6
    last = events[-1]
    assert (last.phase, last.done, last.total, last.aside) == ("done", 8, 8, 4)
    assert all(event.done <= event.total for event in events)
    assert last.failures == {}


def test_a_store_that_keeps_nothing_costs_a_note():
    class Full:
        def append(self, key, record):
            raise StoreError("no space left on device")

        def read(self, key):
            return iter(())

    outcome, seen = run(Full())
    assert len(seen) == 8
    assert any("which configs spill is not kept: no space" in note for note in outcome.notes)


def test_records_of_a_newer_silo_are_left_out():
    records = store()
    run(records)
    before = known_spills(STUDY, records)
    assert {one.config for one in before} == SPILLING
    from silo.core.variant import spills_key

    for record in ({"schema": "spills/2", "spills": []}, "what", {"schema": "spills/1", "spills": [[1]]}, [3]):
        records.append(spills_key(STUDY.key), record)
    assert known_spills(STUDY, records) == before


def test_another_process_measures_what_this_one_set_aside():
    records = store()
    calls = itertools.count()

    class Shared(FakeEvaluator):
        def evaluate(self, config):
            if next(calls) == 5:  # meanwhile somebody without a limit does everything
                run(records, limit=None)
            return super().evaluate(config)

    evaluator = Shared(STUDY, FakeLandscape(spills=SPILLS))
    outcome = tune(STUDY, SPACE, evaluator, records, most_spills=LIMIT, searcher="exhaustive")
    assert evaluator.evaluated == SPACE[:6]
    assert outcome.aside == ()

"""Spaces of groups searched one group after the other, and tuned so."""
# pyright: reportCallIssue=false, reportOperatorIssue=false

import itertools
import threading
import time

import pytest

from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.core.grouped_space import GroupedSpace, Steps
from silo.core.values import canonical_json, parse_json
from silo.errors import LaunchError, TuneError
from silo.store.store import MemoryStore
from silo.tuner.explain import explain_study
from silo.tuner.lanes import ThreadedLanes
from silo.tuner.ledger import read_trials
from silo.tuner.search.search_state import Seed
from silo.tuner.session_values import Budget, TuneInterrupted
from silo.tuner.trial import Status
from tuning_samples import drain, make_searcher, tune

STUDY = fake_study()
BLOCKS = (64, 128, 256, 512)
NAMES = ("XBLOCK_0", "XBLOCK_1", "XBLOCK_2")
LAUNCHES = ((4, 1), (8, 1), (8, 2))


def group(name):
    return tuple(Config.of({name: block}) for block in BLOCKS)


BASE = Config.of({**dict.fromkeys(NAMES, 64), "num_warps": 4, "num_stages": 1})
SPACE = GroupedSpace(
    BASE,
    (*(group(name) for name in NAMES), tuple(Config.of(num_warps=w, num_stages=s) for w, s in LAUNCHES)),
    tuple(Steps((name,), (16, 32, 64, 128, 256, 512, 1024)) for name in NAMES),
)
BEST = {"XBLOCK_0": 256, "XBLOCK_1": 64, "XBLOCK_2": 512, "num_warps": 8, "num_stages": 2}
EFFORT = 1 + 3 * 3 + 2
BY_GROUPS = ("auto", "sequential", "sequential-descent")


def separable(config):
    """The sum of what each group takes: least for those of BEST."""
    values = config.as_dict()
    return 1000 + sum(100 * (values[name] != best) + values[name].bit_length() for name, best in BEST.items())


class Separable(FakeLandscape):
    def time_ns(self, config):
        return separable(config)


def run(records, landscape=None, space=SPACE, **options):
    evaluator = options.pop("evaluator", None) or FakeEvaluator(STUDY, landscape or Separable())
    return tune(STUDY, space, evaluator, records, **options), evaluator


@pytest.mark.parametrize("name", BY_GROUPS)
@pytest.mark.parametrize("ahead", [1, 8])
def test_the_best_of_independent_groups_is_found_in_a_sum(name, ahead):
    found = drain(make_searcher(name, SPACE, "seed"), separable, ahead)
    assert min(found, key=found.get).as_dict() == BEST
    assert next(iter(found)) == BASE
    if name != "sequential-descent":
        assert len(found) <= EFFORT < len(SPACE.product()) == 192


def test_groups_come_in_order_and_each_begins_with_the_best_so_far():
    found = list(drain(make_searcher("sequential", SPACE, "seed"), separable))
    sizes = [1 + 3, 3, 3, 2]
    expected, now = [], dict(BASE.as_dict())
    for choices in SPACE.groups:
        expected += [Config.of({**now, **choice.as_dict()}) for choice in choices]
        now |= {name: BEST[name] for name in choices[0].as_dict()}
    assert found == list(dict.fromkeys(expected))
    assert len(found) == sum(sizes)


@pytest.mark.parametrize("name", BY_GROUPS)
@pytest.mark.parametrize("known", [0, 1, 3, 5, 8, 11, 14])
def test_a_restored_search_goes_on(name, known):
    searcher = make_searcher(name, SPACE, "seed", [Seed(Config.of(BEST))])
    for _ in range(known):
        for config in searcher.suggest(1):
            searcher.observe(config, float(separable(config)))
    state = parse_json(canonical_json(searcher.state()))
    again = make_searcher(name, SPACE, "seed", [Seed(Config.of(BEST))])
    again.restore(state)
    assert canonical_json(again.state()) == canonical_json(searcher.state())
    assert drain(again, separable) == drain(searcher, separable)
    for other in (SPACE.constrained([lambda c: c.XBLOCK_0 > 1]), SPACE.for_call(constexprs={"XBLOCK_1": 64})):
        with pytest.raises(ValueError, match="not the state of this"):
            make_searcher(name, other, "seed").restore(state)


def test_the_second_run_measures_nothing_whatever_was_tuned_meanwhile():
    records = MemoryStore().records
    landscape = Separable(noise_permille=5)
    first, _ = run(records, landscape)
    assert (first.measured, first.reused, first.stopped) == (EFFORT, 0, "complete")
    assert first.require_winner().config.as_dict() == BEST
    # What near studies suggest is another thing by now, and no reason to measure.
    for seeds in ((), (Seed(Config.of({**BEST, "XBLOCK_0": 512})), Seed(Config.of({**BEST, "XBLOCK_1": 1024})))):
        again, evaluator = run(records, landscape, seeds=seeds)
        assert evaluator.evaluated == evaluator.prepared == evaluator.compared == []
        assert (again.measured, again.reused) == (0, EFFORT)
        assert again.winner == first.winner


@pytest.mark.parametrize("stop", range(EFFORT))
def test_a_session_that_was_stopped_goes_on_where_it_was(stop):
    class Interrupted(FakeEvaluator):
        def evaluate(self, config):
            if len(self.evaluated) == stop:
                raise KeyboardInterrupt
            return super().evaluate(config)

    records = MemoryStore().records
    stopped = Interrupted(STUDY, Separable())
    with pytest.raises(TuneInterrupted):
        run(records, evaluator=stopped)
    outcome, evaluator = run(records)
    assert (outcome.measured, outcome.reused) == (EFFORT - stop, stop)
    assert not set(stopped.evaluated) & set(evaluator.evaluated)
    assert outcome.require_winner().config.as_dict() == BEST


def test_seeds_are_measured_first_and_say_which_choices_to_try_first():
    seed = Config.of({**BASE.as_dict(), "XBLOCK_0": 512, "XBLOCK_1": 512, "num_warps": 8})
    found = list(drain(make_searcher("auto", SPACE, "seed", [Seed(seed)]), separable))
    assert found[:3] == [BASE, seed, Config.of({**BASE.as_dict(), "XBLOCK_0": 512})]
    assert len(found) == EFFORT + 1
    assert set(found) == {seed, *drain(make_searcher("auto", SPACE, "seed"), separable)}


def failing(*members):
    """A landscape in which configs with one of these members fail."""

    class Failing(Separable):
        def status(self, config):
            return Status.COMPILE if any(member in config.as_dict().items() for member in members) else Status.OK

    return Failing()


def test_failures_of_one_group_do_not_spoil_others():
    outcome, _ = run(MemoryStore().records, failing(("XBLOCK_0", 256), ("XBLOCK_0", 512)))
    assert outcome.failures == {"compile": 2}
    assert outcome.measured == EFFORT
    won = outcome.require_winner().config.as_dict()
    assert won == {**BEST, "XBLOCK_0": 64}, "the best of what works there, and the best everywhere else"


def test_a_base_that_fails_in_one_group_costs_a_second_turn_of_those_before():
    # XBLOCK_2=64 is the base's, and fails; nothing works before the third group has its turn.
    outcome, evaluator = run(MemoryStore().records, failing(("XBLOCK_2", 64)))
    assert outcome.require_winner().config.as_dict() == BEST
    assert len(evaluator.evaluated) <= EFFORT + 2 * 3


def test_a_base_that_does_not_fit_is_given_up_for_the_least():
    space = GroupedSpace(
        Config.of({**dict.fromkeys(NAMES, 512), "num_warps": 4, "num_stages": 1}),
        tuple(tuple(reversed(choices)) for choices in SPACE.groups[:3]) + SPACE.groups[3:],
    )

    class Memory(Separable):
        """Blocks share a memory that holds 900 elements."""

        def status(self, config):
            return Status.RUN if sum(config.as_dict()[name] for name in NAMES) > 900 else Status.OK

    outcome, evaluator = run(MemoryStore().records, Memory(), space)
    assert outcome.require_winner().config.as_dict() == BEST
    assert evaluator.evaluated[4] == Config.of({**BASE.as_dict()}), "the least blocks of all, after the first group"
    assert len(evaluator.evaluated) <= EFFORT + 1 + 3


def test_a_kernel_for_which_nothing_works():
    landscape = FakeLandscape(failing_permille=1000)
    outcome, evaluator = run(MemoryStore().records, landscape)
    assert outcome.winner is None
    assert set(evaluator.evaluated) == set(SPACE.listed)


def test_a_descent_finds_what_choices_do_together():
    """Two blocks are fast together only where they are equal, and 1024 is not a choice of any group."""

    def cost(config):
        values = config.as_dict()
        apart = abs(values["XBLOCK_0"].bit_length() - values["XBLOCK_1"].bit_length())
        return 1000 + 300 * apart + 100 * abs(values["XBLOCK_2"].bit_length() - 11) + values["num_warps"]

    plain = drain(make_searcher("sequential", SPACE, "seed"), cost)
    found = drain(make_searcher("sequential-descent", SPACE, "seed"), cost)
    assert plain.items() <= found.items()
    assert min(found.values()) < min(plain.values())
    assert min(found, key=found.get).as_dict()["XBLOCK_2"] == 1024
    assert all(config in SPACE for config in found)


def test_what_is_not_faster_changes_nothing():
    backwards = GroupedSpace(SPACE.base, tuple(tuple(reversed(choices)) for choices in SPACE.groups))
    found = drain(make_searcher("auto", backwards, "seed"), lambda config: 1000)
    assert set(found) == set(backwards.listed), "every group was tried round the base"


def test_a_descent_keeps_to_the_constraints():
    narrow = SPACE.constrained([lambda c: c.XBLOCK_0 + c.XBLOCK_1 + c.XBLOCK_2 <= 1200])

    def cost(config):
        return 10_000 - sum(dict(config.values).values())

    found = drain(make_searcher("sequential-descent", narrow, "seed"), cost)
    assert len(found) > len(drain(make_searcher("sequential", narrow, "seed"), cost))
    assert all(config in narrow for config in found)
    assert max(sum(dict(config.values).values()) for config in found) == 512 + 512 + 128


def test_what_a_descent_found_counts_for_the_next_process():
    class Long(Separable):
        def time_ns(self, config):
            return 2000 + separable(config) - config.as_dict()["XBLOCK_2"]

    records = MemoryStore().records
    first, _ = run(records, Long(), searcher="sequential-descent")
    assert first.require_winner().config.as_dict()["XBLOCK_2"] == 1024
    for searcher in ("sequential-descent", "auto"):
        again, evaluator = run(records, Long(), searcher=searcher)
        assert evaluator.evaluated == []
        assert again.winner == first.winner


def test_searchers_that_need_a_list_get_every_combination():
    small = GroupedSpace(BASE, SPACE.groups[:2])
    outcome, evaluator = run(MemoryStore().records, space=small, searcher="exhaustive")
    assert set(evaluator.evaluated) == set(small.product())
    assert outcome.measured == 16
    groups = tuple(group(f"XBLOCK_{number}") for number in range(20))
    vast = GroupedSpace(Config.of({f"XBLOCK_{number}": 64 for number in range(20)}), groups)
    with pytest.raises(TuneError, match=r"the searcher genetic goes through a list: .* 1099511627776 combinations"):
        run(MemoryStore().records, space=vast, searcher="genetic")


def test_budgets_end_a_search_by_groups():
    outcome, _ = run(MemoryStore().records, budget=Budget(evaluations=6))
    assert (outcome.measured, outcome.stopped) == (6, "evaluations")
    assert outcome.require_winner().time.median_ns <= separable(BASE)


def test_progress_says_how_many_are_left():
    seen = []
    run(MemoryStore().records, progress=seen.append)
    assert {event.total for event in seen} == {EFFORT}
    assert [event.done for event in seen if event.phase == "search"] == list(range(1, EFFORT + 1))


def test_lanes_are_busy_within_a_group():
    most, running, lock = 0, 0, threading.Lock()

    class Counting(FakeEvaluator):
        def evaluate(self, config):
            nonlocal most, running
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.004)
            try:
                return super().evaluate(config)
            finally:
                with lock:
                    running -= 1

    evaluators = [Counting(STUDY, Separable()) for _ in range(3)]
    with ThreadedLanes(evaluators) as lanes:
        outcome = tune(STUDY, SPACE, lanes, MemoryStore().records)
    assert outcome.require_winner().config.as_dict() == BEST
    assert outcome.measured == EFFORT
    assert most == 3
    # Four configs of the first group on three devices, three of the second, ...: each device has a share of every one.
    assert all(len(one.evaluated) >= EFFORT // 3 - 1 for one in evaluators)


def test_configs_that_spill_are_set_aside_and_the_second_run_measures_nothing():
    spills = {config: config.as_dict()["XBLOCK_0"] for config in SPACE.product() if config.as_dict()["XBLOCK_0"] > 128}
    records = MemoryStore().records
    landscape = Separable(spills=spills)
    first, _ = run(records, landscape, most_spills=16)
    (left,) = first.aside
    assert left.config.as_dict()["XBLOCK_0"] == 512, "of the two that spill, the one that spills less is measured"
    assert first.measured == EFFORT - 1
    assert first.require_winner().config.as_dict() == {**BEST, "XBLOCK_0": 64}
    for _ in range(2):
        again, evaluator = run(records, landscape, most_spills=16)
        assert evaluator.evaluated == evaluator.prepared == []
        assert again.winner == first.winner


def test_trials_of_other_spaces_do_not_count():
    records = MemoryStore().records
    listed = [Config.of({**BEST, "XBLOCK_0": 8192}), Config.of(BEST)]
    tune(STUDY, listed, FakeEvaluator(STUDY, FakeLandscape(optimum=listed[0])), records)
    outcome, evaluator = run(records)
    assert Config.of(BEST) not in evaluator.evaluated, "it is of this space too"
    assert listed[0] not in {trial.config for trial in outcome.trials}


def test_explained_before_between_and_after():
    records = MemoryStore().records

    def explain():
        return explain_study(STUDY, SPACE, read_trials(STUDY, records), (), ())

    before = explain()
    assert f"nothing was measured for this study: at most {EFFORT}, group by group" in before.text
    run(records, budget=Budget(evaluations=6))
    between = explain()
    assert len(between.known) == 6
    now = Config.of({**BASE.as_dict(), "XBLOCK_0": 256})
    assert set(between.new) == set(SPACE.alternatives(now, 1)) - set(between.known)
    assert "6 configs were measured; next of its groups: " in between.text
    assert between.to_json()["at_most"] == EFFORT
    run(records)
    after = explain()
    assert f"{EFFORT} configs were measured, all that its groups lead to: nothing would be measured" in after.text
    assert after.winner.config.as_dict() == BEST


def test_a_finalist_that_fails_later_leaves_the_others():
    class Fragile(FakeEvaluator):
        def compare(self, configs):
            if any(config.as_dict() == BEST for config in configs):
                raise LaunchError("gone")
            return super().compare(configs)

    outcome, _ = run(MemoryStore().records, evaluator=Fragile(STUDY, Separable()))
    assert outcome.require_winner().config.as_dict() != BEST
    assert outcome.failures == {"run": 1}


def test_every_order_of_outcomes_leads_to_the_same_winner():
    """Several devices answer in any order."""
    outcomes = set()
    for order in itertools.permutations(range(3)):
        searcher, waiting, best = make_searcher("auto", SPACE, "seed"), [], {}
        while True:
            waiting += searcher.suggest(3 - len(waiting))
            if not waiting:
                break
            config = waiting.pop(order[0] % len(waiting))
            best[config] = separable(config)
            searcher.observe(config, best[config])
        outcomes.add(min(best, key=best.get))
        assert len(best) == EFFORT
    assert {config.as_dict() == BEST for config in outcomes} == {True}

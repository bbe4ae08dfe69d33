"""Times beside a reference config, comparisons in pairs, and what is said of a winner that noise may have picked.

They stand for every way in which a machine that is slower for a while could decide between configs.
"""

import dataclasses
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.store.store import MemoryStore
from silo.tuner.ledger import Ledger, read_trials
from silo.tuner.measure import Contender, MeasurePolicy, PairedReference, measure
from silo.tuner.statistics import ReferenceConfig, Rounds, Scales, comparison_name, counted_samples, successor
from silo.tuner.trial import ReferenceSamples, Stage, Status, Trial, trials_to_record
from silo.tuner.winner import REMEDY, choose_winner, doubt, finalists, standings, superseding_record, undecided
from tuning_samples import tune

STUDY = fake_study()
A, B, C, D = (Config.of(BLOCK=block) for block in (128, 256, 512, 1024))


def trial(config, *samples, beside=None, reference=A):
    held = None if beside is None else ReferenceSamples(reference, tuple(beside))
    return STUDY.trial(config, Status.OK, samples, reference=held)


def compared(samples):
    """The final trials of one comparison, by config."""
    name = comparison_name(samples)
    return [trial(config, 1).remeasured(taken, name) for config, taken in samples.items()]


def test_a_trial_with_a_reference_is_read_as_it_was_written_and_one_without_has_the_bytes_it_had():
    plain, beside = trial(A, 5, 6), trial(B, 5, 6, beside=(7,))
    final = dataclasses.replace(beside.remeasured((4, 4), "ab"), after="cd")
    for one in (plain, beside, final):
        assert Trial.from_json(one.to_json()) == one
    assert not {"reference", "comparison", "after"} & set(plain.to_json())
    for odd in ({"comparison": ""}, {"after": 1}, {"reference": None}, {"reference": {"config": A.to_json()}}):
        with pytest.raises(ValueError, match=r"."):
            Trial.from_json(cast("Any", plain.to_json()) | odd)
    with pytest.raises(ValueError, match="one of the reference"):
        trial(B, 5, beside=(7, 8))


def test_what_a_slow_phase_made_slower_counts_as_it_would_have_in_a_fast_one():
    fast = [trial(A, 100, 100, beside=(100, 100)), trial(B, 90, 90, beside=(100, 100))]
    slow = [trial(C, 152, 152, beside=(190, 190))]  # 80 in a fast phase
    winner = choose_winner(fast + slow)
    assert winner.config == C
    assert winner.median_ns == 80
    assert choose_winner([dataclasses.replace(one, reference=None) for one in fast + slow]).config == B


def test_a_reference_that_was_measured_beside_another_counts_for_what_it_took_then():
    root = trial(A, 1000, beside=(1000,))
    chained = trial(B, 180, beside=(1800,))  # in a slow phase: 100
    beside_b = [trial(C, 171, beside=(180,), reference=B), trial(D, 180, beside=(180,), reference=B)]
    scales = Scales([root, chained, *beside_b])
    assert scales.time_ns(ReferenceSamples(B, (180,))) == 100
    assert scales.samples(beside_b[0]) == (95,)
    # References measured beside one another have times, too, and the same ones whichever is asked for first.
    circle = [trial(A, 100, beside=(50,), reference=B), trial(B, 60, beside=(100,), reference=A)]
    held = [ReferenceSamples(config, (1,)) for config in (A, B)]
    first, second = Scales(circle), Scales(circle)
    assert [first.time_ns(one) for one in held] == [second.time_ns(one) for one in reversed(held)][::-1]


def test_a_config_that_is_much_faster_takes_the_place_of_the_reference():
    scales, reference = Scales([]), None
    for one, expected in (
        (trial(A, 100), None),  # its evaluator measures no reference
        (trial(A, 1000, beside=(1000,)), ReferenceConfig(A, 1000)),
        (trial(B, 900, beside=(1000,)), ReferenceConfig(A, 1000)),
        (trial(C, 500, beside=(1000,)), ReferenceConfig(C, 500)),
    ):
        scales.add(one)
        reference = successor(reference, one, scales)
        assert reference == expected


def test_drift_of_the_reference_lets_more_configs_into_the_comparison():
    calm = [trial(config, *[time] * 9, beside=[100] * 9) for config, time in ((A, 100), (B, 125), (C, 130), (D, 140))]
    assert finalists(calm, 2) == ()
    wild = [*calm[:2], trial(C, *[260] * 9, beside=[200] * 9), trial(D, *[280] * 9, beside=[200] * 9)]
    assert set(finalists(wild, 2)) >= {A, B}


def test_pairs_cancel_what_all_rounds_have_and_slow_rounds_say_nothing():
    chance = Random(1)
    level = [chance.choice((1000, 1000, 2500)) for _ in range(120)]
    # In slow rounds B is the faster one, in quick ones A.
    samples = {
        A: [one if one == 1000 else 3000 for one in level],
        B: [one * 103 // 100 for one in level],
    }
    ranking = standings(compared(samples))
    assert [one.config for one in ranking] == [A, B]
    assert (ranking[0].time.median_ns, ranking[1].time.median_ns) == (1000, 1030)
    assert undecided(compared(samples)) == ()


def test_comparisons_on_different_days_are_not_mixed():
    first = compared({A: [1000] * 20, B: [1050] * 20})
    second = compared({B: [525] * 20, C: [520] * 20})  # all is twice as fast: C is 1 % faster than B, 4 % slower than A
    winner = choose_winner([*first, *second])
    assert winner.config == A
    assert [one.config for one in winner.runners_up] == [C, B]
    pools = {}
    for one in (*first, *second):
        pools.setdefault(one.config.order_key, []).append(one)
    rounds = Rounds(pools)
    assert rounds.middle(B.order_key, A.order_key) == 1_050_000
    assert rounds.middle(C.order_key, A.order_key) == 990_476 * 1_050_000 // 1_000_000


def test_noise_keeps_a_comparison_open():
    chance = Random(2)
    open_ = compared({config: [chance.randint(1000, 1600) for _ in range(8)] for config in (A, B)})
    assert set(undecided(open_)) == {A, B}
    equal = compared({config: [1000 + number % 3 for number in range(40)] for config in (A, B)})
    assert undecided(equal) == (), "known to be equal"


samples = st.lists(st.integers(900, 1200), min_size=6, max_size=6)
trials = st.builds(
    lambda config, taken, beside, reference: trial(config, *taken, beside=beside, reference=reference),
    st.sampled_from([A, B, C, D]),
    samples,
    st.none() | samples,
    st.sampled_from([A, B, C]),
)
comparisons = st.dictionaries(st.sampled_from([A, B, C, D]), samples, min_size=1).map(compared)


@given(st.lists(trials, min_size=1, max_size=12), st.lists(comparisons, max_size=3), st.randoms())
def test_the_winner_depends_on_the_set_of_trials_alone(searched, finals, chance):
    known = [*searched, *(one for each in finals for one in each)]
    other = [*known, chance.choice(known)]
    chance.shuffle(other)
    assert choose_winner(known) == choose_winner(other)
    assert finalists(known, 3) == finalists(other, 3)
    assert doubt(known) == doubt(other)


class Clock:
    """A timer that adds up what launches say."""

    def elapsed_ns(self, launch, repeats):
        return sum(launch() for _ in range(repeats))


POLICY = MeasurePolicy("made-up/1", warmup_ns=1_000_000, target_ns=10_000_000, min_samples=3, window_ns=0)


@pytest.mark.parametrize(
    ("own_ns", "reference_ns"), [(50_000, 50_000), (50_000, 5_000_000), (5_000_000, 50_000), (3_000_000, 3_000_000)]
)
def test_the_reference_takes_little_of_the_time(own_ns, reference_ns):
    spent = {"own": 0, "reference": 0}

    def launch(name, time_ns):
        def run():
            spent[name] += time_ns
            return time_ns

        return Contender(run)

    timing = measure(
        launch("own", own_ns), Clock(), POLICY, beside=PairedReference(launch("reference", reference_ns), 1)
    )
    assert 3 <= len(timing.reference) <= len(timing.samples)
    assert spent["reference"] <= max(spent["own"] // 4, 6 * reference_ns, 2 * POLICY.warmup_ns)


def test_a_contender_is_not_dropped_for_a_slow_phase():
    best_ns, reference = 10_000, 20_000
    slow = Contender(lambda: 18_000)  # as fast as the best one, 1.8 times slower like the reference
    alone = measure(slow, Clock(), POLICY, best_ns=best_ns)
    beside = measure(
        slow, Clock(), POLICY, best_ns=best_ns, beside=PairedReference(Contender(lambda: 36_000), reference)
    )
    assert len(alone.samples) < len(beside.samples) == POLICY.max_samples
    assert counted_samples(beside.samples, beside.reference, reference)[0] == best_ns


class Sides(FakeEvaluator):
    """Measures beside a reference; the machine is twice as slow while the ``slow`` configs are measured."""

    def __init__(self, *given, slow=(), **options):
        super().__init__(*given, **options)
        self.slow = slow
        self.references = []

    def evaluate(self, config, reference=None):
        made = super().evaluate(config)
        factor = 2 if config in self.slow else 1
        self.references.append(reference and reference.config)
        other = config if reference is None else reference.config
        beside = tuple(one * factor for one in self._landscape.samples(other, self._samples, "beside"))
        samples = tuple(one * factor for one in made.samples_ns)
        held = ReferenceSamples(other, samples if reference is None else beside)
        return dataclasses.replace(made, samples_ns=samples, reference=held)


SPACE = [Config.of(BLOCK=32 << place) for place in range(8)]
LANDSCAPE = FakeLandscape(seed=4, noise_permille=5)


def test_a_session_that_goes_on_keeps_the_reference():
    best = LANDSCAPE.best(SPACE)
    records = MemoryStore().records
    first = Sides(STUDY, LANDSCAPE, slow=[best])
    tune(STUDY, SPACE, first, records, searcher="exhaustive", finalists=0)
    assert first.references[0] is None
    assert set(first.references[1:]) <= set(SPACE)
    again = Sides(STUDY, LANDSCAPE)
    more = [*SPACE, Config.of(BLOCK=7)]
    outcome = tune(STUDY, more, again, records, searcher="exhaustive", finalists=0)
    assert again.references == [first.references[-1]]
    assert outcome.require_winner().config == LANDSCAPE.best(more)


def test_measuring_anew_supersedes_and_loses_nothing():
    records = MemoryStore().records
    noisy = FakeEvaluator(STUDY, FakeLandscape(seed=9))
    before = tune(STUDY, SPACE, noisy, records, searcher="exhaustive")
    lines = list(records.read(STUDY.key))
    after = tune(STUDY, SPACE, Sides(STUDY, LANDSCAPE), records, searcher="exhaustive", remeasure=True)
    assert (after.measured, after.reused) == (len(SPACE), 0)
    assert after.require_winner().config == LANDSCAPE.best(SPACE) != before.require_winner().config
    assert list(records.read(STUDY.key))[: len(lines)] == lines, "records are only ever added"
    assert {one.identity for one in read_trials(STUDY, records)} == {one.identity for one in after.trials}
    third = tune(STUDY, SPACE, Sides(STUDY, LANDSCAPE), records, searcher="exhaustive")
    assert (third.measured, third.winner) == (0, after.winner)


def test_a_session_that_measures_anew_and_is_killed_goes_on():
    records = MemoryStore().records
    landscape = FakeLandscape(seed=4, failing_permille=300)  # equal trials and equal failures as the first time
    whole = tune(STUDY, SPACE, FakeEvaluator(STUDY, landscape), records, searcher="exhaustive")
    tune(STUDY, SPACE, FakeEvaluator(STUDY, landscape), records, searcher="exhaustive", remeasure=True)
    again = FakeEvaluator(STUDY, landscape)
    outcome = tune(STUDY, SPACE, again, records, searcher="exhaustive")
    assert again.evaluated == []
    assert outcome.failures == whole.failures
    assert outcome.require_winner().config == whole.require_winner().config


def test_events_and_trials_may_arrive_in_any_order():
    old, new = trial(A, 100), trial(B, 200, beside=(200,), reference=B)
    lines = [trials_to_record([old]), superseding_record([old.fingerprint]), trials_to_record([new])]
    for order in (lines, lines[::-1], [lines[1], lines[0], lines[2]]):
        records = MemoryStore().records
        for line in order:
            records.append(STUDY.key, line)
        assert read_trials(STUDY, records) == (new,)
    bad = MemoryStore().records
    bad.append(STUDY.key, trials_to_record([old]))
    bad.append(STUDY.key, {"schema": "superseded/1", "trials": ["no fingerprint"]})
    ledger = Ledger(STUDY, bad)
    assert ledger.trials == (old,)
    assert any("skipped" in note for note in ledger.notes)


def test_two_machines_with_the_same_records_agree():
    here, there = MemoryStore().records, MemoryStore().records
    tune(STUDY, SPACE, Sides(STUDY, LANDSCAPE, slow=SPACE[:3]), here, searcher="exhaustive")
    tune(STUDY, SPACE, Sides(STUDY, LANDSCAPE, slow=SPACE[4:]), there, searcher="random", remeasure=True)
    merged = [*here.read(STUDY.key), *there.read(STUDY.key)]
    found = []
    for order in (merged, merged[::-1]):
        records = MemoryStore().records
        for line in order:
            records.append(STUDY.key, line)
        found.append(choose_winner(read_trials(STUDY, records)))
    assert found[0] == found[1]
    assert found[0].config == LANDSCAPE.best(SPACE)


def test_what_is_doubtful_is_named():
    assert doubt([]) == doubt([trial(A, 100)]) == ""
    plain = [trial(A, *[100] * 9), trial(B, *[110] * 9)]
    assert doubt(plain).startswith("nothing was measured beside a reference config")
    assert doubt(plain).endswith(REMEDY)
    steady = [trial(A, *[100] * 9, beside=[100] * 9), trial(B, *[150] * 9, beside=[100] * 9)]
    assert doubt(steady) == ""
    drifted = [steady[0], trial(B, *[180] * 9, beside=[160] * 9)]
    assert "12.0 % behind" in doubt(drifted)
    assert "drifted by 60.0 %" in doubt(drifted)
    assert doubt([*steady, trial(C, *[150] * 9)]).startswith("1 config was measured without a reference")
    chance = Random(2)
    noisy = compared({config: [chance.randint(1000, 1600) for _ in range(8)] for config in (A, B)})
    assert "did not settle" in doubt([*steady, *noisy])
    assert all(one.stage is Stage.FINAL for one in noisy)


def test_one_quick_sample_is_enough_for_a_comparison_on_a_restless_machine():
    """Stands for configs whose samples were preempted: other work makes samples longer and never shorter."""
    slow = [trial(C, *[260] * 9, beside=[200] * 9), trial(D, *[280] * 9, beside=[200] * 9)]
    preempted = trial(B, 97, *[400] * 8, beside=[100] * 9)
    found = finalists([trial(A, *[100] * 9, beside=[100] * 9), preempted, *slow], 2)
    assert {A, B} <= set(found)

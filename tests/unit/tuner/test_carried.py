"""Trials of an earlier compiler: which count, what they predict, and which study they are of."""

from dataclasses import replace

import pytest

from fake_backend.measure import fake_study
from silo.core.config import Config, ConfigSet
from silo.measuring.earlier_studies import (
    EarlierStudy,
    carried_before,
    carried_trials,
    differing_in_compiler,
    earlier_studies,
)
from silo.store.store import MemoryStore
from silo.tuner.ledger import Ledger, read_trials
from silo.tuner.refine import ReachableConfigs
from silo.tuner.trial import ReferenceSamples, Stage, Status

A, B, C, D, E, F = CONFIGS = [Config.of(BLOCK=1 << power) for power in range(6, 12)]
NOW = fake_study(compiler="cc 2")
BEFORE = fake_study(compiler="cc 1")


def searched(config, time_ns, artifact, reference=None, study=BEFORE):
    beside = None if reference is None else ReferenceSamples(reference, (100,) * 3)
    return study.trial(config, Status.OK, (time_ns,) * 3, artifact=artifact, reference=beside)


def earlier(*trials):
    return EarlierStudy(BEFORE, trials)


def test_an_earlier_study_differs_in_the_compiler_alone():
    others = [
        fake_study(compiler="cc 1", n=1 << 10),
        fake_study(compiler="cc 1", policy="other/1"),
        fake_study("mul", compiler="cc 1"),
        fake_study(compiler="cc 1", driver="cuda 13000"),
        NOW,
    ]
    assert differing_in_compiler(NOW, [*others, BEFORE, fake_study(compiler="cc 0")]) == (
        BEFORE,
        fake_study(compiler="cc 0"),
    )


def test_a_trial_counts_if_its_code_and_its_references_code_are_the_same():
    reference = searched(A, 100, "a", A)
    trials = (reference, searched(B, 90, "b", A), searched(C, 80, "c", B), searched(D, 70, "d"))
    assert carried_trials(trials, {"a": "a2", "b": "b2", "c": "c2", "d": "d2"}) == tuple(
        replace(one, artifact=f"{one.artifact}2") for one in trials
    )
    assert [one.config for one in carried_trials(trials, {"a": "a2", "b": "b2"})] == [A, B]
    assert [one.config for one in carried_trials(trials, {"b": "b2", "c": "c2", "d": "d2"})] == [C, D]
    assert carried_trials(trials, {}) == ()


def test_what_was_carried_before_is_known_by_its_trials():
    trials = (searched(A, 100, "a"), searched(B, 90, "b"))
    carried = carried_trials(trials, {"a": "a2"})
    assert carried_before(trials, (*carried, searched(B, 70, "b2", study=NOW))) == {"a": "a2"}
    assert carried_before(trials, ()) == {}


def test_a_failure_of_the_same_code_counts_and_one_of_compiling_does_not():
    wrong = BEFORE.failed(A, Status.WRONG, "other numbers", artifact="a")
    refused = BEFORE.failed(B, Status.COMPILE, "refused")
    assert [one.config for one in carried_trials((wrong, refused), {"a": "a2"})] == [A]


def test_a_carried_trial_names_the_compiler_that_it_was_made_with():
    (found,) = carried_trials((searched(A, 100, "a"),), {"a": "a2"})
    assert dict(found.tools)["compiler"] == "cc 1"
    assert NOW.refuses(found) == ""


def test_contenders_are_the_winner_and_its_nearest_rivals():
    rows = [searched(config, 100 + 10 * place, f"{place}", F) for place, config in enumerate(CONFIGS)]
    study = earlier(*rows)
    assert study.contenders == (A, B, C, D)
    assert study.decisive == (A, B, C, D, F)  # F is the reference of the others
    assert study.ranking == (A, B, C, D, E, F)
    assert study.artifacts_of(B) == ("1",)
    assert earlier(BEFORE.failed(A, Status.RUN, "no")).contenders == ()


def test_configs_that_are_out_of_reach_do_not_count():
    records = MemoryStore().records
    Ledger(BEFORE, records).keep([searched(A, 50, "a"), searched(B, 90, "b"), searched(C, 95, "c")])
    (found,) = earlier_studies(NOW, records, ReachableConfigs(ConfigSet([B, C])))
    assert found.contenders == (B, C)
    assert earlier_studies(NOW, records, ReachableConfigs(ConfigSet([D]))) == ()


def test_the_study_that_was_begun_last_comes_first():
    records = MemoryStore().records
    studies = [fake_study(compiler=f"cc 1.{number}") for number in range(6)]
    for study in studies:
        Ledger(study, records).keep([searched(A, 50, "a", study=study)])
    found = [one.study for one in earlier_studies(NOW, records, ReachableConfigs(ConfigSet([A])))]
    assert found == [studies[5], studies[4], studies[3]]


def test_what_was_superseded_is_not_taken_over_again():
    records = MemoryStore().records
    trials = (searched(A, 50, "a"), searched(B, 60, "b"))
    ledger = Ledger(NOW, records)
    assert ledger.take_over(trials) == 2
    assert ledger.take_over(trials) == 0
    ledger.supersede()
    assert ledger.take_over(trials) == 0
    assert Ledger(NOW, records).take_over(trials) == 0
    assert read_trials(NOW, records) == ()


@pytest.mark.parametrize("stage", Stage)
def test_comparisons_are_carried_with_their_rounds(stage):
    trials = tuple(
        replace(one, stage=stage, comparison="c" * 16 if stage is Stage.FINAL else "")
        for one in (searched(A, 50, "a"), searched(B, 60, "b"))
    )
    assert [one.stage for one in carried_trials(trials, {"a": "x", "b": "y"})] == [stage, stage]
    winner = EarlierStudy(NOW, carried_trials(trials, {"a": "x", "b": "y"})).winner
    assert (winner.config, winner.artifact) == (A, "x")

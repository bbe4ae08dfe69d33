"""Many processes on one store, and processes killed at any moment: no torn record, no lost trial, one winner."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("fcntl", reason="processes are forked")

import tune_worker

from fake_backend.measure import FakeEvaluator
from repetitions import repetitions
from silo.store.store import MemoryStore, Store
from silo.tuner.ledger import Ledger, studies_of
from silo.tuner.trial import Stage
from silo.tuner.winner import choose_winner
from tuning_samples import tune

ROOT = Path(__file__).parents[2]
SOURCES = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "samples")])


def run_worker(*arguments):
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    command = [sys.executable, tune_worker.__file__, *(str(argument) for argument in arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "the store complained"
    return json.loads(done.stdout)


def undisturbed(kind):
    study, space, landscape = tune_worker.problem(kind)
    return tune(study, space, FakeEvaluator(study, landscape), MemoryStore().records, searcher="exhaustive")


def read_whole(directory, kind):
    """The trials in the store; fails on any damaged record. Every line of the file is accounted for."""
    study, space, _ = tune_worker.problem(kind)
    records = Store(directory).records
    ledger = Ledger(study, records)
    assert ledger.notes == ()
    lines = (directory / "records" / f"{study.key}.jsonl").read_bytes().splitlines()
    assert len(lines) == len(list(records.read(study.key)))
    return study, space, ledger.trials


def searched(trials):
    return Counter(trial.config for trial in trials if trial.stage is Stage.SEARCH)


def test_sixteen_processes_at_once(tmp_path, caplog):
    results = run_worker("many", tmp_path, 16)
    study, space, trials = read_whole(tmp_path, "wide")
    expected = undisturbed("wide")
    winner = expected.require_winner().config

    assert results["codes"] == [0] * 16
    assert results["winners"] == [[space.index(winner)]] * 16
    assert set(searched(trials)) == set(space)
    assert set(trials) == set(expected.trials)
    assert choose_winner(trials) == expected.winner

    moved = tmp_path.with_name("moved")
    shutil.move(tmp_path, moved)
    evaluator = FakeEvaluator(study, tune_worker.problem("wide")[2])
    again = tune(study, space, evaluator, Store(moved).records, searcher="exhaustive")
    assert evaluator.evaluated == evaluator.compared == []
    assert again.winner == expected.winner
    assert not caplog.records


# SILO_TEST_KILLS=200 takes eight times as long.
KILLS = repetitions("SILO_TEST_KILLS", 25, 50)


def test_kills_at_random_moments_lose_only_the_trial_in_flight(tmp_path, caplog):
    results = run_worker("kill", tmp_path, 20_260_101, KILLS)
    # Nearly all were hit while at work; a process that was done already exits by itself.
    assert len(results["codes"]) == KILLS
    assert results["codes"].count(-9) >= KILLS * 7 // 10
    assert set(results["codes"]) <= {-9, 0}
    vast, *_ = plan = tune_worker.killed(KILLS)
    for kind in plan:
        if not results["kept"][kind]:
            continue  # hit before anything was finished
        study, space, trials = read_whole(tmp_path, kind)
        known = searched(trials)
        lost = [number for number in results["kept"][kind] if space[number] not in known]
        assert lost == []
        # A trial is kept before it is reported, so each kill may have come between, once.
        assert len(known) - len(results["kept"][kind]) <= plan[kind]
        assert studies_of(study.kernel, Store(tmp_path).records) == (study,)

        evaluator = FakeEvaluator(study, tune_worker.problem(kind)[2])
        resumed = tune(study, space, evaluator, Store(tmp_path).records, searcher="exhaustive")
        assert resumed.measured == len(space) - len(known)
        assert set(evaluator.evaluated).isdisjoint(known)
        expected = undisturbed(kind)
        assert resumed.winner == expected.winner
        assert set(resumed.trials) == set(expected.trials)
        _, _, all_trials = read_whole(tmp_path, kind)
        assert choose_winner(reversed(all_trials)) == expected.winner
    assert len(results["kept"][vast]) > 2 * KILLS  # every process that was killed had done something
    # A lock file holds what was reported as written, and at most the update in flight besides.
    assert all(reported <= there <= reported + 1 for reported, there in results["locked"])
    assert not caplog.records

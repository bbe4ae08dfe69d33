"""Ctrl-C, as a terminal sends it, during a tune."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import tune_worker

from fake_backend.measure import FakeEvaluator
from silo.store.store import Store
from silo.tuner.ledger import read_trials
from tuning_samples import tune

PROGRAM = """
import sys
from pathlib import Path
import tune_worker
from silo.tuner.session_values import TuneInterrupted
try:
    tune_worker.work(Path(sys.argv[1]), "vast-720", 0.01, 1)
except TuneInterrupted as interrupt:
    print(interrupt, file=sys.stderr)
    sys.exit(130)
"""


def test_ctrl_c_keeps_what_was_finished(tmp_path):
    here = Path(__file__).parent
    search = os.pathsep.join([str(here.parents[1] / "src"), str(here.parent / "samples"), str(here)])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        reported = [process.stdout.readline() for _ in range(5)]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=240)
    assert process.returncode == 130, errors
    # One line for people, and no traceback.
    assert errors.count("\n") == 1
    assert "interrupted, the next run goes on from here" in errors

    study, space, landscape = tune_worker.problem("vast-720")
    kept = {trial.config for trial in read_trials(study, Store(tmp_path).records)}
    finished = {space[int(line)] for line in "".join([*reported, rest]).split()}
    assert len(finished) >= 5
    # A trial is kept before it is reported, so the signal may have come between.
    assert finished <= kept
    assert len(kept - finished) <= 1
    evaluator = FakeEvaluator(study, landscape)
    tune(study, space, evaluator, Store(tmp_path).records, searcher="exhaustive")
    assert kept.isdisjoint(evaluator.evaluated)
    assert len(evaluator.evaluated) == len(space) - len(kept)

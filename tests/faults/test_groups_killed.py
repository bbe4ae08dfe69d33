"""Processes that tune a space of groups and are killed: what was measured is never measured again."""

import os
import signal
import subprocess
import sys
from itertools import islice

import pytest

from fake_backend.measure import fake_study
from silo.store.store import Store
from silo.tuner.ledger import read_trials

pytestmark = pytest.mark.usefixtures("samples_in_processes")

PROGRAM = """
import sys
from pathlib import Path
from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.core.grouped_space import GroupedSpace
from silo.store.store import Store
from silo.tuner.session import tune

groups = tuple(tuple(Config.of({f"XBLOCK_{i}": 1 << p}) for p in range(6)) for i in range(4))
space = GroupedSpace(Config.of({f"XBLOCK_{i}": 1 for i in range(4)}), groups)

class Told(FakeEvaluator):
    def evaluate(self, config):
        print(config, flush=True)
        return super().evaluate(config)

evaluator = Told(fake_study(), FakeLandscape(noise_permille=3), delay_s=0.001)
outcome = tune(fake_study(), space, evaluator, Store(Path(sys.argv[1])).records)
print("winner", outcome.require_winner().config, flush=True)
"""


def start(folder):
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_loses_the_trial_in_flight_alone(tmp_path):
    with start(tmp_path / "whole") as calm:
        *whole, winner = calm.communicate()[0].splitlines()
    assert len(whole) == 1 + 4 * 5
    begun, lost, done = [], 0, []
    for _ in range(30):  # each gets some configs further
        with start(tmp_path / "killed") as child:
            lines = [line.strip() for line in islice(child.stdout, 4)]
            if lines and not lines[-1].startswith("winner"):
                os.kill(child.pid, signal.SIGKILL)
            lines += [line.strip() for line in child.stdout]
        done = [line for line in lines if line.startswith("winner")]
        begun += [line for line in lines if line not in done]
        if done:
            break
        kept = {str(trial.config) for trial in read_trials(fake_study(), Store(tmp_path / "killed").records)}
        assert set(begun[:-1]) <= kept, "all but the last were kept"
        lost += begun[-1] not in kept
    assert done == [winner]
    assert set(begun) == set(whole)
    assert len(begun) == len(whole) + lost

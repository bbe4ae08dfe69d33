"""What an evaluator does with configs that run: checks, times too good to be true, code that several configs share."""

from __future__ import annotations

import numpy as np
import pytest

from silo.artifacts.artifact import Artifact, BlobRef
from silo.core.config import Config
from silo.core.device import DeviceModel
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.variant import Variant
from silo.machine.device_plugins import device_named
from silo.measuring.evaluators import BenchEvaluator, KnownArtifacts
from silo.tuner.measure import Timing
from silo.tuner.result_check import ResultComparison
from silo.tuner.trial import Status, Study

SLOW, FAST, OTHER = (Config.of(BLOCK=block) for block in (16, 32, 64))


class Bench:
    """Answers with what it was given, in turn."""

    def __init__(self, times):
        self.times = {config: list(queue) for config, queue in times.items()}
        self.runs = []

    def start(self):
        pass

    def results(self, config, _artifact):
        self.runs.append(config)
        return {"out": np.full(1, len(self.runs))}  # no two results are the same bits

    def measure(self, config, _artifact, _best_ns, beside=None):
        queue = self.times[config]
        samples = (queue.pop(0) if len(queue) > 1 else queue[0],) * 9
        return Timing(samples, () if beside is None else (beside.reference.time_ns,) * 9)

    def compare(self, artifacts):
        return {config: self.measure(config, None, None).samples for config in artifacts}

    def close(self):
        pass


def evaluator(bench, *, verdicts=(True,), same_code=False, spills=None):
    target = device_named("cpu").target
    study = Study(
        "k", "0" * 64, Signature(()), Specialization(), target, "c", (), (), DeviceModel("v", "d", "", 1, 1), "p"
    )
    artifacts = {
        config.order_key: Artifact(
            Variant("k", "0" * 64, Signature(()), Specialization(), config, target),
            LaunchInfo("k", (), spills=spills),
            BlobRef("0" * 64 if same_code else f"{number:064x}", "so", 1),
            (),
            "cc",
            "job",
        )
        for number, config in enumerate((SLOW, FAST, OTHER))
    }
    queue = list(verdicts)

    def check(_results):
        return ResultComparison(ok=queue.pop(0) if len(queue) > 1 else queue[0], max_error=0.0, message="differs")

    return BenchEvaluator(study, KnownArtifacts(artifacts), bench, check, [SLOW, FAST, OTHER])


def test_a_time_that_is_too_good_is_taken_twice_and_the_second_counts():
    bench = Bench({SLOW: [900], FAST: [300, 880]})
    made = evaluator(bench)
    assert made.evaluate(SLOW).samples_ns == (900,) * 9
    trial = made.evaluate(FAST)
    assert trial.samples_ns == (880,) * 9
    assert trial.message == "measured twice: the first time was not repeated"
    assert bench.runs == [SLOW, FAST, FAST]


def test_a_time_that_is_good_twice_is_believed():
    bench = Bench({SLOW: [900], FAST: [300, 310]})
    made = evaluator(bench)
    made.evaluate(SLOW)
    trial = made.evaluate(FAST)
    assert (trial.samples_ns[0], trial.message) == (310, "")


def test_a_fast_config_whose_result_is_wrong_the_second_time_is_wrong():
    made = evaluator(Bench({SLOW: [900], FAST: [300]}), verdicts=[True, True, False])
    made.evaluate(SLOW)
    trial = made.evaluate(FAST)
    assert (trial.status, trial.samples_ns, trial.message) == (Status.WRONG, (), "differs")


def test_configs_of_the_same_code_are_one_measurement():
    made = evaluator(Bench({SLOW: [900], FAST: [100]}), same_code=True)
    made.evaluate(SLOW)
    trial = made.evaluate(FAST)
    assert trial.samples_ns == (900,) * 9
    assert trial.message == f"the same code as {SLOW}"


@pytest.mark.parametrize("verdicts", [(False,)])
def test_a_wrong_result_is_never_timed(verdicts):
    bench = Bench({SLOW: [900]})
    trial = evaluator(bench, verdicts=verdicts).evaluate(SLOW)
    assert trial.status is Status.WRONG
    assert bench.times[SLOW] == [900]


@pytest.mark.parametrize(("spills", "kept"), [(None, ()), (0, ()), (40, (("spills", 40),))])
def test_spills_are_the_binarys_known_before_anything_runs(spills, kept):
    bench = Bench({SLOW: [900]})
    made = evaluator(bench, spills=spills)
    assert made.spills(SLOW) == spills
    assert bench.runs == []
    assert made.evaluate(SLOW).resources == (("shared_bytes", 0), *kept, ("threads", 1))

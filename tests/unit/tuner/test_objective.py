"""Objectives: winners by any metric among the configs that meet constraints, a pure function of trials."""

import itertools
import random
from dataclasses import replace as data_replace

import pytest

from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.core.dispatch import DispatchRules
from silo.errors import DeviceError, TuneError
from silo.frozen import replace
from silo.measuring.device_energy import measure_energy
from silo.store.records import MemoryRecords as Records
from silo.tuner.ledger import read_trials
from silo.tuner.lock import LockEntry, choose
from silo.tuner.loss_model import Sample
from silo.tuner.measure import Contender
from silo.tuner.objective import TIME, Constraint, Objective
from silo.tuner.statistics import Estimate
from silo.tuner.trial import Status, Trial
from silo.tuner.winner import choose_winner
from tuning_samples import tune

STUDY = fake_study()
SPACE = [Config.of(BLOCK=1 << power, num_warps=warps) for power in range(5, 11) for warps in (2, 4)]
A, B, C = (Config.of(BLOCK=block) for block in (64, 128, 256))


def trial(config, time_ns, registers, energy=(), **metrics):
    samples = [time_ns + step for step in range(9)]
    found = {**({"energy": tuple(map(float, energy))} if energy else {}), **metrics}
    return STUDY.trial(
        config,
        Status.OK,
        samples,
        artifact=f"of {config}",
        resources=(("registers", registers), ("shared_bytes", 1024), ("threads", 128)),
        metrics=tuple(sorted(found.items())),
    )


# A is the fastest, B the middle in all, C the slowest and uses least energy.
TRIALS = [
    trial(A, 1000, 80, [900.0, 901.0, 902.0]),
    trial(B, 2000, 40, [700.0, 701.0, 702.0]),
    trial(C, 3000, 32, [400.0, 401.0, 402.0]),
]


@pytest.mark.parametrize(
    ("objective", "winner"),
    [
        (TIME, A),
        (Objective.of("energy"), C),
        (Objective.of("energy", ["time<=2500"]), B),
        (Objective.of("time", ["registers<=40"]), B),
        (Objective.of("registers"), C),
        (Objective.of("registers", ["energy>=500"]), B),
        (Objective.of("memory"), A),  # equal: the fastest
        (Objective.of("time", ["registers<=16"]), None),
        (Objective.of("error"), None),  # no trial has it
    ],
)
def test_the_winner_of_each_objective(objective, winner):
    found = choose_winner(TRIALS, objective)
    assert (None if found is None else found.config) == winner
    for order in itertools.permutations(TRIALS):
        assert choose_winner([*order, order[0]], objective) == found
    if found is not None:
        assert found.objective == objective
        assert len(found.runners_up) == sum(not objective.unmet([one]) for one in TRIALS) - 1


def test_the_reason_names_what_decided():
    assert choose_winner(TRIALS, Objective.of("energy", ["registers<=40"])).reason == (
        "least energy, 401 nJ, of 2 configs that meet registers<=40"
    )
    assert choose_winner(TRIALS, Objective.of("time", ["registers<=40"])).reason == (
        "fastest of 2 configs; of 3 that work only these meet registers<=40"
    )


def test_noise_in_a_metric_is_a_tie_which_fewer_resources_win():
    noisy = [
        trial(A, 1000, 80, [400.0, 500.0, 600.0]),
        trial(B, 2000, 40, [401.0, 501.0, 601.0]),
    ]
    found = choose_winner(noisy, Objective.of("energy"))
    assert found.config == B
    assert "2 are equal in it" in found.reason


def test_a_metric_with_zeros_is_ranked():
    zeros = [trial(A, 1000, 80, error=(0.0,)), trial(B, 900, 80, error=(0.5,)), trial(C, 800, 8, error=(0.0,))]
    assert choose_winner(zeros[:2], Objective.of("error")).config == A
    assert choose_winner([replace(one, metrics=(("error", (0.0,)),)) for one in zeros], Objective.of("error"))


def test_more_gflops_are_better():
    flops = [trial(A, 1000, 80, gflops=(3.0,)), trial(B, 900, 80, gflops=(9.0,))]
    found = choose_winner(flops, Objective.of("gflops"))
    assert found.config == B
    assert found.reason.startswith("most gflops, 9 GFLOP/s")


def test_a_config_that_fails_meets_nothing():
    failed = [*TRIALS, STUDY.failed(C, Status.WRONG, "it is wrong")]
    assert choose_winner(failed, Objective.of("energy")).config == B


def test_a_refusal_names_the_nearest_value():
    objective = Objective.of("time", ["registers<=16", "error<=1"])
    assert objective.refusal(TRIALS) == (
        "none of the 3 configs that work meets the objective (time, error<=1, registers<=16): error<=1: the value of "
        f"no config is known; registers<=16: 0 of 3 configs meet it; the least is 32, of {C}"
    )
    assert Objective.of("time", ["registers<=32"]).refusal(TRIALS) == ""


@pytest.mark.parametrize("text", ["registers<40", "registers<=", "<=4", "registers<=four", "registers<=1e999", ""])
def test_bad_constraints_are_refused(text):
    with pytest.raises(TuneError, match="registers<=40"):
        Constraint.parse(text)


def test_objectives_survive_text():
    for objective in (TIME, Objective.of("energy", ["time<=2.5e6", "registers<=40"])):
        assert Objective.parse(str(objective)) == objective
    assert Objective.of("time", ["a<=1", "b<=2"]) == Objective.of("time", ["b<=2", "a<=1"])


def members(value):
    document = value.to_json()
    assert isinstance(document, dict)
    return document


def test_trials_keep_the_samples_of_each_metric():
    assert Trial.from_json(TRIALS[0].to_json()) == TRIALS[0]
    assert "metrics" not in members(trial(A, 1, 1)), "trials of earlier versions have the same bytes"


class Metered(FakeEvaluator):
    """Measures an error besides the time: the slower the config, the smaller."""

    def evaluate(self, config, reference=None):
        found = super().evaluate(config, reference)
        return replace(found, metrics=(("error", (1e6 / found.samples_ns[0],)),)) if found.samples_ns else found


def test_a_session_measures_again_what_lacks_the_metric_and_no_more():
    records, landscape = Records(), FakeLandscape(failing_permille=200)
    tune(STUDY, SPACE, FakeEvaluator(STUDY, landscape), records)
    objective = Objective.of("error")
    failed = {one.config for one in read_trials(STUDY, records) if one.status is not Status.OK}
    outcome = tune(STUDY, SPACE, Metered(STUDY, landscape), records, objective=objective)
    assert outcome.measured == len(SPACE) - len(failed) > 0
    slowest = max((one for one in outcome.trials if one.samples_ns), key=lambda one: one.samples_ns[0])
    assert outcome.require_winner().config == slowest.config
    again = tune(STUDY, SPACE, Metered(STUDY, landscape), records, objective=objective)
    assert (again.measured, again.winner) == (0, outcome.winner)
    plain = tune(STUDY, SPACE, FakeEvaluator(STUDY, landscape), records)
    assert plain.measured == 0, "its trials serve the default objective"


def test_a_search_under_a_constraint_finds_its_optimum():
    landscape = FakeLandscape()
    limit = sorted(landscape.time_ns(config) for config in SPACE)[len(SPACE) // 2]
    objective = Objective.of("time", [f"time>={limit}"])
    outcome = tune(STUDY, SPACE, FakeEvaluator(STUDY, landscape), Records(), objective=objective)
    assert outcome.require_winner().config == min(
        (config for config in SPACE if landscape.time_ns(config) >= limit), key=landscape.time_ns
    )


def test_a_constraint_that_no_config_meets_is_an_error():
    outcome = tune(
        STUDY, SPACE, Metered(STUDY, FakeLandscape()), Records(), objective=Objective.of("time", ["error<=0"])
    )
    with pytest.raises(TuneError, match=r"error<=0: 0 of 12 configs meet it; the least is"):
        outcome.require_winner()


def test_rules_are_fitted_to_the_costs_of_the_objective():
    sample = Sample.of_trials((1,), TRIALS, Objective.of("energy"))
    assert sample.winner == C
    assert dict(sample.times)[B] == pytest.approx(dict(sample.times)[C] * 701 / 401, rel=1e-4)
    assert [config for config, _ in Sample.of_trials((1,), TRIALS, Objective.of("time", ["registers<=40"])).times] == [
        B,
        C,
    ]


def test_locks_and_rules_name_the_objective():
    rules = DispatchRules.of(["n"], {(1,): A}, A, objective="energy, registers<=40")
    assert DispatchRules.from_json(rules.to_json()) == rules
    assert "objective" not in members(DispatchRules.of(["n"], {(1,): A}, A))
    entry = LockEntry(STUDY, A, Estimate(5, 4, 6, 9), "why", "energy")
    assert LockEntry.from_json(entry.to_json()) == entry
    assert "objective" not in members(data_replace(entry, objective=""))


def test_a_deployed_config_stays_while_it_ties_in_the_metric():
    energy = Objective.of("energy")
    assert choose(TRIALS, A, objective=energy).config == C
    noisy = [trial(A, 1000, 80, [400.0, 500.0, 600.0]), trial(B, 2000, 40, [401.0, 501.0, 601.0])]
    assert choose(noisy, A, objective=energy).config == A
    assert choose(TRIALS, A, objective=Objective.of("time", ["registers<=40"])).config == B


class Meter:
    """A device whose launch takes ``launch_ns`` at some watts, and whose counter advances every ``step_ns``."""

    def __init__(self, launch_ns, watts, step_ns):
        self.now = random.Random(launch_ns).randrange(step_ns)
        self.launch_ns, self.watts, self.step_ns = launch_ns, watts, step_ns
        self.launches = 0

    def launch(self):
        self.launches += 1
        self.now += self.launch_ns

    def millijoules(self):
        return self.now // self.step_ns * self.step_ns * self.watts // 1_000_000

    def measured(self, **more):
        return measure_energy(Contender(self.launch, **more), self, lambda: None, self.launch_ns, lambda: self.now)


@pytest.mark.parametrize("step_ms", [1, 20, 100])
@pytest.mark.parametrize("launch_ns", [3_000, 200_000, 40_000_000])
def test_energy_is_power_times_time_whatever_the_steps_of_the_counter(launch_ns, step_ms):
    meter = Meter(launch_ns, 500, step_ms * 1_000_000)
    taken = meter.measured()
    assert len(taken) == 3
    # a batch of launches may end after the step: two milliseconds, or a launch, in half a second
    assert taken == pytest.approx([launch_ns * 500.0] * 3, rel=max(0.02, 2 * launch_ns / 5e8))
    assert meter.now >= 1_500_000_000


def test_arguments_are_restored_before_each_launch():
    resets = []
    meter = Meter(1_000_000, 100, 20_000_000)
    meter.measured(reset=lambda: resets.append(1))
    assert len(resets) == meter.launches


def test_a_counter_that_stays_or_runs_backwards_is_refused():
    meter = Meter(1_000_000, 0, 20_000_000)
    with pytest.raises(DeviceError, match="stays at 0 mJ"):
        meter.measured()
    backwards = Meter(1_000_000, 100, 20_000_000)
    counts = iter(range(1000, 0, -1))
    backwards.millijoules = lambda: next(counts)
    with pytest.raises(DeviceError, match="ran backwards, from 1000 to 999 mJ"):
        backwards.measured()

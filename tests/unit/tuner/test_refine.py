"""Refinements: which configs measurements suggest besides a space, and what becomes of them."""

from __future__ import annotations

import pytest

from fake_backend.measure import fake_study
from silo.core.config import Config
from silo.errors import CompileError, LaunchError
from silo.store.store import MemoryStore
from silo.tuner.ledger import read_trials
from silo.tuner.refine import Occupancy, Refinement, Refiner, reason_of
from silo.tuner.session_values import Budget
from silo.tuner.trial import Status
from tuning_samples import tune

H100 = Occupancy(registers=65536, threads=2048, units=132, warp_size=32)
STUDY = fake_study("reduce")
WIDE = Config.of(XBLOCK=1, R0_BLOCK=2048, num_warps=16, num_stages=1)


def ok(config, registers, time_ns=100):
    return STUDY.trial(config, Status.OK, [time_ns] * 9, resources=(("registers", registers),))


def proposed(refiner, trials):
    return [str(one.config) for one in refiner.propose(trials)]


@pytest.mark.parametrize(
    ("registers", "programs", "scaled"),
    [
        (64, 4096, True),  # 2 blocks of 16 warps fit a multiprocessor: 264 of 4096 are resident
        (64, 264, False),  # all are
        (64, 265, True),
        (32, 4096, False),  # 65536 / 2048: the threads are the limit, not the registers
        (33, 4096, True),
        (64, None, False),  # a grid that nobody knows
    ],
)
def test_a_reduction_that_needs_too_many_registers_is_halved(registers, programs, scaled):
    refiner = Refiner((WIDE,), H100, lambda _: programs)
    expected = ["R0_BLOCK=1024, XBLOCK=1, num_stages=1, num_warps=16"] if scaled else []
    assert proposed(refiner, [ok(WIDE, registers)]) == expected


def test_why_is_said():
    (one,) = Refiner((WIDE,), H100, lambda _: 4096).propose([ok(WIDE, 64)])
    assert one.reason == f"R0_BLOCK halved to 1024: {WIDE} needs 64 registers, so 264 of 4096 blocks are resident"
    config = Config.of(BLOCK=64, num_stages=3)
    (one,) = Refiner((config,)).propose([STUDY.failed(config, Status.RUN, "too much shared memory")])
    assert one.reason == f"pipelining given up: nothing runs, {config} neither"


@pytest.mark.parametrize(
    "config",
    [
        Config.of(R0_BLOCK=64, num_warps=4),  # small already
        Config.of(R0_BLOCK=8, R1_BLOCK=8, num_warps=4),
        Config.of(BLOCK=4096, num_warps=4),  # no reduction
        Config.of(XBLOCK=4096, RSPLIT=256, num_warps=4),  # divides the grid
    ],
)
def test_what_is_never_halved(config):
    assert proposed(Refiner((config,), H100, lambda _: 10**6), [ok(config, 255)]) == []


def test_the_largest_of_several_blocks_is_halved():
    config = Config.of(R0_BLOCK=8, R1_BLOCK=128, num_warps=4)
    assert proposed(Refiner((config,), H100, lambda _: 10**6), [ok(config, 255)]) == [
        "R0_BLOCK=8, R1_BLOCK=64, num_warps=4"
    ]


def test_a_device_without_registers_halves_nothing():
    assert Occupancy.of({"sm_count": 2, "warp_size": 1}) is None
    assert proposed(Refiner((WIDE,), None, lambda _: 10**6), [ok(WIDE, 255)]) == []


def test_pipelining_is_given_up_where_nothing_runs():
    configs = tuple(Config.of(BLOCK=block, num_stages=stages) for block in (64, 128) for stages in (2, 4))
    failed = [STUDY.failed(config, Status.RUN, "too much shared memory") for config in configs]
    refiner = Refiner(configs)
    assert proposed(refiner, failed) == ["BLOCK=64, num_stages=1", "BLOCK=128, num_stages=1"]
    assert proposed(refiner, failed[1:]) == [], "one was not tried"
    assert proposed(refiner, [*failed[1:], ok(configs[0], 16)]) == []
    wrong = STUDY.failed(configs[0], Status.WRONG, "differs")
    assert proposed(refiner, [*failed[1:], wrong]) == [], "that one runs"


class Registers:
    """An evaluator of reductions: 255 registers from 512 elements on, and fastest at 256."""

    def __init__(self, *, refuses=()):
        self.seen, self.refuses = [], refuses

    def prepare(self, configs):
        pass

    def evaluate(self, config):
        self.seen.append(config)
        members = config.as_dict()
        if members.get("num_stages", 1) in self.refuses:
            raise LaunchError("too much shared memory")
        block = members["R0_BLOCK"]
        if block == 300:
            raise CompileError("no power of two")
        return ok(config, 255 if block >= 512 else 32, 1000 + abs(block - 256))

    def compare(self, configs):
        return {config: [1000 + abs(config.as_dict()["R0_BLOCK"] - 256)] * 9 for config in configs}

    def interrupt(self):
        pass


def run(configs, records, evaluator, **options):
    refiner = Refiner(tuple(configs), H100, lambda _: 10**6)
    return tune(STUDY, configs, evaluator, records, refiner=refiner, **options)


@pytest.mark.parametrize("searcher", ["auto", "random", "genetic"])
def test_refinements_are_measured_kept_and_win(searcher):
    configs = [Config.of(R0_BLOCK=block) for block in (2048, 300)]
    records, first = MemoryStore().records, Registers()
    outcome = run(configs, records, first, searcher=searcher)
    blocks = [config.as_dict()["R0_BLOCK"] for config in first.seen]
    assert sorted(blocks[:2]) == [300, 2048]
    assert blocks[2:] == [1024, 512, 256], "until the registers are no limit"
    assert outcome.require_winner().config == Config.of(R0_BLOCK=256)
    assert (outcome.measured, outcome.failures) == (5, {"compile": 1})
    again = Registers()
    second = run(configs, records, again, searcher=searcher)
    assert again.seen == []
    assert second.require_winner().config == Config.of(R0_BLOCK=256)
    assert (second.measured, second.reused) == (0, 5)


def test_a_budget_of_evaluations_is_for_the_search_and_refinements_come_on_top():
    configs = [Config.of(R0_BLOCK=block) for block in (2048, 300, 128, 100)]
    evaluator = Registers()
    outcome = run(configs, MemoryStore().records, evaluator, searcher="exhaustive", budget=Budget(evaluations=2))
    assert (len(evaluator.seen), outcome.stopped) == (5, "evaluations")


def test_what_refinements_of_another_space_left_does_not_count():
    records = MemoryStore().records
    run([Config.of(R0_BLOCK=2048)], records, Registers())
    outcome = run([Config.of(R0_BLOCK=128)], records, Registers())
    assert outcome.require_winner().config == Config.of(R0_BLOCK=128)
    assert len(read_trials(STUDY, records)) > 4


def test_one_stage_runs_where_more_do_not():
    configs = [Config.of(R0_BLOCK=64, num_stages=stages) for stages in (2, 3)]
    outcome = run(configs, MemoryStore().records, Registers(refuses=(2, 3)))
    assert outcome.require_winner().config == Config.of(R0_BLOCK=64, num_stages=1)
    assert outcome.failures == {"run": 2}


def test_progress_counts_refinements():
    seen = []
    run([Config.of(R0_BLOCK=1024)], MemoryStore().records, Registers(), progress=seen.append)
    assert seen[-1].done == seen[-1].total == 3


def test_why_is_kept_with_the_trial_and_shown():
    records, seen = MemoryStore().records, []
    outcome = run([Config.of(R0_BLOCK=2048)], records, Registers(), progress=seen.append)
    reasons = {trial.config.as_dict()["R0_BLOCK"]: reason_of(trial) for trial in read_trials(STUDY, records)}
    assert reasons == {
        2048: "",
        1024: "R0_BLOCK halved to 1024: R0_BLOCK=2048 needs 255 registers, so 264 of 1000000 blocks are resident",
        512: "R0_BLOCK halved to 512: R0_BLOCK=1024 needs 255 registers, so 264 of 1000000 blocks are resident",
        256: "R0_BLOCK halved to 256: R0_BLOCK=512 needs 255 registers, so 264 of 1000000 blocks are resident",
    }
    assert outcome.remarks == tuple(
        f"refined: {reasons[block]} ({time})" for block, time in ((1024, "1.77 us"), (512, "1.26 us"), (256, "1 us"))
    )
    assert [reason_of(event.last) for event in seen if event.phase == "search"] == list(reasons.values())
    again = run([Config.of(R0_BLOCK=2048)], records, Registers())
    assert (again.measured, again.remarks) == (0, outcome.remarks)
    assert "refined: R0_BLOCK halved to 1024" in outcome.summary


def test_many_refinements_are_counted():
    configs = [Config.of(R0_BLOCK=2048, num_warps=warps) for warps in (1, 2, 4, 8)]
    outcome = run(configs, MemoryStore().records, Registers())
    assert len(outcome.trials) > 16
    assert outcome.remarks[4:] == ("refined: 8 more",)


def test_what_a_failure_says_comes_before_why_its_config_was_made():
    config = Config.of(BLOCK=64)
    refinement = Refinement(config, "because")
    failed = refinement.explained(STUDY.failed(config, Status.RUN, "refused\nat 3"))
    assert failed.message == "refused\nat 3\nrefined: because"
    good = refinement.explained(STUDY.trial(config, Status.OK, [1], message="the same code as another"))
    assert good.message == "refined: because\nthe same code as another"
    assert [reason_of(one) for one in (failed, good)] == ["because"] * 2

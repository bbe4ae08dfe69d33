"""A first call that its budget cuts off is gone on with, by later calls and processes, until enough was spent."""

import logging

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from fake_backend.measure import fake_study
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.settings import override
from silo.store.store import MemoryStore
from silo.tuner.policy import (
    BEGUN,
    Action,
    Origin,
    TimeSpent,
    TuneMode,
    Unfinished,
    decide,
    note_effort,
    read_effort,
    settle,
)

STUDY = fake_study()
CONFIGS = (Config.of(BLOCK=64), Config.of(BLOCK=128))


def test_what_was_spent_adds_up_and_the_last_word_counts():
    records = MemoryStore().records
    assert read_effort(STUDY, records) == TimeSpent()
    for ended, seconds, cut_off in (("seconds", 1.5, True), ("complete", 2.0, False), ("interrupted", 0.25, True)):
        note_effort(STUDY, records, BEGUN)
        assert read_effort(STUDY, records).is_cut_off, "whoever dies says nothing more"
        note_effort(STUDY, records, ended, seconds)
        assert read_effort(STUDY, records).is_cut_off == cut_off
    assert read_effort(STUDY, records).seconds == 3.75
    assert read_effort(fake_study(n=4), records) == TimeSpent()
    settle(STUDY, records)
    assert not read_effort(STUDY, records).is_cut_off


def test_records_of_a_newer_silo_are_left_out():
    records = MemoryStore().records
    note_effort(STUDY, records, "seconds", 1.0)
    from silo.core.variant import effort_key

    records.append(effort_key(STUDY.key), {"schema": "effort/2"})
    assert read_effort(STUDY, records) == TimeSpent(1.0, "seconds")


def test_a_study_goes_on_while_configs_and_seconds_are_left():
    assert Unfinished(2, 120, 3.0, 60.0).goes_on
    assert not Unfinished(120, 120, 3.0, 60.0).goes_on
    assert not Unfinished(2, 120, 60.0, 60.0).goes_on
    assert str(Unfinished(2, 120, 3.0, 60.0)).startswith("2 of 120 configs measured")


@pytest.mark.parametrize(
    ("mode", "action"), [(TuneMode.AUTO, Action.TUNE), (TuneMode.CACHED, Action.USE), (TuneMode.FROZEN, Action.USE)]
)
def test_only_calls_that_may_tune_go_on(mode, action):
    decision = decide(mode, CONFIGS, bucket=CONFIGS[1], unfinished="1 of 2 configs measured")
    assert (decision.action, decision.config, decision.origin) == (action, CONFIGS[1], Origin.BUCKET)


def test_a_call_that_cannot_measure_uses_the_best_so_far_and_says_how_far_it_came():
    decision = decide(
        TuneMode.AUTO,
        CONFIGS,
        bucket=CONFIGS[1],
        unfinished="1 of 2 configs measured",
        can_measure=Rejected("an address"),
    )
    assert (decision.action, decision.config) == (Action.USE, CONFIGS[1])
    assert "1 of 2 configs measured" in decision.reason
    assert "an address" in decision.reason


def test_a_lock_comes_before_what_was_left():
    decision = decide(TuneMode.AUTO, CONFIGS, locked=CONFIGS[0], bucket=CONFIGS[1], unfinished="1 of 2")
    assert (decision.action, decision.config, decision.origin) == (Action.USE, CONFIGS[0], Origin.LOCK)


@triton.jit
def plus(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def process(n=5000):
    """What another process has: a kernel that was not called yet. Gives what explains a call, after one."""
    kernel = silo.kernel(space={"BLOCK": [64, 128, 256, 512]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(
        plus
    )
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
    kernel(x, out, n)
    assert (out == x + 1).all()
    return kernel.explain(x, out, n)


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.INFO, logger="silo")
    return lambda: [record.getMessage() for record in caplog.records if record.getMessage().startswith("tuned ")]


def test_later_processes_go_on_until_the_space_is_done(tmp_path, messages):
    # The budget is spent before the first config is compiled, and one is measured all the same.
    with override(home=tmp_path, tune="auto", tune_budget_s=0.001, tune_total_s=1000.0):
        assert "measured: 1 of 4 configs measured" in process()
        assert "measured: 2 of 4 configs measured" in process(5008 + 8), "another size of the bucket goes on too"
        with override(home=tmp_path, tune="cached"):
            assert "2 of 4 configs measured" in process()
        assert len(messages()) == 2
        process()
        text = process()
        assert len(messages()) == 4
        assert "not measured" not in text
        process()
        assert len(messages()) == 4, "there is nothing left to measure"


def test_it_ends_when_enough_was_spent(tmp_path, messages):
    with override(home=tmp_path, tune="auto", tune_budget_s=0.001, tune_total_s=0.002):
        process()  # compiling alone takes longer
        assert "1 of 4 configs measured" in process()
        assert len(messages()) == 1


def test_tuning_at_leisure_settles_it(tmp_path, messages):
    from silo.machine.device_plugins import device_named
    from silo.machine.process_session import session
    from silo.tuner.ledger import studies_of

    with override(home=tmp_path, tune="auto", tune_budget_s=0.001, tune_total_s=1000.0):
        process()
        records = session().store.records
        (study,) = studies_of("plus", records)
        assert study.device == device_named("cpu").model
        settle(study, records)
        process()
        assert len(messages()) == 1


def test_on_a_cpu_configs_with_about_four_programs_for_each_thread_come_after_the_first(tmp_path, messages):
    def process():
        space = {"BLOCK": [16, 64, 1024, 65536]}
        kernel = silo.kernel(space=space, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(plus)
        x, out = np.arange(500_000, dtype=np.float32), np.zeros(500_000, dtype=np.float32)
        kernel(x, out, x.size)
        unmeasured = kernel.explain(x, out, x.size).splitlines()
        return {line.split("BLOCK=")[1].split(":")[0] for line in unmeasured if line.endswith("not measured")}

    with override(home=tmp_path, tune="auto", tune_budget_s=0.001, tune_total_s=1000.0, threads=2):
        assert process() == {"64", "1024", "65536"}
        assert process() == {"64", "1024"}
        assert process() == {"64"}

"""``tune="background"``: a call uses the best known config, a search beside the program finds a better one."""

import logging
import os
import shutil
import sys

import numpy as np
import pytest

import silo
from silo.calls import background_search
from silo.calls.background_search import BackgroundSearches, pause_after
from silo.calls.decision import may_switch
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.device import Measuring
from silo.launch.runtime import inspect_call
from silo.machine.device_plugins import device_named
from silo.machine.process_session import Session, session
from silo.measuring.benches import benches_on
from silo.settings import override
from silo.tuner.policy import Action, Origin, TuneMode, decide, read_effort

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="compiles kernels for the CPU")
CONFIGS = [Config.of(BLOCK=64), Config.of(BLOCK=1024)]


@triton.jit
def plus(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def plus_in_steps(x, out, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0), mask=i < 1)


class Searches(BackgroundSearches):
    """Searches that run when a test says so."""

    def submit(self, search):
        self._queue.append(search)

    def run(self):
        """Runs those that wait in this thread; returns how many did."""
        count = len(self._queue)
        while self._queue:
            self._queue.popleft()()
        return count


@pytest.fixture
def searches(monkeypatch):
    made = Searches()
    monkeypatch.setattr(background_search, "searches", made)
    # On a machine that is busy with other tests, processes that run on idle CPUs alone would take for ever.
    monkeypatch.setattr(Session, "background", property(lambda own: own))
    monkeypatch.setattr(
        background_search, "benches_on", lambda *given, **named: benches_on(*given, **{**named, "yields": False})
    )
    return made


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.INFO, logger="silo")
    return lambda start: [one.getMessage() for one in caplog.records if start in one.getMessage()]


@pytest.fixture
def home(tmp_path):
    with override(home=tmp_path, tune="background"):
        yield tmp_path


def made(function=plus_in_steps, **options):
    """A kernel whose first config is far slower than the other; no grid tells which is promising."""
    return silo.kernel(space={"BLOCK": [16, 4096]}, key=["n"], grid=(1,), **options)(function)


def arrays(n=100_000):
    return np.arange(n, dtype=np.float32), np.zeros(n, dtype=np.float32)


def blocks(kernel, *arguments):
    """The block of the config that a call of these arguments gets now."""
    return kernel.explain(*arguments).split("config: BLOCK=")[1].split()[0]


@pytest.mark.parametrize("unfinished", ["", "1 of 2 configs measured"])
def test_where_auto_measures_background_measures_beside(unfinished):
    bucket = CONFIGS[1] if unfinished else None
    auto = decide(TuneMode.AUTO, CONFIGS, bucket=bucket, unfinished=unfinished)
    beside = decide(TuneMode.BACKGROUND, CONFIGS, bucket=bucket, unfinished=unfinished)
    assert (auto.action, beside.action) == (Action.TUNE, Action.BESIDE)
    assert (auto.config, auto.origin) == (beside.config, beside.origin)


@pytest.mark.parametrize("known", [{"locked": CONFIGS[1]}, {"bucket": CONFIGS[1]}, {"can_measure": Rejected("no")}])
def test_where_auto_measures_nothing_neither_does_background(known):
    assert decide(TuneMode.BACKGROUND, CONFIGS, **known) == decide(TuneMode.AUTO, CONFIGS, **known)
    assert decide(TuneMode.BACKGROUND, CONFIGS, **known).action is Action.USE


@needs_compiler
def test_the_first_call_compiles_one_config_and_a_later_one_gets_the_winner(home, searches, messages):
    kernel, (x, out) = made(), arrays()
    kernel(x, out, x.size)
    assert (out == x + 1).all()
    assert len(messages("compiled plus")) == 1
    assert not messages("tuned plus")
    assert blocks(kernel, x, out, x.size) == "16"
    kernel(x, out, x.size)
    assert searches.run() == 1
    assert len(messages("tuned plus")) == 1
    assert len(messages("calls switch from BLOCK=16 to BLOCK=4096")) == 1
    out[:] = 0
    kernel(x, out, x.size)
    assert (out == x + 1).all()
    assert blocks(kernel, x, out, x.size) == "4096"
    assert searches.run() == 0, "one search of a study in a process"
    assert len(messages("calls switch")) == 1


@needs_compiler
def test_the_first_call_uses_the_most_promising_config(home, searches, messages):
    grid = lambda a: (silo.cdiv(a.n, a.BLOCK),)  # noqa: E731
    kernel, (x, out) = silo.kernel(space={"BLOCK": [16, 4096]}, key=["n"], grid=grid)(plus), arrays()
    kernel(x, out, x.size)
    assert (out == x + 1).all()
    assert len(messages("compiled plus")) == 1
    assert blocks(kernel, x, out, x.size) == "4096"
    resolver = kernel.kernel.resolver
    context = resolver.understand(inspect_call(resolver.native, kernel.kernel.source.signature, x, out, x.size))
    decision = resolver.decide(context)
    assert (decision.action, decision.origin) == (Action.BESIDE, Origin.HEURISTIC)
    for mode in (TuneMode.AUTO, TuneMode.CACHED, TuneMode.OFF):
        assert resolver.decide(context, mode=mode).origin is Origin.FIRST


@needs_compiler
def test_the_search_measures_the_arguments_as_they_were(home, searches):
    kernel, (x, out) = made(), arrays()
    kernel(x, out, x.size)
    x[:], out[:] = -1, 7
    searches.run()
    assert (x == -1).all()
    assert (out == 7).all()


@needs_compiler
def test_code_that_a_caller_has_bound_keeps_its_config(home, searches, messages):
    kernel, (x, out) = made(), arrays()
    bound = kernel.bind(x, out, x.size)
    before = repr(bound)
    searches.run()
    assert messages("calls switch")
    bound(x, out, x.size)
    assert (out == x + 1).all()
    assert repr(bound) == before


@needs_compiler
def test_in_deterministic_mode_the_call_itself_decides(home, searches, messages):
    kernel, (x, out) = made(deterministic=True), arrays()
    kernel(x, out, x.size)
    assert searches.run() == 0
    assert len(messages("tuned plus")) == 1
    assert not messages("calls switch")
    resolver = kernel.kernel.resolver
    situation = resolver.understand(inspect_call(resolver.native, kernel.kernel.source.signature, x, out, x.size))
    assert "deterministic" in may_switch(situation).reason


@needs_compiler
def test_what_cannot_be_measured_in_another_process_is_measured_in_the_call(home, searches, messages, monkeypatch):
    monkeypatch.setattr(type(device_named("cpu")), "measuring", Measuring.HERE)
    kernel, (x, out) = made(), arrays()
    kernel(x, out, x.size)
    assert searches.run() == 0
    assert len(messages("tuned plus")) == 1


@needs_compiler
def test_a_search_that_ended_with_its_process_is_taken_up_by_another(home, searches):
    kernel, (x, out) = made(), arrays()
    kernel(x, out, x.size)
    resolver = kernel.kernel.resolver
    situation = resolver.understand(inspect_call(resolver.native, kernel.kernel.source.signature, x, out, x.size))
    assert resolver.decide(situation).action is Action.BESIDE
    searches.run()
    study = resolver.problem(situation).study(situation.specialization, situation.bucket)
    assert read_effort(study, session().store.records).last == "complete"
    decision = resolver.decide(situation)
    assert (decision.action, decision.origin) == (Action.USE, Origin.BUCKET)


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="Linux has this policy")
def test_workers_beside_the_program_run_on_idle_cpus_alone(home):
    from silo.compile.pool import WorkerPool

    policies = {}
    for yields in (False, True):
        pool = WorkerPool(1, yields=yields)
        try:
            pool.warm(1, "cpu")
            while not pool._processes:
                pass
            (process,) = pool._processes
            process.await_ready()
            policies[yields] = os.sched_getscheduler(process._process.pid)
        finally:
            pool.close()
    assert policies == {False: os.SCHED_OTHER, True: os.SCHED_IDLE}


@pytest.mark.parametrize(("others", "pause"), [(0.0, 0.0), (0.01, 0.0), (0.03, 0.38), (1.5, 0.38)])
def test_lowering_takes_a_twentieth_of_a_busy_program(others, pause):
    assert pause_after(0.02, 0.1, others) == pytest.approx(pause)


def test_searches_run_one_after_the_other_and_one_that_fails_ends_none():
    own, order = BackgroundSearches(), []

    def fails():
        order.append("fails")
        raise ValueError("a fault")

    for step in (lambda: order.append("first"), fails, lambda: order.append("last")):
        own.submit(step)
    assert own.wait(60)
    assert order == ["first", "fails", "last"]
    assert own.claim("a")
    assert not own.claim("a")
    own.release("a")
    assert own.claim("a")


def test_a_full_queue_takes_no_more(searches):
    for number in range(8):
        assert searches.claim(str(number))
        searches.submit(lambda: None)
    assert not searches.claim("another")
    searches.run()
    assert searches.claim("another")

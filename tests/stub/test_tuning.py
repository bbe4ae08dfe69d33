"""Tuning on GPUs: configs that fault, loop or are wrong, each in the measuring process, none in this one."""
# pyright: reportAssignmentType=false, reportAttributeAccessIssue=false

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import gpu_stub
import nvml_stub
import silo
from silo.errors import TuneError
from silo.launch.runtime import inspect_call
from silo.machine.device_plugins import device_named
from silo.machine.process_session import session
from silo.settings import override
from silo.tuner.ledger import read_trials
from silo.tuning.case_tuning import CaseLimits, case_studies, tune_case

WARPS = (1, 2, 4, 8, 16)
EXPECTED = {1: "ok", 2: "ok", 4: "wrong", 8: "run", 16: "timeout"}


@triton.jit
def scale_by(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(out + i, mask=i < n) + 2 * tl.load(x + i, mask=i < n)
    tl.store(out + i, value, mask=i < n)


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """Measuring processes run Python in the place of the kernel; this one's stub does nothing."""
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("measured_kernels.py"), folder / "sitecustomize.py")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr("silo.calls.first_call.RUN_LIMIT_S", 1.5)
    with override(home=tmp_path / "store", tune="auto", tune_budget_s=120.0):
        yield


def kernel(warps=WARPS):
    return silo.kernel(
        space=[{"BLOCK": 64, "num_warps": count} for count in warps],
        key=["n"],
        grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
    )(scale_by)


def statuses(made, x, out, n):
    resolver = made.kernel.resolver
    situation = resolver.understand(inspect_call(resolver.native, made.kernel.source.signature, out, x, n))
    problem = resolver.problem(situation)
    trials = read_trials(problem.study(situation.specialization, situation.bucket), session().store.records)
    return {trial.config.as_dict()["num_warps"]: trial for trial in trials}


def test_a_first_call_survives_every_config(workers):
    n = 100
    x = silo.Buffer.of(np.arange(n, dtype=np.float32).tobytes(), "float32", None, "cuda:1")
    out = silo.Buffer.of(np.ones(n, dtype=np.float32).tobytes(), "float32", None, "cuda:1")
    made = kernel()
    made(out, x, n)
    found = statuses(made, x, out, n)
    assert {warps: trial.status.value for warps, trial in found.items()} == EXPECTED
    assert "700" in found[8].message
    assert "did not end within" in found[16].message
    assert found[2].samples_ns[0] == 3_000
    last = gpu_stub.stub.last("scale_by")
    assert last.count == 1  # candidates never run here
    assert (last.block, last.device) == ((64, 1, 1), 1)
    assert (out.numpy() == 1).all()


def test_cases_are_tuned_and_checked(workers):
    made = kernel((1, 2, 4))

    @made.cases(n=[70])
    def _(n, make):
        out, x = make.normal(n), make.normal(n)
        return silo.Case(args=(out, x, n), expected={"out": lambda: out.host + 2 * x.host})

    (study,) = case_studies(made.kernel, device_named("cuda"))
    assert study.case.arguments["x"].device == "cuda:0"
    outcome, _ = tune_case(study, CaseLimits())
    assert {t.config.as_dict()["num_warps"]: t.status.value for t in outcome.trials} == {1: "ok", 2: "ok", 4: "wrong"}
    assert outcome.winner.config.as_dict()["num_warps"] == 2
    assert "out: " in next(t.message for t in outcome.trials if t.status.value == "wrong")


def test_the_first_config_faults(workers):
    """The base that others are compared with is the first that runs."""
    made = kernel((8, 2, 1))
    x, out = silo.Buffer(50, device="cuda"), silo.Buffer(50, device="cuda")
    made(out, x, 50)
    assert {w: t.status.value for w, t in statuses(made, x, out, 50).items()} == {8: "run", 2: "ok", 1: "ok"}
    assert gpu_stub.stub.last("scale_by").block == (64, 1, 1)


def test_a_tuned_kernel_is_tuned_in_a_second_process_too(workers, tmp_path):
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import silo, gpu_stub
        from test_tuning import kernel, statuses
        x, out = silo.Buffer(50, device="cuda"), silo.Buffer(50, device="cuda")
        made = kernel((1, 2))
        made(out, x, 50)
        print(gpu_stub.stub.last("scale_by").block[0], made.explain(out, x, 50))
    """
    first = gpu_stub.run(code, SILO_HOME=str(tmp_path / "own"))
    second = gpu_stub.run(code, SILO_HOME=str(tmp_path / "own"), SILO_TUNE="cached")
    assert first.split()[0] == second.split()[0] == "64"
    assert "bucket winner" in second


def test_the_worker_loads_no_framework(workers):
    code = """
        import sys
        import silo.measuring.measuring_worker
        from silo.machine.device_plugins import device_named
        device_named("cuda")
        loaded = {"torch", "triton", "numpy", "jax"} & set(sys.modules)
        assert not loaded, loaded
    """
    gpu_stub.run(code)


def test_energy_is_measured_in_the_measuring_process(workers, monkeypatch):
    monkeypatch.setenv("NVML_STUB", "any")
    made = kernel((1, 2))

    @made.cases(n=[70])
    def _(n, make):
        out, x = make.normal(n), make.normal(n)
        return silo.Case(args=(out, x, n), expected={"out": lambda: out.host + 2 * x.host})

    with override(nvml_library=nvml_stub.library(), objective="energy"):
        (study,) = case_studies(made.kernel, device_named("cuda"))
        outcome, _ = tune_case(study, CaseLimits())
        assert outcome.require_winner().reason.startswith("least energy")
        assert all(len(dict(one.metrics)["energy"]) == 3 for one in outcome.trials)
        again, _ = tune_case(study, CaseLimits())
        assert (again.measured, again.winner) == (0, outcome.winner)
    monkeypatch.setenv("NVML_STUB", "refuses")
    with (
        override(nvml_library=nvml_stub.library(), objective="energy", home="elsewhere"),
        pytest.raises(TuneError, match=r"energy is not measured on cuda.*Not Supported"),
    ):
        tune_case(study, CaseLimits())

"""Agents on GPUs: cases are made there, configs checked, timed, and survived, as they are by a tune on the spot."""
# pyright: reportAssignmentType=false, reportAttributeAccessIssue=false

import shlex
import sys

import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

from test_tuning import kernel, workers  # noqa: F401  # a fixture

import silo
from silo.tuning.agents.connection import PipeSource
from silo.tuning.agents.fleet import Fleet
from silo.tuning.case_tuning import CaseLimits, case_studies, tune_case

AGENT = [sys.executable, "-m", "silo", "agent", "--device"]


def test_agents_with_a_gpu_each_measure_a_case(workers):  # noqa: F811
    made = kernel((1, 2, 4, 8))

    @made.cases(n=[70])
    def _(n, make):
        out, x = make.normal(n), make.normal(n)
        return silo.Case(args=(out, x, n), expected={"out": lambda: out.host + 2 * x.host})

    with Fleet([PipeSource(shlex.join([*AGENT, name])) for name in ("cuda:0", "cuda:1")]) as fleet:
        assert fleet.device.target.kind == "cuda"
        (study,) = case_studies(made.kernel, fleet.device)
        assert study.case.arguments["x"].__class__.__module__ == "numpy"  # here they are only looked at
        outcome, _ = tune_case(study, CaseLimits(fleet=fleet))
        found = {trial.config.as_dict()["num_warps"]: trial for trial in outcome.trials}
        assert {warps: trial.status.value for warps, trial in found.items()} == {1: "ok", 2: "ok", 4: "wrong", 8: "run"}
        assert "700" in found[8].message
        assert outcome.winner.config.as_dict()["num_warps"] == 2
        assert all(seat.fruitless == 0 and not seat.given_up for seat in fleet._seats)
    # What a tune on the spot would do is known now.
    from silo.machine.device_plugins import device_named

    (here,) = case_studies(made.kernel, device_named("cuda"))
    again, _ = tune_case(here, CaseLimits())
    assert (again.measured, again.reused) == (0, 4)

"""The energy objective on a GPU whose NVML counts energy; skips with NVML's reason elsewhere."""

from typing import Any

import pytest

pytest.importorskip("triton", reason="this test compiles a Triton kernel")

import triton
import triton.language as tl

import silo
from silo.core.decisions import Rejected
from silo.errors import DeviceError
from silo.machine.device_plugins import device_named
from silo.settings import override
from silo.tuning.case_tuning import CaseLimits, case_studies, tune_case


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def test_energy_is_measured_and_decides(tmp_path):
    try:
        device = device_named("cuda")
    except DeviceError as error:
        pytest.skip(str(error))
    measures: Any = device
    meter = measures.energy_meter()
    if isinstance(meter, Rejected):
        pytest.skip(meter.reason)
    kernel: Any = silo.kernel(
        space={"BLOCK": [256, 4096], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)
    )(scale)

    @kernel.cases(n=[1 << 24])
    def _(n, make):
        x, out = make.normal(n), make.empty(n)
        return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 2})

    with override(home=tmp_path, objective="energy, registers<=255"):
        (study,) = case_studies(kernel.kernel, device)
        outcome, _ = tune_case(study, CaseLimits())
        assert outcome.require_winner().reason.startswith("least energy")
        again, _ = tune_case(study, CaseLimits())
    assert (again.measured, again.winner) == (0, outcome.winner)
    for trial in outcome.trials:
        samples = dict(trial.metrics)["energy"]
        watts = [nanojoules / sorted(trial.samples_ns)[len(trial.samples_ns) // 2] for nanojoules in samples]
        assert len(samples) == 3
        assert all(10 < one < 2000 for one in watts), f"{watts} W while {trial.config} runs"

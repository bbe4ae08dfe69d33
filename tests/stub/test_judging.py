"""Judging on GPUs: agents launch compiled code over the judge's arrays; expected values stay with the judge."""
# pyright: reportOptionalSubscript=false

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import silo
from hostile_kernels import RIGHT, candidate
from silo.errors import CaseError, DeviceError
from silo.judging.cascade import Judge, Submission
from silo.judging.device_stage import GpuStage, local_fleet
from silo.judging.job_processes import JobProcesses
from silo.tuning.agents.connection import PipeSource
from silo.tuning.agents.fleet import Fleet


def adding(warps):
    """A right candidate; the stub's behaviour depends on the number of warps (judged_kernels.py)."""
    return candidate(RIGHT).replace('{"BLOCK": [256]}', f'{{"BLOCK": [256], "num_warps": [{warps}]}}')


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(Path(__file__).with_name("judged_kernels.py"), folder / "sitecustomize.py")
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{before}"
    try:
        with local_fleet("cuda:1") as made:
            yield made
    finally:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def verdicts(fleet, tmp_path_factory):
    baseline = tmp_path_factory.mktemp("task") / "baseline.py"
    baseline.write_text(adding(1))

    @silo.task(cases=4, seconds=5, values=("normal", "integers"), baseline=baseline)
    def add(draw):
        n = draw.choice(517)  # of one size, so that few variants are compiled
        x, y, out = draw.array(n), draw.array(n), draw.empty(n)
        return draw.case(lambda: {"out": x.double + y.double}, x=x, y=y, out=out, n=n)

    texts = [Submission(str(warps), adding(warps)) for warps in (2, 4, 8, 16, 32)]
    with JobProcesses() as processes, Judge(add, fleet=fleet, seconds=1.0, processes=processes) as judge:
        return {one.candidate: one for one in judge.judge(texts, jobs=2)}


def test_a_right_candidate_is_timed_against_the_baseline(verdicts):
    twice = verdicts["2"]
    assert twice.accepted, twice
    assert twice.stage == "device"
    assert twice.speedup[0] == pytest.approx(twice.figures["baseline_ns"] / twice.figures["time_ns"], rel=0.01)
    assert 1.7 < twice.speedup[0] < 2.1  # 8 and 4 us, and the stub's time of a launch


@pytest.mark.parametrize(
    ("warps", "reason"),
    [
        ("4", "config 0: case 1 (odd sizes"),  # another result on the device than on the CPU
        ("8", "700"),  # it faults
        ("16", "writes beside out"),
        ("32", "config 0 after it was timed: "),  # it counts its launches
    ],
)
def test_a_candidate_that_is_right_on_the_cpu_alone_is_refused(verdicts, warps, reason):
    verdict = verdicts[warps]
    assert (verdict.accepted, verdict.stage) == (False, "device")
    assert reason in " ".join(verdict.reasons)


@pytest.mark.all
def test_a_launch_that_does_not_end_is_stopped(fleet):
    def add_of(n):
        @silo.task(cases=4, seconds=15, values=("normal",))
        def add(draw):
            x, y, out = draw.array(n), draw.array(n), draw.empty(n)
            return draw.case(lambda: {"out": x.double + y.double}, x=x, y=y, out=out, n=n)

        return add

    found = []
    for n in (600, 517):  # the stub's kernel of 600 elements never ends
        with Judge(add_of(n), fleet=fleet) as judge:
            found += judge.judge([Submission(str(n), adding(1))], jobs=1)
    hung, after = found
    assert hung.stage == "device"
    assert "did not end" in hung.reasons[0]
    assert after.accepted, after
    assert after.speedup is None  # without a baseline it is launched and compared


def test_agents_without_a_gpu_do_not_judge():
    words = shlex.join([sys.executable, "-m", "silo", "agent", "--device", "cpu"])
    with Fleet([PipeSource(words)]) as host, pytest.raises(DeviceError, match="agents judge on GPUs"):
        GpuStage(host, 1.0)


@pytest.mark.all
def test_a_baseline_that_is_wrong_on_the_device_is_an_error(fleet, tmp_path):
    (tmp_path / "baseline.py").write_text(adding(4))

    @silo.task(cases=4, values=("normal",), baseline=tmp_path / "baseline.py")
    def add(draw):
        n = draw.choice(517)
        x, y, out = draw.array(n), draw.array(n), draw.empty(n)
        return draw.case(lambda: {"out": x.double + y.double}, x=x, y=y, out=out, n=n)

    with Judge(add, fleet=fleet) as judge, pytest.raises(CaseError, match="refused at device"):
        judge.prepare()

"""Tuning on a real NVIDIA GPU: the examples, and configs that fault or never end."""
# pyright: reportAssignmentType=false

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import silo
from gpu_kernels import tl, torch, triton
from silo.commands.tune_cases import tune_path
from silo.core.config import Config
from silo.launch.runtime import inspect_call
from silo.machine.process_session import session
from silo.settings import override
from silo.tuner.ledger import read_trials
from silo.tuner.spilling import known_spills

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def store(tmp_path):
    with override(home=tmp_path / "store", tune="auto", tune_budget_s=60.0):
        yield


def study_of(made, *arguments):
    """The situation of a call, and its study."""
    resolver = made.kernel.resolver
    situation = resolver.understand(inspect_call(resolver.native, made.kernel.source.signature, *arguments))
    problem = resolver.problem(situation)
    return situation, problem.study(situation.specialization, situation.bucket)


def trials_of(made, *arguments):
    _, study = study_of(made, *arguments)
    return {trial.config.as_dict()["MODE"]: trial for trial in read_trials(study, session().store.records)}


@triton.jit
def misbehave(out, x, n, MODE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    value = tl.load(x + i, mask=mask)
    if MODE == 1:  # an illegal address
        tl.store(out + i.to(tl.int64) * 1_000_000_000_000, value, mask=mask)
    if MODE == 2:  # never ends: nobody writes a negative number there
        flag = tl.load(x, volatile=True)
        while flag >= 0:
            flag = tl.load(x, volatile=True)
        tl.store(out + i, value + flag, mask=mask)
    if MODE == 3:  # wrong
        tl.store(out + i, value, mask=mask)
    if MODE == 0:
        tl.store(out + i, value + 1, mask=mask)
    if MODE == 4:  # right, and slower
        for _ in range(200):
            value = tl.load(x + i, mask=mask, volatile=True)
        tl.store(out + i, value + 1, mask=mask)


def misbehaving(modes=(4, 1, 2, 3, 0)):
    return silo.kernel(
        space=[{"MODE": mode, "BLOCK": 256} for mode in modes],
        key=["n"],
        grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
    )(misbehave)


def test_faults_loops_and_wrong_results_cost_one_config_each():
    n = 1 << 16
    x, out = torch.rand(n, device="cuda"), torch.zeros(n, device="cuda")
    made = misbehaving()
    begin = time.monotonic()
    made(out, x, n)
    torch.cuda.synchronize()  # this process's context is whole
    assert torch.equal(out, x + 1)
    found = trials_of(made, out, x, n)
    states = {mode: trial.status.value for mode, trial in found.items()}
    assert states == {4: "ok", 1: "run", 2: "timeout", 3: "wrong", 0: "ok"}
    assert "700" in found[1].message
    assert time.monotonic() - begin < 120
    assert "MODE=0" in made.explain(out, x, n).split("config: ")[1].splitlines()[0]


@triton.jit
def accumulate(total, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total + i, tl.load(total + i, mask=i < n) * 1.1 + tl.load(x + i, mask=i < n), mask=i < n)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def test_tuning_leaves_arguments_as_one_launch_would():
    n = 100_003
    made = silo.kernel(
        space={"BLOCK": [128, 256, 1024], "num_warps": [2, 4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)
    )(accumulate)
    total, x = torch.rand(n + 64, device="cuda"), torch.rand(n + 64, device="cuda")
    expected_total, expected_x = total.clone(), x.clone()
    with override(tune="off"):
        silo.kernel(accumulate)[(triton.cdiv(n, 128),)](expected_total, expected_x, n, BLOCK=128)
    made(total, x, n)
    torch.cuda.synchronize()
    assert torch.equal(total, expected_total)  # bit for bit, also behind the end
    assert torch.equal(x, expected_x)
    assert "bucket winner" in made.explain(total, x, n)


def test_cases_too():
    made = misbehaving((1, 0, 3))

    @made.cases(n=[10_000])
    def _(n, make):
        out, x = make.empty(n), make.normal(n)
        return silo.Case(args=(out, x, n), expected={"out": lambda: x.host + 1})

    from silo.machine.device_plugins import device_named
    from silo.tuning.case_tuning import CaseLimits, case_studies, tune_case

    (study,) = case_studies(made.kernel, device_named("cuda"))
    outcome, _ = tune_case(study, CaseLimits())
    states = {trial.config.as_dict()["MODE"]: trial.status.value for trial in outcome.trials}
    assert states == {1: "run", 0: "ok", 3: "wrong"}


@pytest.mark.parametrize("name", ["kernels.py", "combo.py"])
def test_the_examples_are_tuned_and_right(name):
    pytest.importorskip("numpy")
    rows = tune_path(ROOT / "examples" / name, device="cuda")
    assert rows
    for row in rows:
        assert row.winner is not None, row
        assert "wrong" not in row.failures, row
        assert row.time_ns > 500
    again = tune_path(ROOT / "examples" / name, device="cuda")
    assert sum(row.measured for row in again) == 0
    assert [row.winner for row in again] == [row.winner for row in rows]


def test_a_second_process_finds_the_winner(tmp_path):
    code = """
        import sys
        sys.path[:0] = {paths!r}
        import torch
        from test_tuning import misbehaving
        n = 1 << 16
        x, out = torch.rand(n, device="cuda"), torch.zeros(n, device="cuda")
        made = misbehaving((4, 3, 0))
        made(out, x, n)
        assert torch.equal(out, x + 1)
        print(made.explain(out, x, n))
    """
    folders = [str(Path(__file__).parent), str(ROOT / "tests" / "samples")]
    program = textwrap.dedent(code).replace("{paths!r}", repr(folders))
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "own"), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(**variables):
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env={**environment, **variables}, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run()
    second = run(SILO_TUNE="cached")
    assert "MODE=0" in second
    assert "bucket winner" in second


def test_a_persistent_grid_follows_reserved_multiprocessors():
    info = silo.device("cuda")

    @triton.jit
    def count(out, n):
        tl.atomic_add(out, 1)

    made = silo.kernel(tune="off", grid=lambda a: (min(a.num_sms, a.n),))(count)
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    try:
        info.reserve(info.sm_count - 3)
        made(out, 1000)
        assert out.item() == 3
    finally:
        info.reserve(0)


@triton.jit
def product(a, b, c, n, BLOCK: tl.constexpr):
    i, j, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    i += tl.program_id(0) * BLOCK
    j += tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        left = tl.load(a + i[:, None] * n + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * n + j[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.float16))


def test_pipelining_is_given_up_where_nothing_fits():
    """Five stages of two tiles of 32 KiB are more than any multiprocessor's shared memory."""
    made = silo.kernel(
        space=[{"BLOCK": 128, "num_stages": stages, "num_warps": 8} for stages in (5, 6)],
        grid=lambda a: (silo.cdiv(a.n, a.BLOCK), silo.cdiv(a.n, a.BLOCK)),
    )(product)
    a, b = (torch.randn(512, 512, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    made(a, b, c, 512)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    assert "num_stages=1" in made.explain(a, b, c, 512).split("config: ")[1].splitlines()[0]


@triton.jit
def row_sums(x, out, columns, R0_BLOCK: tl.constexpr):
    row = tl.program_id(0)
    a = tl.zeros((R0_BLOCK,), tl.float32)
    b = tl.zeros((R0_BLOCK,), tl.float32)
    for start in range(0, columns, R0_BLOCK):
        i = start + tl.arange(0, R0_BLOCK)
        value = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
        a += value
        b += tl.exp(value) * value
    tl.store(out + row, tl.sum(a) + tl.sum(b))


def test_reductions_that_need_many_registers_are_halved():
    """32,768 elements of two sums over 256 threads are 256 registers a thread."""
    made = silo.kernel(space=[{"R0_BLOCK": 32768, "num_warps": 8}, {"R0_BLOCK": 16384, "num_warps": 4}])(row_sums)
    x = torch.randn(4096, 32768, device="cuda")
    out = torch.empty(4096, device="cuda")
    made[(4096,)](x, out, 32768)
    torch.testing.assert_close(out, (x + x.exp() * x).sum(1), rtol=1e-3, atol=1.0)
    _, study = study_of(made, x, out, 32768)
    blocks = {trial.config.as_dict()["R0_BLOCK"] for trial in read_trials(study, session().store.records)}
    assert blocks > {32768, 16384}


def test_configs_that_spill_come_last_and_the_worst_are_left():
    """Of these, all but the first need more than 255 registers a thread, or 128 where 512 threads share them."""
    members = [(1024, 8), (32768, 4), (32768, 16), (32768, 8), (8192, 2)]
    space = [{"R0_BLOCK": block, "num_warps": warps} for block, warps in members]
    made = silo.kernel(space=space)(row_sums)
    x = torch.randn(4096, 32768, device="cuda")
    out = torch.empty(4096, device="cuda")
    with override(spills=16):
        made[(4096,)](x, out, 32768)
        torch.testing.assert_close(out, (x + x.exp() * x).sum(1), rtol=1e-3, atol=1.0)
        situation, study = study_of(made, x, out, 32768)
        records = session().store.records
        spills = {one.config: one.spills for one in known_spills(study, records)}
        tried = [trial.config for trial in read_trials(study, records) if trial.config in situation.candidates]
    assert set(spills) == {Config.of(one) for one in space[1:]}
    assert tried[0] == Config.of(space[0])
    last = list(dict.fromkeys(tried[1:]))
    assert [spills[config] for config in last if config in spills] == sorted(spills.values())[:2]


def test_deterministic_mode_measures_nothing_of_a_kernel_that_sums():
    space = [{"R0_BLOCK": block, "num_warps": 8} for block in (2048, 1024, 4096)]
    x = torch.randn(512, 32768, device="cuda")
    found = []
    for _ in range(2):
        made = silo.kernel(space=space, deterministic=True)(row_sums)
        out = torch.empty(512, device="cuda")
        made[(512,)](x, out, 32768)
        found.append(out.view(torch.int32))
        assert "config: R0_BLOCK=2048" in made.explain(x, out, 32768, grid=(512,))
    assert torch.equal(*found)
    assert not tuple(session().store.records.keys())

"""Deterministic mode: what is measured decides nothing about kernels that sum, everywhere where a config is chosen."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo import heuristics
from silo.bundle.reader import open_bundle
from silo.calls import first_call
from silo.cli.tune import command
from silo.commands.build_bundle import build_bundle
from silo.commands.tune_cases import tune_path
from silo.core.config import Config
from silo.errors import TuneError
from silo.heuristics.heuristic_space import KINDS
from silo.kernels.collection import collect_kernels
from silo.machine.device_plugins import device_named
from silo.settings import override
from silo.tuner.policy import Action, Origin, TuneMode, decide
from silo.tuning.case_tuning import case_studies
from silo.tuning.explanation import explain_tuning
from silo.tuning.stored_studies import kept_studies
from tuning_samples import HEAD, ROW_SUMS

SCALE = """

@silo.kernel(space={"BLOCK": [256, 512, 1024], "MODE": [0, 1]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr, MODE: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if MODE == 0:
        v = v * 3 + v
    else:
        v = v * 4
    tl.store(out + i, v, mask=i < n)


@scale.cases(n=[3000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 4})
"""
HEURISTIC = 'space=heuristics.space("reduction", {"x": "m", "r": "n"})'
LISTED = 'space=[{"XBLOCK": x, "R0_BLOCK": r} for x in (16, 32) for r in (64, 256)], key=["m", "n"]'


@pytest.fixture
def file(tmp_path):
    def written(text, space=HEURISTIC):
        path = tmp_path / "kernels.py"
        path.write_text(HEAD + text.replace("SPACE", space))
        return path

    with override(home=tmp_path / "home", jobs=2):
        yield written


def situation(path):
    (kernel,) = collect_kernels([path])
    (study,) = case_studies(kernel, device_named("cpu"))
    return study.situation


@pytest.mark.parametrize("space", [HEURISTIC, LISTED])
def test_a_kernel_that_sums_has_one_config_which_measuring_does_not_choose(file, space):
    path = file(ROW_SUMS, space)
    (free,) = tune_path(path)
    assert free.measured > 3
    with override(deterministic=True):
        known = situation(path)
        (row,) = tune_path(path)
        ((_, explained),) = explain_tuning(path)
        (kernel,) = collect_kernels([path])
    assert len(known.candidates) == 1
    assert row.winner == str(known.candidates[0])
    assert row.measured + row.reused == 1
    assert len(explained.known) + len(explained.new) == 1
    assert row.remarks[0].startswith("deterministic mode")
    if space is LISTED:
        assert row.winner == "R0_BLOCK=64, XBLOCK=16"
        assert "leaves out 3 of 4 configs: the kernel has 1 reduction and 1 loop" in row.remarks[0]
    # Nothing that was measured of other blocks counts, and no block is halved.
    (kept,) = kept_studies(path)
    assert len(kept.trials) > 3
    assert {trial.config for trial in kept.trials if trial.config in known.reach} == set(known.candidates)
    assert known.reach.fixed == {"R0_BLOCK"}
    assert not known.reach.refinable
    assert kernel.deterministic is None


def test_pointwise_is_tuned_among_configs_that_compute_the_same(file):
    path = file(SCALE)
    with override(deterministic=True):
        (row,) = tune_path(path)
        assert row.measured == 3
        assert "leaves out 3 of 6 configs: it stores other values than the first config" in row.remarks[0]
        assert {config.as_dict()["MODE"] for config in situation(path).candidates} == {0}
    (row,) = tune_path(path)
    assert (row.measured, row.reused, row.remarks) == (3, 3, ())


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


X = np.random.default_rng(0).random(5000, np.float32)


def made(function, blocks=(1024, 256, 512), **options):
    return silo.kernel(space={"BLOCK": list(blocks)}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), **options)(
        function
    )


@pytest.fixture
def tunes(monkeypatch, tmp_path):
    seen, tune = [], first_call.tune
    monkeypatch.setattr(first_call, "tune", lambda *args, **options: seen.append(args[1]) or tune(*args, **options))
    with override(home=tmp_path / "home", jobs=2, tune="auto", tune_budget_s=20.0):
        yield seen


def test_first_calls(tunes):
    out = np.zeros(5000, np.float32)
    made(total, deterministic=True)(X, out, X.size)
    assert tunes == []
    assert np.count_nonzero(out) == 5
    kernel = made(double, deterministic=True)
    kernel(X, out, X.size)
    assert len(tunes) == 1
    assert (out == 2 * X).all()
    with override(deterministic=True):
        made(total)(X, out, X.size)
        assert len(tunes) == 1
        made(total, deterministic=False)(X, out, X.size)
        assert len(tunes) == 2


def test_what_others_measured_and_any_mode_change_nothing(tunes):
    free, out = made(total), np.zeros(5000, np.float32)
    free(X, out, X.size)
    assert len(tunes) == 1
    for mode in ("auto", "cached", "frozen", "off"):
        kernel = made(total, deterministic=True, tune=mode)
        assert "config: BLOCK=1024" in kernel.explain(X, out, X.size)
        kernel(X, out, X.size)
    assert len(tunes) == 1
    assert "deterministic mode: the kernel has 1 reduction" in kernel.explain(X, out, X.size)
    assert "rejected: BLOCK=256: deterministic mode: the kernel has" in made(total, deterministic=True).explain(
        X, out, X.size
    )


def test_the_code_is_looked_at_once(tunes, monkeypatch):
    kernel, out = made(total, deterministic=True), np.zeros(5000, np.float32)
    kernel(X, out, X.size)
    monkeypatch.setattr("silo.calls.candidate_filters.lowered", lambda *_: pytest.fail("lowered again"))
    kernel(X, out, 4992)  # of the same bucket, divisible by 16
    kernel(X[1:], out, 4992)  # not aligned


def test_a_bundle_holds_one_config_a_case(file, tmp_path):
    path, output = file(ROW_SUMS, LISTED), tmp_path / "k.silo"
    tune_path(path)
    with override(deterministic=True):
        # The device of one target is here, of the other not.
        build_bundle([path], output, targets=["cpu", "cuda:sm_90"])
        with open_bundle(output) as bundle:
            variants = bundle.contents().kernels[0].variants
        assert {str(one.artifact.variant.config) for one in variants} == {"R0_BLOCK=64, XBLOCK=16"}
        with pytest.raises(TuneError, match="build the bundle from its Python files in that mode"):
            tune_path(output, trust=True)


def test_the_option_of_the_command(file, capsys):
    path = file(ROW_SUMS, LISTED)
    command(path, deterministic=True, json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["measured"], row["winner"]) == (1, "R0_BLOCK=64, XBLOCK=16")
    command(path, deterministic=True, explain=True, json=True)
    (explained,) = json.loads(capsys.readouterr().out)
    assert (explained["known"], explained["new"]) == (["R0_BLOCK=64, XBLOCK=16"], [])
    command(path, explain=True, json=True)
    (explained,) = json.loads(capsys.readouterr().out)
    assert len(explained["new"]) == 3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pointwise"])
def test_every_heuristic_of_kernels_that_sum_makes_one_config(kind):
    sizes = {"x": 4096, "y": 4096, "r": 4096} if kind == "native_matmul" else {"x": 4096, "r": 4096}
    facts = heuristics.KernelFacts(rsplit_size=64 if kind == "mix_order" else 0)
    made_space = heuristics.space(kind, sizes, facts=facts)
    one_order = replace(made_space, effort=heuristics.TuningEffort(deterministic=True))
    assert len(one_order.made(heuristics.TargetFacts.of("cuda:sm_90"), sizes)) == 1


def test_one_config_is_used_as_refined_if_that_was_measured():
    only, form = Config.of(BLOCK=64, num_stages=3), Config.of(BLOCK=64, num_stages=1)
    for mode in (TuneMode.AUTO, TuneMode.CACHED, TuneMode.FROZEN):
        assert decide(mode, [only]).config == only
        assert decide(mode, [only]).action is Action.USE
        used = decide(mode, [only], bucket=form, only="why")
        assert (used.config, used.origin) == (form, Origin.BUCKET)
        assert decide(mode, [only], lock_rule=form, only="why").reason == "why"
    assert decide(TuneMode.OFF, [only], bucket=form).config == only

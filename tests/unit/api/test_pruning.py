"""``prune_configs_by`` of ``triton.autotune`` is asked as Triton asks it wherever a config is chosen; no hook runs."""

import logging
import re

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.commands.build_bundle import build_bundle
from silo.errors import FrozenError, NoVariantError, SourceError, SpaceError
from silo.kinds.triton.front.triton_source import TritonSource
from silo.settings import override

BLOCKS = (64, 256, 1024)
CONFIGS = [triton.Config({"BLOCK": block}) for block in BLOCKS]
LARGE = CONFIGS[2:]
LAUNCHED = []  # block sizes in the order of launches, the call's own last


def GRID(meta):  # noqa: N802  # as if it were a constant
    LAUNCHED.append(meta["BLOCK"])
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def whole(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def made(configs=CONFIGS, options=None, **tuner):
    tuned = triton.autotune(configs, key=["n"], **tuner)(triton.jit(whole))
    return silo.kernel(**(options or {}))(tuned)


def block_of(kernel, n=3000):
    """The block size that a call was launched with."""
    x, out = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
    kernel[GRID](x, out, n)
    assert (out == 1).all()
    return LAUNCHED[-1]


@pytest.fixture(params=["auto", "cached", "off"])
def mode(request, tmp_path):
    with override(home=tmp_path / "store", tune=request.param, tune_budget_s=60.0):
        yield request.param


def test_what_is_pruned_is_never_launched(mode):
    kernel = made(prune_configs_by={"early_config_prune": lambda configs, named, **_: LARGE})
    assert block_of(kernel) == 1024
    x = np.zeros(3000, dtype=np.float32)
    assert re.search("BLOCK=64.*: pruned by the author", kernel.explain(x, x, 3000, grid=GRID))


def test_the_first_config_is_the_first_of_the_authors_order(tmp_path):
    with override(home=tmp_path, tune="off"):
        kernel = made(prune_configs_by={"early_config_prune": lambda configs, named, **_: configs[:0:-1]})
        assert block_of(kernel) == 1024


def test_what_a_pruner_is_told(tmp_path):
    told = []

    def prune(configs, named_args, **kwargs):
        told.append((configs, named_args, kwargs))
        return configs[1:2]

    with override(home=tmp_path, tune="auto"):
        kernel = made(prune_configs_by={"early_config_prune": prune})
        x, out = np.zeros(300, dtype=np.float32), np.zeros(300, dtype=np.float32)
        kernel[GRID](x, out, n=300)
    ((configs, named, kwargs),) = told
    assert configs == CONFIGS, "Triton's own objects, with their methods"
    assert all(one is other for one, other in zip(configs, CONFIGS, strict=True))
    assert named["x"] is x
    assert named["n"] == kwargs["n"] == 300
    assert (kwargs["grid"], kwargs["warmup"]) == (GRID, False)


@pytest.mark.parametrize(("top_k", "asked", "expected"), [(1, 3, 256), (0.4, 3, 256), (3, 0, None)])
def test_a_model_keeps_the_best_guesses(tmp_path, top_k, asked, expected):
    told = []

    def guess(x, n, BLOCK, num_warps, **_):
        told.append(BLOCK)
        assert (x.dtype, n, num_warps) == (np.float32, 3000, 4)
        return abs(BLOCK - 200)

    with override(home=tmp_path, tune="off"):
        block = block_of(made(prune_configs_by={"perf_model": guess, "top_k": top_k}))
    assert len(told) == asked, "not asked where all may stay"
    assert block == (expected or 64)


def test_a_model_chooses_among_what_the_pruner_leaves(tmp_path):
    pruner = {
        "early_config_prune": lambda configs, named, **_: [c for c in configs if c.kwargs["BLOCK"] != 256],
        "perf_model": lambda BLOCK, **_: abs(BLOCK - 200),
        "top_k": 1,
    }
    with override(home=tmp_path, tune="auto"):
        assert block_of(made(prune_configs_by=pruner)) == 64


def fitting(configs, named_args, **_):
    """As many elements a block as divide the size: a rule that a wrong result would come of where it is broken."""
    return [config for config in configs if named_args["n"] % config.kwargs["BLOCK"] == 0]


def test_every_value_of_the_key_is_asked_for_by_itself(mode):
    kernel = made(prune_configs_by={"early_config_prune": fitting})
    assert block_of(kernel, 64 * 65) == 64
    assert block_of(kernel, 1024 * 5) in BLOCKS
    for _ in range(2):  # all in one bucket; the second time nothing is asked any more
        assert block_of(kernel, 64 * 67) == 64
        assert block_of(kernel, 256 * 17) in BLOCKS[:2]


def test_a_winner_that_the_pruner_does_not_allow_any_more_is_not_used(tmp_path):
    with override(home=tmp_path, tune="auto", tune_budget_s=60.0):
        block_of(made())  # measures all
        kernel = made(prune_configs_by={"early_config_prune": lambda configs, named, **_: configs[:1]})
        assert block_of(kernel) == 64
        with override(tune="frozen", home=tmp_path):
            assert block_of(made(prune_configs_by={"early_config_prune": lambda c, named, **_: c[1:]})) in BLOCKS[1:]
    with override(home=tmp_path / "empty", tune="frozen"), pytest.raises(FrozenError):
        block_of(made(prune_configs_by={"early_config_prune": lambda c, named, **_: c[1:]}))


@pytest.mark.parametrize(
    ("pruner", "message"),
    [
        ({"early_config_prune": lambda configs, named, **_: []}, "prune_configs_by failed on this call|leaves none"),
        ({"early_config_prune": lambda configs, named, **_: 1 / 0}, "ZeroDivisionError: division by zero"),
        ({"perf_model": lambda **_: 1, "top_k": 1.5}, "top_k must be either"),
        (
            {"early_config_prune": lambda configs, named, **_: [triton.Config({"n": 5})]},
            "no config of the space sets n",
        ),
    ],
)
def test_what_is_wrong_with_a_pruner_is_said_at_the_call(mode, pruner, message):
    kernel = made(prune_configs_by=pruner)
    with pytest.raises(SpaceError, match=message):
        block_of(kernel)


def test_a_config_that_a_pruner_makes_is_used(tmp_path):
    with override(home=tmp_path, tune="auto"):
        pruner = {"early_config_prune": lambda configs, named, **_: [triton.Config({"BLOCK": 512}, num_warps=4)]}
        assert block_of(made(prune_configs_by=pruner)) == 512


def test_a_space_given_to_silo_replaces_the_configs_and_their_pruner(tmp_path):
    with override(home=tmp_path, tune="off"):
        pruner = {"early_config_prune": lambda configs, named, **_: LARGE}
        assert block_of(made(options={"space": {"BLOCK": [128, 64]}}, prune_configs_by=pruner)) == 128


@pytest.mark.parametrize("hook", ["pre_hook", "post_hook"])
def test_hooks_are_refused_with_what_to_do(hook):
    def zero(*_args, **_kwargs):
        pass

    with pytest.raises(SourceError, match=rf"test_pruning.py:\d+\): triton.autotune has the {hook} 'zero'.*space="):
        made(**{hook: zero})
    made(configs=CONFIGS[:1], **{hook: zero})  # Triton measures nothing then, so it never runs it
    made(options={"space": {"BLOCK": [64]}}, **{hook: zero})


def test_what_is_said_of_measuring_has_no_effect_and_a_message_says_so(caplog):
    caplog.set_level(logging.INFO, logger="silo")
    made(do_bench=lambda call, quantiles: [1.0, 1.0, 1.0])
    assert "do_bench of triton.autotune has no effect" in caplog.text
    with pytest.warns(DeprecationWarning, match="rep"):
        made(warmup=5, rep=10)
    assert "warmup, rep of triton.autotune have no effect" in caplog.text
    assert TritonSource.of(triton.autotune(CONFIGS, key=[])(triton.jit(whole))).measured_by == ()


FILE = """
import silo
import triton
import triton.language as tl


def fitting(configs, named_args, **_):
    return [config for config in configs if RULE]


@silo.kernel(grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 256, 1024)], key=["n"],
                 prune_configs_by={"early_config_prune": fitting})
@triton.jit
def whole(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + BLOCK, mask=i < n)


@whole.cases(n=[4160, 5120])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n))
"""


def bundled(tmp_path, rule, tune):
    file = tmp_path / "kernels.py"
    file.write_text(FILE.replace("RULE", rule))
    with override(home=tmp_path / "store"):
        build_bundle([file], tmp_path / "k.silo", tune=tune)
        return silo.load(tmp_path / "k.silo", trust=True).whole


def bundle_block(kernel, n):
    x, out = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
    kernel(x, out, n)
    return int(out[0])


@pytest.mark.parametrize("tune", ["auto", "off"])
def test_a_bundle_knows_what_the_pruner_allowed(tmp_path, tune):
    rule = 'config.kwargs["BLOCK"] == (64 if named_args["n"] % 1024 else 1024)'
    kernel = bundled(tmp_path, rule, tune)
    assert bundle_block(kernel, 4160) == 64
    assert bundle_block(kernel, 5120) == 1024, "of the same bucket"
    with pytest.raises(NoVariantError, match="its author's pruner did not allow"):
        bundle_block(kernel, 4224)


def test_a_pruner_that_allows_the_same_everywhere_limits_no_calls(tmp_path):
    kernel = bundled(tmp_path, 'config.kwargs["BLOCK"] > 64', "off")
    assert bundle_block(kernel, 4160) == bundle_block(kernel, 4224) == 256

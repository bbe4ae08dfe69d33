"""Bundles for devices that are not here hold their kernels' spaces, so that tuning there finds the best."""

import contextlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

from click.testing import CliRunner

import silo
from fake_backend.measure import FakeEvaluator, FakeLandscape
from silo.building import packed_code
from silo.bundle.reader import open_bundle
from silo.cli.build import _CONFIGS
from silo.cli.main import app
from silo.commands.build_bundle import build_bundle
from silo.commands.bundle_description import describe_bundle, verify_bundle
from silo.commands.tune_cases import tune_path
from silo.compile.build_list import DEFAULT_CODE_BYTES, DEFAULT_CONFIGS, Packing, within_bytes
from silo.core.config import Config
from silo.errors import CompileError, SpaceError
from silo.settings import override
from silo.tuning import bundle_tuning

AWAY = "cpu:x86-64-v2"
BLOCKS = (64, 128, 256, 512, 1024)
SCALE = """
import numpy as np
import silo
import triton
import triton.language as tl


@silo.kernel(space={space}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@scale.cases(n=[{sizes}])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n, 0.5), expected={{"out": lambda: x.host * np.float32(0.5)}})
"""


def built(folder, space, *targets, sizes="1024", **options):
    source = folder / "kernels.py"
    source.write_text(SCALE.format(space=space, sizes=sizes))
    return build_bundle([source], folder / "k.silo", targets=targets or [AWAY], **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a store of its own."""
    folder = tmp_path_factory.mktemp("packing")
    with override(home=folder / "store"):
        yield folder


@pytest.fixture(scope="module")
def bundle(folder):
    """Ten configs for a level of CPU that is not this machine's own, but that it runs."""
    own = folder / "whole"  # other tests build another bundle of the same name
    own.mkdir()
    summary = built(own, {"BLOCK": list(BLOCKS), "num_warps": [4, 8]}, sizes="1024, 65536", tune="cached")
    assert [(row.configs, row.space) for row in summary.rows] == [(10, 10)]
    assert summary.remarks == ()
    return own / "k.silo"


def test_the_whole_space_is_packed_and_counted(bundle):
    (row,) = describe_bundle(bundle).coverage
    assert (row.kernel, row.target, row.packed, row.space) == ("scale", AWAY, 10, 10)
    assert verify_bundle(bundle) == []
    shown = CliRunner().invoke(app, ["inspect", str(bundle)], env={"COLUMNS": "200"}).output
    assert "10 of 10" in shown


def test_equal_code_is_stored_once(bundle):
    """num_warps means nothing to a CPU: half the variants have the code of the other half."""
    with open_bundle(bundle) as opened:
        kernel = opened.kernel("scale")
        exact = [one for one in kernel.variants if one.artifact.variant.specialization.facts]
        assert len(exact) == 10
        assert len({one.artifact.blob.sha256 for one in exact}) == 5


def test_calls_get_the_heuristics_choice_until_it_is_tuned_then_the_best(bundle, tmp_path, monkeypatch):
    """A device measures what was packed for it, and the best config is among that wherever it lies in the space."""
    bundle = Path(shutil.copy(bundle, tmp_path))
    best = Config.of(BLOCK=512, num_warps=8)
    landscape = FakeLandscape(optimum=best)
    seen = []

    @contextlib.contextmanager
    def measured(study, artifacts, benches, compare, configs, metrics):
        seen.extend(configs)
        yield FakeEvaluator(study, landscape)

    monkeypatch.setattr(bundle_tuning, "evaluators", measured)
    x = np.ones(1024, np.float32)
    with override(tune="off"):
        before = silo.load(bundle, trust=True).scale.explain(x, x.copy(), 1024, 0.5)
    assert "BLOCK=64" in next(line for line in before.splitlines() if line.startswith("chosen"))
    rows = tune_path(bundle, trust=True)
    assert [row.winner for row in rows] == [str(best)] * 2
    assert len({config.order_key for config in seen}) == 10
    assert not any("are packed" in remark for row in rows for remark in row.remarks)
    loaded = silo.load(bundle, trust=True)
    after = loaded.scale.explain(x, x.copy(), 1024, 0.5)
    assert "BLOCK=512" in next(line for line in after.splitlines() if line.startswith("chosen"))
    out = np.empty_like(x)
    loaded.scale(x, out, 1024, 0.5)
    assert (out == 0.5).all()
    assert describe_bundle(bundle).coverage[0].space == 10


def test_a_limit_is_said_and_tuning_says_what_is_not_there(folder, monkeypatch):
    summary = built(folder, {"BLOCK": list(BLOCKS)}, tune="cached", configs="2")
    assert [(row.configs, row.space) for row in summary.rows] == [(2, 5)]

    @contextlib.contextmanager
    def measured(study, artifacts, benches, compare, configs, metrics):
        yield FakeEvaluator(study, FakeLandscape())

    monkeypatch.setattr(bundle_tuning, "evaluators", measured)
    (row,) = tune_path(folder / "k.silo", trust=True)
    assert any("2 of the 5 configs" in remark and "--configs all" in remark for remark in row.remarks)
    with pytest.raises(SpaceError, match="--configs some: it is a number"):
        built(folder, {"BLOCK": [64]}, configs="some")


def test_each_target_gets_its_own(folder):
    summary = built(folder, {"BLOCK": [128, 256], "num_warps": [4, 8]}, AWAY, "cuda:sm_90", "hip:gfx942", tune="off")
    assert [(row.configs, row.space) for row in summary.rows] == [(4, 4)] * 3
    rules = {row.target: row.config for row in describe_bundle(folder / "k.silo").winners if row.key != "otherwise"}
    assert set(rules.values()) == {"BLOCK=128, num_warps=4"}


def test_a_target_that_is_here_gets_its_choice_alone_unless_asked(folder):
    space = {"BLOCK": [64, 128, 256]}
    assert [row.configs for row in built(folder, space, "cpu", tune="cached").rows] == [1]
    assert [row.configs for row in built(folder, space, "cpu", tune="cached", configs="all").rows] == [3]


def test_configs_that_do_not_compile_are_left_out_and_named(folder):
    space = [{"BLOCK": 64}, {"BLOCK": 65}, {"BLOCK": 128}]
    summary = built(folder, space, tune="cached")
    assert [(row.configs, row.space) for row in summary.rows] == [(2, 3)]
    (remark,) = summary.remarks
    assert re.match(r"scale: 1 of its variants for cpu:x86-64-v2 do not compile.*BLOCK=65", remark)
    with pytest.raises(CompileError):  # calls would get it
        built(folder, space[1:], tune="cached")


def test_what_no_config_is_to_blame_for_leaves_none_out(folder, monkeypatch):
    """A full disk would otherwise make a smaller bundle of the same inputs."""
    start = packed_code._start

    def full(compilation, one):
        wanted = dict(one.variant.config.as_dict())["BLOCK"] == 128
        return CompileError("cannot write kernel.s: No space left on device") if wanted else start(compilation, one)

    monkeypatch.setattr(packed_code, "_start", full)
    with pytest.raises(CompileError, match="No space left"):
        built(folder, {"BLOCK": [64, 128]}, tune="cached")


def test_code_over_the_limit_is_left_out_by_rank():
    sizes = [("a0", 0, [("x", 10)]), ("a1", 1, [("y", 4)]), ("a2", 2, [("z", 9)]), ("b0", 0, [("x", 10)])]
    assert within_bytes([*sizes, ("b1", 1, [("y", 4)])], 16) == {"a0", "a1", "b0", "b1"}
    assert within_bytes(sizes, None) == {"a0", "a1", "a2", "b0"}
    assert within_bytes(sizes, 1) == {"a0", "b0"}


def test_the_command_says_its_limits():
    assert Packing() == Packing(DEFAULT_CONFIGS, DEFAULT_CODE_BYTES)
    assert f"up to {DEFAULT_CONFIGS} configs" in _CONFIGS
    assert f"{DEFAULT_CODE_BYTES >> 20} MiB" in _CONFIGS

"""Kernels whose code is made for certain extents, from the first call to a bundle: Triton's, made to say so."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import silo
from fuzz.lies import Liar
from silo.bundle.contents import calls_of, host_code
from silo.bundle.reader import open_bundle
from silo.cli.main import app
from silo.commands.build_bundle import build_bundle
from silo.commands.bundle_description import describe_bundle, verify_bundle
from silo.commands.run_cases import run_cases
from silo.commands.tune_cases import tune_path
from silo.core.extents import Extents, HeldExtents
from silo.errors import ArgumentError, BundleFormatError, CaseError, NoVariantError, TrustError
from silo.kernels.collection import collect_kernels
from silo.kinds.triton.front.triton_source import TritonSource
from silo.machine.process_session import session
from silo.settings import override
from silo.tuner.ledger import studies_of

KERNELS = """
import numpy as np
import silo
import triton
import triton.language as tl


@silo.kernel(SPACE key=["n"], GRID)
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@scale.cases(shape=[(32, 32), (16, 64)])
def _(shape, make):
    x, out = make.normal(*shape), make.empty(*shape)
    return silo.Case(args=(x, out, shape[0] * shape[1]), expected={"out": lambda: x.host * 2} CASE)
"""
SPACE = 'space={"BLOCK": [128, 512], "num_warps": [4]},'
DECLARED = "grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)"


def text(space=SPACE, grid=DECLARED, case=""):
    return KERNELS.replace("SPACE", space).replace("GRID", grid).replace("CASE", case)


@pytest.fixture
def held(monkeypatch):
    """Makes every Triton kernel say that these extents decide its code."""

    def hold(arguments=None, *, grid=False):
        made = HeldExtents.of(arguments, grid=grid)
        monkeypatch.setattr(TritonSource, "extents", made)
        return made

    return hold


@pytest.fixture
def world(tmp_path):
    with override(home=tmp_path / "store", tune="off"):
        yield tmp_path


def kernel_of(folder, *words, **named):
    path = folder / "kernels.py"
    path.write_text(text(*words, **named))
    return collect_kernels([path], None)[0]


def built(folder, *words, configs=None, **named):
    kernel_of(folder, *words, **named)
    summary = build_bundle([folder / "kernels.py"], folder / "k.silo", targets=["cpu"], tune="off", configs=configs)
    return folder / "k.silo", summary


def called(kernel, *shape, grid=None):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    out = np.zeros_like(x)
    launch = kernel if grid is None else kernel[grid]
    launch(x, out, x.size)
    assert (out == 2 * x).all()


def test_each_shape_has_code_of_its_own(world, held):
    held({"x": "shape"})
    kernel = kernel_of(world)
    for shape in ((32, 32), (16, 64), (32, 32), (16, 64)):
        called(kernel.launcher, *shape)
    bindings = {one.tag.artifact.variant.specialization.extents for one in kernel.launcher.bindings}
    assert bindings == {(("x", Extents(shape)),) for shape in ((32, 32), (16, 64))}
    assert kernel.launcher.misses == 2
    x = np.zeros((8, 128), np.float32)
    assert "assumes: n divisible16, out aligned16, x aligned16, x (8, 128)" in kernel.explain(x, np.zeros_like(x), 1024)
    keys = {kernel.compiled(np.zeros(s, np.float32), np.zeros(s, np.float32), 1024) for s in ((32, 32), (16, 64))}
    assert len(keys) == 2


def test_a_kernel_that_asks_for_nothing_shares_its_code(world):
    kernel = kernel_of(world)
    for shape in ((32, 32), (16, 64), (8, 128)):
        called(kernel.launcher, *shape)
    assert len({one.tag.artifact for one in kernel.launcher.bindings}) == 1
    assert "extents" not in next(iter(kernel.launcher.bindings)).tag.artifact.variant.specialization.to_json()


def test_a_bundle_serves_the_shapes_of_its_cases_and_says_so(world, held):
    held({"x": "shape"})
    path, summary = built(world)
    (row,) = summary.rows
    assert row.serves == ("x (32, 32)", "x (16, 64)")
    assert row.variants == 2, "one for each case, and no fallback"
    assert verify_bundle(path) == []
    kernels = silo.load(path)
    for shape in ((32, 32), (16, 64), (32, 32)):
        called(kernels.scale, *shape)
    assert kernels.scale.launcher.misses == 2
    x = np.zeros((8, 128), np.float32)
    with pytest.raises(NoVariantError, match=r"argument x: shape \(8, 128\), this variant was built for \(32, 32\)"):
        kernels.scale(x, np.zeros_like(x), 1024)
    words = kernels.scale.explain(np.zeros((16, 64), np.float32), np.zeros((16, 64), np.float32), 1024)
    assert "rejected: " in words
    assert "argument x: shape (16, 64), this variant was built for (32, 32)" in words
    assert {one.serves for one in describe_bundle(path).variants} == {"x (32, 32)", "x (16, 64)"}
    assert all(row.ok for row in run_cases(path))


def test_strides_decide_where_the_source_says_so(world, held):
    held({"x": "layout"})
    path, summary = built(world)
    assert summary.rows[0].serves == ("x (32, 32), strides (32, 1)", "x (16, 64), strides (64, 1)")
    kernels = silo.load(path)
    called(kernels.scale, 16, 64)
    x = np.zeros((64, 16), np.float32).T
    message = r"argument x: strides \(1, 16\), this variant was built for \(64, 1\)"
    with pytest.raises(NoVariantError, match=message):
        kernels.scale(x, np.zeros((16, 64), np.float32), 1024)


def test_rules_and_winners_are_those_of_a_shape(world, held):
    held({"x": "shape"})
    path, summary = built(world, configs="all")
    assert (summary.rows[0].configs, summary.rows[0].space) == (4, 4)
    tune_path(path, device="cpu", budget_s=5)
    with open_bundle(path) as bundle:
        kernel = bundle.kernel("scale")
    assert [rules.extents for rules in kernel.rules] == [(("x", Extents((32, 32))),), (("x", Extents((16, 64))),)]
    assert verify_bundle(path) == []
    described = describe_bundle(path)
    assert any(row.key.startswith("x (16, 64); n") and row.reason == "measured" for row in described.winners)
    kernels = silo.load(path)
    for rules in kernel.rules:
        held = dict(rules.extents)["x"]
        assert isinstance(held, Extents)
        shape = held.shape
        called(kernels.scale, *shape)
        chosen = {one.tag.artifact.variant.config for one in kernels.scale.launcher.bindings}
        assert rules.rules.lookup([1024]).config in chosen


def test_a_declared_grid_that_decides_the_code(world, held):
    held(grid=True)
    kernel = kernel_of(world)
    for size in (1024, 1000, 1024, 512):
        called(kernel.launcher, size)
    made = {one.tag.artifact.variant.specialization.grid for one in kernel.launcher.bindings}
    assert made == {(8, 1, 1), (4, 1, 1)}
    assert kernel.launcher.misses == 3, "the guard holds n, on which the grid depends"
    path, summary = built(world)
    assert summary.rows[0].serves == ("grid (8, 1, 1)",)
    kernels = silo.load(path)
    called(kernels.scale, 1024)
    message = r"the grid is \(4, 1, 1\), and this variant was built for \(8, 1, 1\)"
    with pytest.raises(NoVariantError, match=message):
        called(kernels.scale, 512)


def test_a_grid_of_the_call_that_decides_the_code(world, held):
    held(grid=True)
    kernel = kernel_of(world, grid="", case=", grid=lambda a: (8,)")
    called(kernel.launcher, 1024, grid=(8,))
    called(kernel.launcher, 1024, grid=(9,))
    assert kernel.launcher.misses == 2
    with pytest.raises(ArgumentError, match="its code is made for one grid"):
        called(kernel.launcher, 1024, grid=lambda meta: (8,))
    path, summary = built(world, grid="", case=", grid=lambda a: (8,)")
    assert summary.rows[0].serves == ("grid (8, 1, 1)",)
    assert all(row.ok for row in run_cases(path))
    kernels = silo.load(path)
    called(kernels.scale, 1024, grid=8)
    with pytest.raises(NoVariantError, match=r"the grid is \(16, 1, 1\)"):
        called(kernels.scale, 1024, grid=16)
    with pytest.raises(CaseError, match="gives a grid that depends on the config"):
        built(world, grid="", case=", grid=lambda a: (silo.cdiv(1024, a.BLOCK),)")


def test_a_promise_to_bind_is_checked_when_debugging(world, held):
    held({"x": "shape"})
    with override(home=world / "store", tune="off", debug=True):
        kernel = kernel_of(world)
        x = np.zeros((32, 32), np.float32)
        bound = kernel.bind(x, np.zeros_like(x), 1024)
        bound(x, np.zeros_like(x), 1024)
        with pytest.raises(ArgumentError, match=r"argument x: shape \(64, 16\), this variant was built for \(32, 32\)"):
            bound(x.reshape(64, 16), np.zeros_like(x), 1024)


def test_a_promised_grid_is_checked_when_debugging(world, held):
    held(grid=True)
    with override(home=world / "store", tune="off", debug=True):
        kernel = kernel_of(world, grid="", case=", grid=lambda a: (8,)")
        x = np.zeros(1024, np.float32)
        bound = kernel.bind(x, np.zeros_like(x), 1024, grid=(8,))
        bound[8](x, np.zeros_like(x), 1024)
        with pytest.raises(ArgumentError, match=r"the grid is \(9, 1, 1\), and this variant was built for \(8, 1, 1\)"):
            bound[9](x, np.zeros_like(x), 1024)


def test_consent_is_to_code_for_its_shape(world, held):
    held({"x": "shape"})
    path, _ = built(world)
    with open_bundle(path) as bundle:
        kernel = bundle.kernel("scale")
    one = kernel.variants[0]
    before = host_code(one, calls_of(kernel))
    variant = one.artifact.variant
    wider = replace(variant.specialization, extents=(("x", Extents((1 << 20, 32))),))
    other = replace(one, artifact=replace(one.artifact, variant=replace(variant, specialization=wider)))
    assert host_code(other, calls_of(kernel)).digest != before.digest


def lied(path, change):
    """The bundle with a change of its manifest, and every hash right."""
    with open_bundle(path) as bundle:
        manifest = json.loads(bundle.manifest_text)
    change(manifest)
    made = path.with_name("lied.silo")
    made.write_bytes(Liar(path.read_bytes()).sealed(manifest))
    return made


def test_code_whose_shape_was_changed_is_not_trusted(world, held):
    held({"x": "shape"})
    path, _ = built(world)

    def wider(manifest):
        for row in manifest["tables"]["specializations"]:
            row["extents"] = [["x", {"shape": [64, *row["extents"][0][1]["shape"]]}]]
        for rules in manifest["kernels"][0]["rules"]:
            rules["extents"] = [["x", {"shape": [64, *rules["extents"][0][1]["shape"]]}]]

    with pytest.raises(TrustError):
        called(silo.load(lied(path, wider))["scale"], 64, 32, 32)

    def free(manifest):
        manifest["tables"]["specializations"][0].pop("extents")

    with pytest.raises(TrustError):
        called(silo.load(lied(path, free))["scale"], 8, 128)


@pytest.mark.parametrize(
    ("extents", "message"),
    [
        ([], "the extents of arrays, sorted by name"),
        ([["x", {"shape": [32, -1]}]], "the number is out of range"),
        ([["x", {"shape": [1 << 63]}]], "the number is out of range"),
        ([["x", {"shape": [1] * 33}]], "33 items where at most 32 are allowed"),
        ([["x", {"shape": [4, 4], "strides": [1]}]], "not the strides of an array"),
        ([["x", {"shape": [4], "strides": [1 << 63]}]], "the number is out of range"),
        ([["x", {"shape": [4], "stride": [1]}]], r"unknown members \['stride'\]"),
        ([["x", {"shape": [True]}]], "a bool where an integer is needed"),
        ([["x", [4]]], "a list where an object is needed"),
        ([["x", {"shape": [4]}], ["out", {"shape": [4]}]], "sorted by name"),
        ([["x", {"shape": [4]}], ["x", {"shape": [4]}]], "sorted by name"),
        ([["y", {"shape": [4]}]], "it has extents of y, and no such parameter"),
        ({"x": [4]}, "the extents of arrays"),
    ],
)
def test_extents_that_cannot_be_are_refused_with_their_field(world, held, extents, message):
    held({"x": "shape"})
    path, _ = built(world)

    def change(manifest):
        manifest["tables"]["specializations"][0]["extents"] = extents

    with pytest.raises(BundleFormatError, match=message) as caught:
        called(silo.load(lied(path, change))["scale"], 32, 32)
    assert "specialization" in str(caught.value.field)
    assert caught.value.offset > 0


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([4, 1], "a grid"),
        ([4, 1, 1, 1], "a grid"),
        ([-1, 1, 1], "the number is out of range"),
        ([1 << 63, 1, 1], "the number is out of range"),
        (4, "a grid"),
        ([True, 1, 1], "a bool where an integer is needed"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(world, held, grid, message):
    held(grid=True)
    path, _ = built(world)

    def change(manifest):
        manifest["tables"]["specializations"][0]["grid"] = grid

    with pytest.raises(BundleFormatError, match=message) as caught:
        called(silo.load(lied(path, change))["scale"], 1024)
    assert caught.value.field.startswith("tables.specializations[0]")


def test_rules_of_extents_are_checked(world, held):
    held({"x": "shape"})
    path, _ = built(world)

    def twice(manifest):
        rules = manifest["kernels"][0]["rules"]
        rules[1]["extents"] = rules[0]["extents"]

    with pytest.raises(BundleFormatError, match="two dispatch rules for one target, signature and extents"):
        silo.load(lied(path, twice))["scale"]

    def wrong(manifest):
        manifest["kernels"][0]["rules"][0]["extents"] = [["x", {}]]

    with pytest.raises(BundleFormatError, match=r"kernels\[0\]\.rules\[0\]\.extents|the extents of an array"):
        silo.load(lied(path, wrong))["scale"]


def test_files_without_extents_are_of_the_version_they_were(world, held):
    path, _ = built(world)
    with open_bundle(path) as bundle:
        assert json.loads(bundle.manifest_text)["format"] == [1, 1]
        row = json.loads(bundle.manifest_text)["tables"]["specializations"][0]
    assert set(row) == {"facts", "constants"}

    def older(manifest):
        manifest["tables"]["specializations"][0]["extents"] = [["x", {"shape": [32, 32]}]]

    with pytest.raises(BundleFormatError, match=r"extents are of format 1\.2, and the file of 1\.1"):
        called(silo.load(lied(path, older))["scale"], 32, 32)
    held({"x": "shape"})
    path, _ = built(world)
    with open_bundle(path) as bundle:
        assert json.loads(bundle.manifest_text)["format"] == [1, 2]


def test_a_first_call_tunes_within_one_shape(world, held):
    held({"x": "shape"}, grid=True)
    with override(home=world / "store", tune="auto", tune_budget_s=5):
        kernel = kernel_of(world)
        for shape in ((32, 32), (16, 64)):
            called(kernel.launcher, *shape)
        studies = list(studies_of("scale", session().store.records))
    assert {study.specialization.extents for study in studies} == {(("x", Extents(s)),) for s in ((32, 32), (16, 64))}
    assert {study.specialization.grid for study in studies} == {None}, "a grid is known once the config is"


def test_the_commands_say_which_shapes_are_served(world, held, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    held({"x": "shape"}, grid=True)
    kernel_of(world)
    path = str(world / "k.silo")
    for words in (("build", str(world / "kernels.py"), "-o", path, "--tune", "off"), ("inspect", path)):
        assert not app(list(words), prog_name="silo", standalone_mode=False)
        shown = " ".join(capsys.readouterr().out.split())
        assert "serves only" in shown
        for extents in ("x (32, 32); grid (8, 1, 1)", "x (16, 64); grid (8, 1, 1)"):
            assert extents in shown


def test_the_rows_are_json(world, held):
    held({"x": "shape"})
    path, _ = built(world)
    assert json.dumps(describe_bundle(path).to_json())

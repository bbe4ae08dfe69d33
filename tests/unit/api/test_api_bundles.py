"""Bundles from outside: building, loading in a bare process, dispatch, trust, tuning in place."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import warm_python

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import silo
from silo.commands.build_bundle import build_bundle
from silo.commands.bundle_description import describe_bundle, verify_bundle
from silo.commands.run_cases import run_cases
from silo.commands.trust_code import trust_bundle
from silo.commands.tune_cases import tune_path
from silo.errors import (
    ArgumentError,
    BundleError,
    BundleFormatError,
    BundleVersionError,
    CaseError,
    NoVariantError,
    SourceError,
    TargetError,
    TrustError,
)
from silo.kernels.collection import collect_kernels
from silo.machine.device_plugins import device_named
from silo.machine.process_session import session
from silo.settings import override
from silo.tuner.trial import Status, trials_to_record
from silo.tuning.case_tuning import case_studies

KERNELS = """
import numpy as np
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [128, 512], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@scale.cases(n=[1024, 5000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n, 0.5), expected={"out": lambda: x.host * np.float32(0.5)})


@silo.kernel(grid=lambda a: (a.rows,))
@triton.heuristics({"BLOCK": lambda a: triton.next_power_of_2(a["columns"])})
@triton.jit
def total(x, out, rows, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    tl.store(out + row, tl.sum(tl.load(x + row * columns + i, mask=i < columns, other=0.0)))


@total.cases(columns=[100])
def _(columns, make):
    x, out = make.uniform(4, columns), make.empty(4)
    return silo.Case(args=(x, out, 4, columns), expected={"out": lambda: x.host.sum(axis=1)})
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A store, a file of kernels and a bundle made from it with tuning off."""
    folder = tmp_path_factory.mktemp("bundles")
    source = folder / "kernels.py"
    source.write_text(KERNELS)
    with override(home=folder / "store", tune="off"):
        summary = build_bundle([source], folder / "k.silo", targets=["cpu", "cuda:sm_90"], tune="off")
        yield folder, summary


@pytest.fixture
def bundle(world, tmp_path):
    """A copy of the bundle, far from its sources."""
    return Path(shutil.copy(world[0] / "k.silo", tmp_path / "k.silo"))


def silo_command(home, *words, cwd=None, **variables):
    environment = {**os.environ, "SILO_HOME": str(home), "COLUMNS": "120", **variables}
    command = [sys.executable, "-c", "from silo.cli.main import main; main()", *map(str, words)]
    return warm_python.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_build_says_what_it_made(world):
    _, summary = world
    assert {row.kernel for row in summary.rows} == {"scale", "total"}
    assert {row.target.partition(":")[0] for row in summary.rows} == {"cpu", "cuda"}
    assert summary.compiled > 0


@pytest.mark.usefixtures("compiles_anew")
def test_two_folders_give_the_same_bytes(world, tmp_path):
    folder, _ = world
    other = tmp_path / "some" / "where"
    other.mkdir(parents=True)
    (other / "kernels.py").write_text(KERNELS)
    words = ("build", other / "kernels.py", "-o", "k.silo", "-t", "cpu", "-t", "cuda:sm_90", "--tune", "off")
    done = silo_command(tmp_path / "store", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "k.silo").read_bytes() == (folder / "k.silo").read_bytes()


def test_its_cases_run_without_the_sources(bundle):
    outcomes = run_cases(bundle)
    assert [(one.kernel, one.case, one.ok) for one in outcomes] == [
        ("scale", "n=1024", True),
        ("scale", "n=5000", True),
        ("total", "columns=100", True),
    ]


def test_a_bare_process_needs_neither_triton_nor_torch_nor_numpy(world, bundle):
    code = """
import array, json, sys, silo
x, out = silo.Buffer((64,), "float32"), silo.Buffer((64,), "float32")
x.raw[:] = array.array("f", range(64)).tobytes()
silo.load(sys.argv[1]).scale(x, out, 64, 2.0)
heavy = [name for name in ("triton", "torch", "numpy", "jax") if name in sys.modules]
print(json.dumps([array.array("f", out.raw.tobytes()).tolist(), heavy]))
"""
    environment = {**os.environ, "SILO_HOME": str(world[0] / "store")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(bundle)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    values, loaded = json.loads(done.stdout)
    assert values == [2.0 * i for i in range(64)]
    assert loaded == []


def test_names_iteration_and_unknown_kernels(bundle):
    kernels = silo.load(bundle)
    assert list(kernels) == ["scale", "total"]
    assert len(kernels) == 2
    assert "scale" in kernels
    assert kernels["scale"] is kernels.scale
    assert {"scale", "total"} <= set(dir(kernels))
    with pytest.raises(BundleError, match="scale, total"):
        kernels["nope"]
    with pytest.raises(AttributeError, match="nope"):
        _ = kernels.nope


def test_generic_variants_serve_what_the_cases_do_not(bundle):
    kernel = silo.load(bundle).scale
    x, out = np.arange(777, dtype=np.float32), np.zeros(777, dtype=np.float32)
    kernel(x[1:], out[1:], 776, 3.0)  # neither aligned nor divisible
    np.testing.assert_array_equal(out[1:], 3 * x[1:])
    kernel[(7,)](x, out, 777, 2.0)
    np.testing.assert_array_equal(out, 2 * x)


def test_a_miss_lists_every_variant_with_its_reason(bundle):
    kernels = silo.load(bundle)
    doubles = np.zeros(10)
    with pytest.raises(NoVariantError) as caught:
        kernels.scale(doubles, doubles, 10, 1.0)
    *own, foreign = caught.value.rejections
    held = [one.artifact.variant.target.kind for one in kernels.scale.contents.variants]
    assert len(own) == held.count("cpu")
    assert foreign == f"{held.count('cuda')} variants for cuda:sm_90a: built for cuda, the device is cpu"
    assert any("float64" in line for line in caught.value.rejections)
    assert any("cuda:sm_90a" in line for line in caught.value.rejections)
    with pytest.raises(NoVariantError, match="BLOCK=128, and the call needs BLOCK=512"):
        kernels.total(np.zeros((2, 300), "f4"), np.zeros(2, "f4"), 2, 300)
    text = kernels.scale.explain(np.zeros(1024, "f4"), np.zeros(1024, "f4"), 1024, 1.0)
    assert text.count("chosen:") == 1
    assert "rejected:" in text


def test_wrong_calls_of_a_bundled_kernel(bundle):
    kernel = silo.load(bundle).scale
    x = np.zeros(10, dtype=np.float32)
    with pytest.raises(ArgumentError, match="without out, n, factor"):
        kernel(x)
    frozen = np.zeros(10, dtype=np.float32)
    frozen.flags.writeable = False
    with pytest.raises((ArgumentError, NoVariantError), match="read-only"):
        kernel(x, frozen, 10, 1.0)
    kernel(frozen, x, 10, 1.0)


def test_host_code_needs_somebody_to_vouch_for_it(bundle, tmp_path):
    x, out = np.ones(16, dtype=np.float32), np.zeros(16, dtype=np.float32)
    with override(home=tmp_path / "another"):
        with pytest.raises(TrustError, match="silo trust"):
            silo.load(bundle).scale(x, out, 16, 2.0)
        assert (out == 0).all()
        loaded = silo.load(bundle, trust=True)
        assert repr(loaded.scale) == f"<silo kernel scale of {bundle.name}>"
        loaded.scale(x, out, 16, 2.0)
        assert (out == 2).all()
        assert describe_bundle(bundle).kernels == ("scale", "total")  # reading needs no trust
        assert trust_bundle(bundle).added
        silo.load(bundle).scale(x, out, 16, 3.0)
        assert (out == 3).all()


def test_tuning_a_bundle_refines_it_in_place_and_once(bundle):
    before = describe_bundle(bundle)
    rows = tune_path(bundle, kernels=["scale"])
    assert all(row.winner for row in rows)
    after = describe_bundle(bundle)
    assert [row.target for row in after.variants] == [row.target for row in before.variants]
    assert after.cases == before.cases
    measured = [row for row in after.winners if row.kernel == "scale" and row.target.startswith("cpu")]
    assert any(row.reason == "measured" for row in measured)
    assert verify_bundle(bundle) == []
    assert all(one.ok for one in run_cases(bundle))
    assert sum(row.measured for row in tune_path(bundle, kernels=["scale"])) == 0


def test_damage_is_found_and_named(bundle, tmp_path):
    data = bundle.read_bytes()
    cases = {
        "truncated": (data[: len(data) // 2], BundleFormatError),
        "foreign": (b"PK\x03\x04" + data[4:], BundleFormatError),
        "empty": (b"", BundleFormatError),
        "newer": (data[:8] + (99).to_bytes(2, "little") + data[10:], BundleVersionError),
        "flipped": (data[:-20] + bytes([data[-20] ^ 1]) + data[-19:], BundleFormatError),
    }
    for name, (damaged, kind) in cases.items():
        path = tmp_path / f"{name}.silo"
        path.write_bytes(damaged)
        with pytest.raises(kind) as caught:
            silo.load(path)
        if kind is BundleFormatError:
            assert caught.value.field
            assert caught.value.offset >= 0
        assert silo_command(tmp_path / "store", "run", path).returncode == 3


def test_a_flipped_bit_in_code_is_refused_before_it_is_loaded(bundle, tmp_path):
    data = bytearray(bundle.read_bytes())
    with silo.load(bundle)._bundle as opened:
        code = [one for one in opened.blobs if one.kind == "so"]
    for entry in code:  # all of them: which ones the cases load depends on the sizes of the cases
        data[entry.offset + entry.stored_bytes // 2] ^= 1
    path = tmp_path / "flipped.silo"
    path.write_bytes(data)
    with pytest.raises(BundleFormatError, match=r"offset"):
        run_cases(path)
    done = silo_command(tmp_path / "store", "inspect", path, "--verify")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


NO_CASES = KERNELS.partition("@scale.cases")[0]
BAD_BUILDS = {
    "an unknown kind": (KERNELS, ["gpu"], "k.silo", TargetError, "gpu"),
    "an unknown arch": (KERNELS, ["cuda:90"], "k.silo", TargetError, "cuda:sm_90a"),
    "a device that is not here": (KERNELS, ["cuda"], "k.silo", TargetError, "Name the arch"),
    "no compiler for it": (KERNELS, ["tpu:v5e"], "k.silo", TargetError, "nothing here compiles"),
    "another ending": (KERNELS, ["cpu"], "k.bin", BundleError, r"\.silo"),
    "no folder": (KERNELS, ["cpu"], "nowhere/k.silo", BundleError, "not a folder"),
    "no kernels": ("x = 1\n", ["cpu"], "k.silo", SourceError, "defines no kernel"),
    "no cases": (NO_CASES, ["cpu"], "k.silo", CaseError, "has no cases"),
    "a missing package": ("import no_such_package\n", ["cpu"], "k.silo", SourceError, "no_such_package"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "targets", "output", "kind", "message"), BAD_BUILDS.values(), ids=BAD_BUILDS.keys())
def test_a_build_that_cannot_be_says_why_and_leaves_the_old_file(world, tmp_path, text, targets, output, kind, message):
    source, old = tmp_path / "kernels.py", tmp_path / output
    source.write_text(text)
    if old.parent.is_dir():
        old.write_bytes(b"the old file")
    with pytest.raises(kind, match=message):
        build_bundle([source], old, targets=targets, tune="off")
    assert not old.parent.is_dir() or old.read_bytes() == b"the old file"


def test_dispatch_takes_the_measured_config_of_the_nearest_bucket(tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text(KERNELS)
    with override(home=tmp_path / "store", tune="cached"):
        (scale,) = collect_kernels([source], ["scale"])
        for study, block in zip(case_studies(scale, device_named("cpu")), (128, 512), strict=True):
            # As if each case had been measured: its own block wins.
            problem = scale.resolver.problem(study.situation)
            made = problem.study(study.situation.specialization, study.bucket)
            for config in scale.space.configs():
                fast = dict(config.values)["BLOCK"] == block
                trial = made.trial(config, Status.OK, [1000 if fast else 9000] * 9)
                session().store.records.append(made.key, trials_to_record([trial]))
        bundle = tmp_path / "k.silo"
        build_bundle([source], bundle, kernels=["scale"], tune="cached")
        kernel = silo.load(bundle).scale
        for n, block in ((1024, 128), (5000, 512), (600, 128), (60_000, 512)):
            x, out = np.ones(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
            kernel(x, out, n, 2.0)
            assert (out == 2).all()
            assert kernel.launcher.resolve(x, out, n, 2.0).config["BLOCK"] == block
    measured = [row for row in describe_bundle(bundle).winners if row.reason == "measured"]
    assert {row.config for row in measured} == {"BLOCK=128, num_warps=4", "BLOCK=512, num_warps=4"}

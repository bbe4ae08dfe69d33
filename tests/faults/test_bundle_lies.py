"""Bundles that lie about code that this user's store built: an error or the right result, and no dead process."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="the bundle is built from Triton kernels")

from bundle_samples import put
from fuzz.bundle_worker import FORMS
from fuzz.bundles import make_good, run
from fuzz.guarded import Guarded
from fuzz.lies import Liar
from silo.bundle.reader import open_bundle
from silo.bundle.writer import write_bundle
from silo.commands.show_code import code_of
from silo.errors import BundleError, BundleFormatError, NoVariantError, SourceError
from silo.frozen import replace
from silo.kernels.bundle_kernels import load
from silo.settings import override

_SEEDS = 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("lies")


@pytest.fixture(scope="module")
def good(folder) -> Path:
    return make_good(folder)[0]


def test_the_bundle_that_is_lied_about_is_right(folder, good):
    from random import Random

    guarded = [Guarded() for _ in range(3)]
    with override(home=folder / "home"):
        kernels = load(good)
        for seed in range(4):
            for name, form in FORMS.items():
                arguments, expected = form(guarded, Random(seed))
                kernels[name](*arguments)
                for place, values in expected.items():
                    assert np.array_equal(arguments[place], values)
        assert all(one.is_whole() for one in guarded)


def test_a_sample_of_lies(folder, good):
    found = run(folder, 0, _SEEDS)
    assert found.faults == []
    assert found.counts["bundles"] == _SEEDS
    assert found.counts["launched"]
    assert found.counts["call: TrustError"]
    assert found.counts["open: BundleFormatError"]


def test_lies_are_the_same_for_a_seed_and_differ_by_it(good):
    data = good.read_bytes()
    made = [Liar(data).lie(seed) for seed in range(40)]
    assert made == [Liar(data).lie(seed) for seed in range(40)]
    assert len({one for one, _ in made}) > 30


def lied(good, path, change) -> Path:
    """The bundle with a change of its manifest."""
    liar = Liar(good.read_bytes())
    with open_bundle(good) as bundle:
        manifest = json.loads(bundle.manifest_text)
    change(manifest)
    path.write_bytes(liar.sealed(manifest))
    return path


def test_rules_go_by_the_key_of_their_kernel(folder, good, tmp_path):
    """A key of the rules alone was looked up in vain: KeyError at a call."""

    def rules_alone(manifest):
        manifest["kernels"][0]["rules"][0]["rules"]["key"] = ["x"]

    def both(manifest):
        rules_alone(manifest)
        manifest["kernels"][0]["key"] = ["x"]

    arguments = [np.ones(8, np.float32), np.ones(8, np.float32), np.ones(8, np.float32), 8]
    with override(home=folder / "home"):
        with pytest.raises(BundleFormatError, match=r"kernels\[0\]\.rules\[0\]\.rules\.key"):
            load(lied(good, tmp_path / "a.silo", rules_alone))["add"]
        with pytest.raises(BundleError, match="add is chosen by 'x', and no number"):
            load(lied(good, tmp_path / "b.silo", both)).add(*arguments)


def test_an_integer_of_no_type_is_taken_by_nobody(folder, good, tmp_path):
    """It was a failed assertion at a call."""

    def untyped(manifest):
        for signature in manifest["tables"]["signatures"]:
            for parameter in signature:
                if parameter["kind"] == "integer":
                    parameter.pop("dtype", None)

    x = np.ones(8, np.float32)
    with override(home=folder / "home"), pytest.raises(NoVariantError, match="it takes one of no known type"):
        load(lied(good, tmp_path / "c.silo", untyped)).add(x, x, x.copy(), 8)


def test_a_text_that_is_none_is_an_error(good, tmp_path):
    """It was a UnicodeDecodeError where the code is shown."""
    with open_bundle(good) as bundle:
        contents = bundle.contents()
        blobs = {ref.sha256: bundle.blob(ref.sha256) for ref in bundle.refs}
    kernel = contents.kernels[0]
    bad = put(blobs, "ttir", b"module \xff")
    artifact = kernel.variants[0].artifact
    changed = replace(kernel.variants[0], artifact=replace(artifact, sidecars=(artifact.sidecars[0], bad)))
    path = tmp_path / "d.silo"
    write_bundle(path, replace(contents, kernels=(replace(kernel, variants=(changed,)),)), blobs.get)
    with pytest.raises(SourceError, match="is not text: byte 7 is no UTF-8"):
        code_of(path, "ttir")


GUARDED = """
import numpy as np
from fuzz.guarded import Guarded
guarded = Guarded()
values = guarded.array(np.zeros(4, np.float32), readonly={readonly})
import ctypes
ctypes.memset(values.ctypes.data + {offset}, 1, 1)
print(guarded.is_whole())
"""


@pytest.mark.parametrize(
    ("readonly", "offset", "expected"),
    [(False, 0, "True"), (False, -1, "False"), (False, 16, "dead"), (True, 0, "dead"), (True, 15, "dead")],
)
def test_arrays_are_guarded(readonly, offset, expected):
    text = GUARDED.format(readonly=readonly, offset=offset)
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip() or ("dead" if done.returncode < 0 else done.stderr)) == expected

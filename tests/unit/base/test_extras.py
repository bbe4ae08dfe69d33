"""Every extra of the distribution, where its packages are not installed: the command says what to install."""

import dataclasses
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fleets
from bundle_samples import sample
from silo.bundle.format import TRIALS_KIND
from silo.bundle.update import document_blob
from silo.bundle.writer import write_bundle
from silo.frozen import replace
from silo.tuner.ledger import pair_to_document

ROOT = Path(__file__).parents[3]
HIDE = """
import importlib.machinery

find = importlib.machinery.PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else find(name, path, target)


importlib.machinery.PathFinder.find_spec = find_spec
"""
# The packages that are not there, and a command that needs one of them.
WITHOUT = {
    "triton": (("triton",), ("run", "examples/kernels.py")),
    "cute": (("cutlass", "tvm_ffi"), ("run", "examples/cute_kernels.py")),
    "cuda": (("nvidia",), ("build", "examples/cuda_kernels.py", "-o", "OUT.silo", "--target", "cuda:sm_90")),
    "pallas": (("jax", "jaxlib"), ("run", "examples/pallas_kernels.py")),
    "numpy": (("numpy", "triton", "torch"), ("tune", "K.silo")),
    "ray": (("ray",), ("tune", "examples/kernels.py", "--ray", "local")),
    "remote": (("obstore",), ("cache", "check")),
    "report": (("jinja2",), ("report", "K.silo", "-o", "OUT")),
    "sign": (("cryptography",), ("keygen", "made.key", "--no-password")),
}


def test_every_extra_is_tried():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(WITHOUT) == set(declared) - {"dev", "rich"}  # without rich, tables are plain text


def write_measured(path):
    """A bundle of one kernel with a trial."""
    made = sample(1, 1)
    (kernel,) = made.contents.kernels
    study = dataclasses.replace(fleets.STUDY, kernel=kernel.name)
    trials, data = document_blob(TRIALS_KIND, [pair_to_document(study, fleets.Here().evaluate(fleets.CONFIGS[0]))])
    made.blobs[trials.sha256] = data
    write_bundle(path, replace(made.contents, kernels=(replace(kernel, trials=trials, cases=None),)), made.read_blob)


@pytest.mark.parametrize("extra", WITHOUT)
def test_a_command_without_the_packages_of_an_extra_says_what_to_install(tmp_path, extra):
    hidden, words = WITHOUT[extra]
    (tmp_path / "sitecustomize.py").write_text(HIDE.replace("HIDDEN", repr(hidden)))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SILO_HOME": str(tmp_path / "store"),
        "COLUMNS": "300",
    }
    if extra == "remote":
        environment["SILO_REMOTE"] = "s3://bucket/prefix"
    if "K.silo" in words:
        write_measured(tmp_path / "K.silo")
    named = {
        "K.silo": tmp_path / "K.silo",
        "OUT": tmp_path / "OUT",
        "OUT.silo": tmp_path / "OUT.silo",
        "made.key": tmp_path / "made.key",
    }
    done = subprocess.run(
        [sys.executable, "-m", "silo", *(str(named.get(word, word)) for word in words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"kernel-silo[{extra}]" in done.stderr
    assert "Traceback" not in done.stderr

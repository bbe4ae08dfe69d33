"""The examples: bundled for TPUs and the CPU, the same in another folder, and run where their source is not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed here; tests/pallas.txt is run where it is")

from click.testing import CliRunner  # what follows needs jax

import silo
from silo.cli.main import app

EXAMPLES = Path(__file__).parents[4] / "examples" / "pallas_kernels.py"
TARGETS = ("cpu", "tpu:v5e", "tpu:v6e", "tpu:7x")
REBUILT = ("cpu", "tpu:v6e")
KERNELS = ("add", "gather", "matmul", "matmul_fori", "matmul_pipeline", "ragged", "softmax")
PROGRAM = """
import sys
from pathlib import Path
from silo.commands.run_cases import run_cases
made = run_cases(Path(sys.argv[1]), trust=True)
for one in made:
    print("ok" if one.ok else one)
assert all(one.ok for one in made)
assert "jax" in sys.modules
loaded = [name for name in sys.modules if "pallas" in name and not name.startswith("silo.")]
assert not loaded, loaded
"""


def words_of(bundle, examples, targets):
    return ["build", str(examples), "-o", str(bundle), *(word for target in targets for word in ("--target", target))]


def invoke(*words, tune="off"):
    """A command in this process: jax is loaded here, and a worker that has the compiler for TPUs is kept."""
    return CliRunner().invoke(app, [str(word) for word in words], env={"SILO_TUNE": tune})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    made = tmp_path_factory.mktemp("bundle") / "kernels.silo"
    done = invoke(*words_of(made, EXAMPLES, TARGETS))
    assert done.exit_code == 0, done.output
    return made


def test_every_kernel_is_there_for_every_target(bundle):
    kernels = silo.load(bundle, trust=True)
    assert tuple(sorted(kernels)) == KERNELS
    shown = json.loads(invoke("inspect", bundle, "--json").output)
    packed = {(one["kernel"], one["target"].partition("-")[0]) for one in shown["variants"]}
    assert packed == {(name, target.replace("cpu", "cpu:x86")) for name in KERNELS for target in TARGETS}


@pytest.mark.usefixtures("bundle")  # most of what is built is there already
def test_another_process_makes_the_same_of_it_in_another_folder(tmp_path):
    here, there = tmp_path / "here.silo", tmp_path / "there.silo"
    assert invoke(*words_of(here, EXAMPLES, REBUILT)).exit_code == 0
    elsewhere = tmp_path / "kernels_of_pallas.py"
    elsewhere.write_text("\n" + EXAMPLES.read_text())
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "home"), "SILO_TUNE": "off"}
    words = [sys.executable, "-m", "silo", *words_of(there, elsewhere, REBUILT)]
    subprocess.run(words, check=True, env=environment, cwd=tmp_path, capture_output=True)
    assert here.read_bytes() == there.read_bytes()


def test_the_cases_are_right_on_the_cpu_without_the_source_and_without_pallas(bundle):
    words = [sys.executable, "-c", PROGRAM, str(bundle)]
    made = subprocess.run(words, check=False, cwd=bundle.parent, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count("ok") >= len(KERNELS)


def test_checks_find_nothing_in_them():
    checked = ("matmul_fori", "matmul_pipeline", "ragged", "gather")  # copies, pipelines, pads, prefetched indices
    done = invoke("run", "--check", EXAMPLES, *(word for name in checked for word in ("-k", name)))
    assert done.exit_code == 0, done.output
    assert done.output.count("ok") == len(checked)


def test_other_shapes_dtypes_and_scalars_never_give_a_stale_result(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES.parent))
    import pallas_kernels

    generator = np.random.default_rng(1)
    for rows in (1000, 600, 1000, 1024):  # of one grid with blocks of 1024 rows
        x = generator.standard_normal((rows, 128)).astype(np.float32)
        out = np.empty_like(x)
        pallas_kernels.add(x, x, out, BLOCK=1024)
        assert np.array_equal(out, 2 * x)
        turned = np.asfortranarray(x)
        out = np.empty_like(turned)
        pallas_kernels.add(turned, x, out, BLOCK=1024)
        assert np.array_equal(out, 2 * x)
    half = x.astype(np.float16)
    out = np.empty_like(half)
    pallas_kernels.add(half, half, out, BLOCK=1024)
    assert np.array_equal(out, 2 * half)
    x = generator.standard_normal((256, 512)).astype(np.float32)
    for scale in (0.5, 2.0, 0.5):
        out = np.empty_like(x)
        pallas_kernels.softmax(x, out, scale, BLOCK=64)
        power = np.exp(scale * (x - x.max(-1, keepdims=True)))
        assert np.allclose(out, power / power.sum(-1, keepdims=True), atol=1e-6)


def test_nothing_is_tuned_where_kernels_are_interpreted(bundle):
    for words in (["tune", EXAMPLES, "--device", "cpu"], ["tune", bundle, "--device", "cpu", "--trust"]):
        made = invoke(*words, tune="auto")
        assert made.exit_code != 0
        assert "a CPU interprets Pallas kernels" in str(made.exception)

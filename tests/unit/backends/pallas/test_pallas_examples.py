"""The examples: bundled for TPUs and the CPU, the same in another folder, and run where their source is not."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed here; tests/pallas.txt is run where it is")

import silo  # what follows needs jax

EXAMPLES = Path(__file__).parents[4] / "examples" / "pallas_kernels.py"
TARGETS = ("cpu", "tpu:v5e", "tpu:v6e", "tpu:7x")
KERNELS = ("add", "gather", "matmul", "matmul_fori", "matmul_pipeline", "ragged", "softmax")
PROGRAM = """
import sys
import numpy as np
import silo
kernels = silo.load(sys.argv[1], trust=True)
x = np.ones((1000, 128), np.float32)
out = np.zeros_like(x)
kernels.add(x, x, out)
assert (out == 2).all()
assert "jax" in sys.modules
loaded = [name for name in sys.modules if "pallas" in name and not name.startswith("silo.")]
assert not loaded, loaded
"""


def build(folder, examples):
    bundle = folder / "kernels.silo"
    targets = [word for target in TARGETS for word in ("--target", target)]
    environment = {**os.environ, "SILO_HOME": str(folder / "home"), "SILO_TUNE": "off"}
    subprocess.run(
        [sys.executable, "-m", "silo", "build", str(examples), "-o", str(bundle), *targets],
        check=True,
        env=environment,
        cwd=folder,
        capture_output=True,
    )
    return bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return build(tmp_path_factory.mktemp("bundle"), EXAMPLES)


def test_every_kernel_is_there_for_every_target(bundle):
    kernels = silo.load(bundle, trust=True)
    assert tuple(sorted(kernels)) == KERNELS


def test_it_is_the_same_in_another_folder(bundle, tmp_path):
    elsewhere = tmp_path / "kernels_of_pallas.py"
    elsewhere.write_text("\n" + EXAMPLES.read_text())
    assert build(tmp_path, elsewhere).read_bytes() == bundle.read_bytes()


def test_the_cases_are_right_on_the_cpu(bundle):
    made = subprocess.run(
        [sys.executable, "-m", "silo", "run", str(bundle), "--trust"], check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count("ok") >= len(KERNELS)


def test_it_runs_in_a_process_without_the_source_and_without_pallas(bundle):
    subprocess.run([sys.executable, "-c", PROGRAM, str(bundle)], check=True, cwd=bundle.parent)


def test_other_shapes_dtypes_and_scalars_never_give_a_stale_result(bundle):
    sys.path.insert(0, str(EXAMPLES.parent))
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


def test_nothing_is_tuned_where_kernels_are_interpreted(bundle, tmp_path):
    environment = {**os.environ, "SILO_HOME": str(tmp_path), "SILO_TUNE": "auto"}
    for words in (["tune", str(EXAMPLES), "--device", "cpu"], ["tune", str(bundle), "--device", "cpu", "--trust"]):
        made = subprocess.run(
            [sys.executable, "-m", "silo", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode != 0
        assert "a CPU interprets Pallas kernels" in " ".join((made.stdout + made.stderr).split())

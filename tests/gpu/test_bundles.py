"""Bundles of GPU code, built here or elsewhere, opened in a fresh process with neither Triton nor torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_kernels import torch

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "kernels.py"
FOREIGN = os.environ.get("SILO_TEST_BUNDLE")

LAUNCH = """
import json, sys
import silo
import numpy as np
kernels = silo.load(sys.argv[1])
n = 10_000
x = silo.Buffer((n,), "float32", device="cuda")
y = silo.Buffer((n,), "float32", device="cuda")
out = silo.Buffer((n,), "float32", device="cuda")
values = np.arange(n, dtype=np.float32)
x.copy_from(values)
y.copy_from(values)
kernels.add(x, y, out, n)
right = bool((out.numpy() == 2 * values).all())
heavy = [name for name in ("triton", "torch", "jax", "cupy") if name in sys.modules]
print(json.dumps({"right": right, "heavy": heavy, "config": str(kernels.add.launcher.bindings[0].config)}))
"""


def run(*command, home):
    environment = {**os.environ, "SILO_HOME": str(home), "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def launched(bundle, home):
    return json.loads(run(sys.executable, "-c", LAUNCH, str(bundle), home=home).splitlines()[-1])


def test_a_bundle_built_here_launches_in_a_fresh_process(tmp_path):
    assert torch.cuda.is_available()

    bundle = tmp_path / "kernels.silo"
    run(
        sys.executable,
        "-c",
        "from silo.cli.main import main; main()",
        "build",
        str(EXAMPLES),
        "--target",
        "cuda",
        "-o",
        str(bundle),
        home=tmp_path / "one",
    )
    told = launched(bundle, tmp_path / "two")
    assert told["right"]
    assert told["heavy"] == []


@pytest.mark.skipif(FOREIGN is None, reason="SILO_TEST_BUNDLE names no bundle built on another machine")
def test_a_bundle_built_without_a_gpu_launches_here(tmp_path):
    told = launched(FOREIGN, tmp_path)
    assert told["right"]
    assert told["heavy"] == []

"""Gluon kernels on a real NVIDIA GPU: by silo.kernel, from a bundle without Triton, unchanged under silo exec."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import silo

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton.experimental.gluon", reason="no Triton with Gluon is installed")
if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
    pytest.skip("the kernels are for a Hopper GPU", allow_module_level=True)

gluon_program = pytest.importorskip("gluon_program")
gluon_kernels, gl = pytest.importorskip("gluon_kernels"), gluon_program.gl

pytestmark = pytest.mark.usefixtures("store")
SAMPLES = Path(gluon_program.__file__).parent


@pytest.mark.parametrize("name", sorted(gluon_program.RUNS))
def test_kernels_are_right_through_silo(name):
    function, run = gluon_program.RUNS[name]
    kernel = silo.kernel(function)
    for _ in range(2):
        got, wanted = run(kernel)
        torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)


def test_layouts_made_anew_do_not_compile_anew():
    kernel = silo.kernel(gluon_kernels.add)
    x, y, out = (torch.randn(4096, device="cuda") for _ in range(3))
    for size in (1, 2, 4, 1, 2, 4):
        layout = gl.BlockedLayout([size], [32], [4], [0])
        kernel[(-(-4096 // (128 * size)),)](x, y, out, 4096, 128 * size, layout)
        assert torch.equal(out, x + y)


FILE = """
import silo
import gluon_kernels
from gluon_kernels import gl

add = silo.kernel(gluon_kernels.add, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
move = silo.kernel(gluon_kernels.move, grid=lambda a: (silo.cdiv(a.source.shape[0], 64),))


@add.cases(n=[1000])
def sums(n, make):
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    constants = {"BLOCK": 128, "layout": gl.BlockedLayout([1], [32], [4], [0])}
    return silo.Case(args=(x, y, out, n), kwargs=constants, expected={"out": lambda: x.host + y.host})


@move.cases()
def moves(make):
    x, out = make.normal(128, 64, dtype="float16"), make.empty(128, 64, dtype="float16")
    both = make.descriptor(x, (64, 64)), make.descriptor(out, (64, 64))
    return silo.Case(args=both, expected={"target": lambda: x.host})
"""

WITHOUT_TRITON = """
import sys
import torch
sys.modules["triton"] = None
import silo

kernels = silo.load(sys.argv[1])
x = torch.randn(256, 64, device="cuda", dtype=torch.float16)
out = torch.zeros_like(x)
of = lambda one: silo.TensorDescriptor(one, one.shape, one.stride(), (64, 64))
kernels.move(of(x), of(out))
assert torch.equal(x, out)
"""


def test_a_bundle_runs_without_triton(tmp_path):
    from silo.commands.build_bundle import build_bundle

    (tmp_path / "gluon_file.py").write_text(FILE)
    build_bundle([tmp_path / "gluon_file.py"], tmp_path / "gluon.silo", targets=["cuda"])
    run(tmp_path, "-m", "silo", "run", "--device", "cuda", str(tmp_path / "gluon.silo"))
    run(tmp_path, "-c", WITHOUT_TRITON, str(tmp_path / "gluon.silo"))


def run(folder, *command):
    own = {"SILO_HOME": str(folder / "home"), "TRITON_CACHE_DIR": str(folder / "cache")}
    paths = os.pathsep.join(filter(None, [str(SAMPLES), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **own, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done


def test_an_unchanged_program_is_launched_by_silo(tmp_path):
    program = str(SAMPLES / "gluon_program.py")
    plain = json.loads(run(tmp_path, program).stdout.splitlines()[-1])
    report = tmp_path / "report.jsonl"
    run(tmp_path, "-m", "silo", "exec", "--report", str(report), program)
    assert all(error <= 1e-2 for error in plain.values()), plain
    (line,) = [json.loads(one) for one in report.read_text().splitlines()]
    counts = {one["kernel"]: (one["launches"], one["own_launches"]) for one in line["kernels"]}
    assert set(counts) == set(gluon_program.RUNS), counts
    for kernel, (ours, own) in counts.items():
        assert ours >= 8, (kernel, counts, own, line)
    assert not any(one["refusals"] for one in line["kernels"]), line

"""Kernels of the CuTe DSL on a real NVIDIA GPU, from a bundle that another machine built.

``SILO_TEST_CUTE_BUNDLE`` names it: ``silo build examples/cute_kernels.py --target cuda:sm_90a``. Nothing of the DSL is
needed here, and the processes below cannot import it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import silo
from silo.errors import SiloError

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
ROOT = Path(__file__).parents[2]
BUNDLE = os.environ.get("SILO_TEST_CUTE_BUNDLE", "")
pytestmark = pytest.mark.skipif(not BUNDLE, reason="SILO_TEST_CUTE_BUNDLE names no bundle")
N = 1 << 20

FRESH = """
import json, sys
sys.modules["cutlass"] = sys.modules["tvm_ffi"] = None  # an import of it is an error
import numpy as np
import silo
x, y, out = (silo.Buffer((1 << 20,), "float32", device="cuda") for _ in range(3))
values = np.arange(1 << 20, dtype=np.float32)
x.copy_from(values)
y.copy_from(values)
silo.load(sys.argv[1]).add(x, y, out, 1 << 20)
heavy = [name for name in ("torch", "triton", "jax") if name in sys.modules]
print(json.dumps([bool((out.numpy() == 2 * values).all()), heavy]))
"""


@pytest.fixture(scope="module")
def kernels():
    return silo.load(BUNDLE)


def test_a_process_without_the_dsl_launches_it(tmp_path):
    environment = {
        **os.environ,
        "SILO_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, "-c", FRESH, BUNDLE], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, []]


def test_every_case_is_right(tmp_path):
    environment = {
        **os.environ,
        "SILO_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
    }
    command = [sys.executable, "-m", "silo", "run", BUNDLE, "--device", "cuda"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def pair():
    return torch.randn(N, device="cuda"), torch.randn(N, device="cuda")


@pytest.mark.parametrize("name", ["add", "add_of_any_layout"])
def test_a_graph_captures_and_replays(kernels, name):
    x, y = pair()
    out = torch.zeros_like(x)
    kernel = kernels[name]
    kernel(x, y, out, N)
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, y, out, N)
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)


@pytest.mark.parametrize("size", [(512, 768, 1024), (300, 200, 136)])
def test_a_gemm_of_tensor_maps_in_a_graph(kernels, size):
    m, n, k = size
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    c = torch.zeros(m, n, device="cuda", dtype=torch.bfloat16)
    kernels["wgmma_gemm"](a, b, c)
    graph = torch.cuda.CUDAGraph()
    c.zero_()
    with torch.cuda.graph(graph):
        kernels["wgmma_gemm"](a, b, c)
    a.normal_()
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, atol=0.5, rtol=2e-2)


def shifted(by):
    return torch.randn(N + 64, device="cuda")[by : by + N]


VIEWS = {
    "4 bytes past": lambda: shifted(1),
    "8 bytes past": lambda: shifted(2),
    "12 bytes past": lambda: shifted(3),
    "16 bytes past": lambda: shifted(4),
    "every second": lambda: torch.randn(2 * N, device="cuda")[::2],
    "backwards is another matter: a column": lambda: torch.randn(N, 3, device="cuda")[:, 1],
    "transposed": lambda: torch.randn(1 << 10, 1 << 10, device="cuda").T,
    "two dimensions": lambda: torch.randn(1 << 10, 1 << 10, device="cuda"),
    "one number for all": lambda: torch.randn(1, device="cuda").expand(N),
    "longer": lambda: torch.randn(N + 1, device="cuda"),
    "shorter": lambda: torch.randn(N - 1, device="cuda"),
}


@pytest.mark.parametrize("name", ["add", "add_of_any_layout"])
@pytest.mark.parametrize("view", VIEWS)
def test_views_are_right_or_refused(kernels, name, view):
    x = VIEWS[view]()
    y, out = torch.randn(N, device="cuda"), torch.full((N,), -7.0, device="cuda")
    count = min(N, x.numel())
    refusal = None
    try:
        kernels[name](x, y, out, count)
    except SiloError as error:
        refusal = str(error)
    torch.cuda.synchronize()
    if refusal is None:
        assert torch.equal(out[:count], x.reshape(-1)[:count] + y[:count])
    else:
        assert name in refusal
        assert bool((out == -7.0).all()), "a call that is refused writes nothing"


def test_layouts_that_no_code_was_made_for_are_refused_and_those_of_any_layout_are_not(kernels):
    n = 5000
    x, y, out = torch.randn(n, device="cuda"), torch.randn(n, device="cuda"), torch.zeros(n, device="cuda")
    with pytest.raises(SiloError, match="5000"):
        kernels["add"](x, y, out, n)
    kernels["add_of_any_layout"](x, y, out, n)
    assert torch.equal(out, x + y)

"""Kernels of the CuTe DSL from a bundle that another machine built, in a process that cannot import the DSL.

``silo build examples/cute_kernels.py examples/cute_gemms.py -o cute.silo --target cuda:sm_90a`` makes the bundle,
without a GPU.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import silo
from gpu_kernels import torch
from silo.errors import SiloError

BUNDLE = os.environ.get("SILO_TEST_CUTE_BUNDLE", "")
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(not BUNDLE, reason="SILO_TEST_CUTE_BUNDLE names no bundle of examples/cute_kernels.py"),
    pytest.mark.usefixtures("store", "without_the_dsl"),
]


@pytest.fixture(scope="module")
def without_the_dsl():
    """Whatever is installed: an import of the DSL fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cutlass", None)
        yield


@pytest.fixture(scope="module")
def kernels(store):
    return silo.load(BUNDLE)


FRESH = """
import json, sys
sys.modules["cutlass"] = sys.modules["tvm_ffi"] = None  # an import of it is an error
import numpy as np
import silo
n = 1 << 16
x, y, out = (silo.Buffer((n,), "float32", device="cuda") for _ in range(3))
values = np.arange(n, dtype=np.float32)
x.copy_from(values)
y.copy_from(values)
silo.load(sys.argv[1]).add(x, y, out, n)
heavy = [name for name in ("torch", "triton", "jax") if name in sys.modules]
print(json.dumps([bool((out.numpy() == 2 * values).all()), heavy]))
"""


def run(*command, home):
    paths = os.pathsep.join([str(ROOT / "src"), *sys.path])
    environment = {**os.environ, "SILO_HOME": str(home), "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_process_without_framework_and_dsl_launches_it(tmp_path):
    assert json.loads(run("-c", FRESH, BUNDLE, home=tmp_path)) == [True, []]


def test_every_case_in_the_bundle_is_right(tmp_path):
    run("-m", "silo", "run", BUNDLE, "--device", "cuda", home=tmp_path)


def named(kernels, name):
    if not hasattr(kernels, name):
        pytest.skip(f"the bundle has no {name}")
    return getattr(kernels, name)


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, device="cuda", dtype=dtype)


def adding(kernel, n=1 << 16):
    x, y, out = normal(n), normal(n), torch.zeros(n, device="cuda")
    return lambda: kernel(x, y, out, n), out, x + y


def summing(kernel, shape=(64, 1024)):
    x, out = normal(*shape), torch.zeros(shape[0], device="cuda")
    return lambda: kernel(x, out), out, x.sum(dim=1)


def norming(kernel, shape=(64, 1024)):
    x, weight, bias, out = normal(*shape), normal(shape[1]), normal(shape[1]), torch.zeros(shape, device="cuda")
    expected = torch.nn.functional.layer_norm(x, shape[1:], weight, bias, 1e-5)
    return lambda: kernel(x, weight, bias, out, 1e-5), out, expected


def multiplying(kernel, shape=(512, 768, 1024)):
    m, n, k = shape
    a, b = normal(m, k, dtype=torch.bfloat16), normal(n, k, dtype=torch.bfloat16)
    out = torch.zeros(m, n, device="cuda", dtype=torch.bfloat16)
    return lambda: kernel(a, b, out), out, a.float() @ b.float().T


CALLS = {
    "add": adding,
    "dynamic_add": adding,
    "row_sum": summing,
    "dynamic_row_sum": summing,
    "layer_norm": norming,
    "wgmma_gemm": multiplying,
}


def near(out, expected):
    rtol = 1e-2 if out.dtype == torch.bfloat16 else 1e-3
    return torch.allclose(out.float(), expected, rtol=rtol, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("name", CALLS)
def test_right(kernels, name):
    call, out, expected = CALLS[name](named(kernels, name))
    call()
    assert near(out, expected)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("add", (1 << 16) + 17),
        ("row_sum", (33, 777)),
        ("layer_norm", (33, 777)),
        ("wgmma_gemm", (300, 200, 136)),
    ],
)
def test_right_of_the_other_cases(kernels, name, size):
    call, out, expected = CALLS[name](named(kernels, name), size)
    call()
    assert near(out, expected)


@pytest.mark.parametrize("size", [1, 31, 255, 1000, 4097, 99_999])
def test_one_code_for_dynamic_layouts_serves_every_size(kernels, size):
    call, out, expected = adding(named(kernels, "dynamic_add"), size)
    call()
    assert torch.equal(out, expected)


@pytest.mark.parametrize("name", CALLS)
def test_a_graph_captures_and_replays(kernels, name):
    call, out, expected = CALLS[name](named(kernels, name))
    call()
    torch.cuda.synchronize()
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    assert float(out.abs().max()) == 0
    for _ in range(3):
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert near(out, expected)


@pytest.mark.parametrize("name", CALLS)
def test_a_stream_of_torchs(kernels, name):
    call, out, expected = CALLS[name](named(kernels, name))
    call()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out.zero_()
        call()
    side.synchronize()
    assert near(out, expected)


def flat(kernel, x):
    """A call of an elementwise kernel with one view as both operands, and what comes of it."""
    n = x.shape[0]
    out = torch.zeros(n, device="cuda")
    return lambda: kernel(x, x, out, n), out, x + x


def rows(kernel, x):
    out = torch.zeros(x.shape[0], device="cuda")
    return lambda: kernel(x, out), out, x.sum(dim=1)


N = 1 << 16
VIEWS = {
    "unaligned": lambda: (flat, normal(N + 1)[1:]),
    "unaligned by eight bytes": lambda: (flat, normal(N + 2)[2:]),
    "every second": lambda: (flat, normal(2 * N)[::2]),
    "every third, unaligned": lambda: (flat, normal(3 * N + 1)[1::3]),
    "one value repeated": lambda: (flat, normal(1).expand(N)),
    "a column": lambda: (flat, normal(N, 3)[:, 1]),
    "transposed": lambda: (rows, normal(1024, 64).T),
    "sliced columns": lambda: (rows, normal(64, 2048)[:, 512:1536]),
    "sliced columns, unaligned": lambda: (rows, normal(64, 1100)[:, 3:1027]),
    "every second row": lambda: (rows, normal(128, 1024)[::2]),
    "every second column": lambda: (rows, normal(64, 2048)[:, ::2]),
    "one row repeated": lambda: (rows, normal(1, 1024).expand(64, 1024)),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("layouts", ["static", "dynamic"])
def test_a_view_is_right_or_refused(kernels, view, layouts):
    how, x = VIEWS[view]()
    name = ("dynamic_" if layouts == "dynamic" else "") + ("add" if how is flat else "row_sum")
    call, out, expected = how(named(kernels, name), x)
    with contextlib.suppress(SiloError):  # a layout that the bundle has no code for
        call()
        assert near(out, expected)
    torch.cuda.synchronize()  # no illegal address either

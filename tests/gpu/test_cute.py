"""Kernels of the CuTe DSL from a bundle that another machine built, in a process that cannot import the DSL.

``silo build examples/cute_kernels.py -o cute.silo --target cuda:sm_90a`` makes the bundle, without a GPU.
"""

import contextlib
import os
import sys

import pytest

import silo
from gpu_kernels import torch
from silo.errors import SiloError

BUNDLE = os.environ.get("SILO_TEST_CUTE_BUNDLE", "")

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


def multiplying(kernel, shape=(512, 384, 256)):
    m, n, k = shape
    a, b = normal(m, k, dtype=torch.bfloat16), normal(n, k, dtype=torch.bfloat16)
    out = torch.zeros(m, n, device="cuda")
    return lambda: kernel(a, b, out), out, a.float() @ b.float().T


CALLS = {
    "add": adding,
    "dynamic_add": adding,
    "row_sum": summing,
    "dynamic_row_sum": summing,
    "layer_norm": norming,
    "gemm": multiplying,
}


def near(out, expected):
    return torch.allclose(out, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("name", CALLS)
def test_right(kernels, name):
    call, out, expected = CALLS[name](named(kernels, name))
    call()
    assert near(out, expected)


@pytest.mark.parametrize(("name", "size"), [("add", (1 << 16) + 17), ("row_sum", (33, 777)), ("layer_norm", (33, 777))])
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

"""Exported kernels called through TVM-FFI and torch on real GPUs: streams, devices, graphs."""

import importlib.util

import pytest

ROOT_NEEDS = ("triton", "torch", "tvm_ffi")
COUNT = 1 << 20


@pytest.fixture(scope="module")
def torch(cuda):
    for name in ROOT_NEEDS:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no GPUs")
    return torch


@pytest.fixture(scope="module")
def libraries(torch, tmp_path_factory):
    """The functions and the operators of an export of ``add`` and ``matmul`` for this GPU and CPU."""
    import shutil

    import exported
    from silo.export.wheel import built_libraries

    tvm_ffi = pytest.importorskip("tvm_ffi")
    if shutil.which("cmake") is None:
        pytest.skip("needs CMake")
    made = exported.folder(tmp_path_factory.mktemp("export"), ["cpu", "cuda"], ["add", "matmul"], "--torch")
    library, operators = built_libraries(made, made.name, made.parent / "build", torch=True)
    torch.ops.load_library(operators)
    return tvm_ffi.load_module(str(library)), getattr(torch.ops, made.name)


@pytest.fixture(params=["tvm_ffi", "torch"])
def add(request, libraries):
    functions, operators = libraries
    return functions["add"] if request.param == "tvm_ffi" else operators.add


def arrays(torch, device="cuda:0"):
    x = torch.arange(COUNT, dtype=torch.float32, device=device)
    return x, torch.ones_like(x), torch.full_like(x, -1)


def test_results(torch, add):
    x, y, out = arrays(torch)
    add(x, y, out, COUNT)
    assert torch.equal(out, x + 1)


def test_constants_reach_the_code(torch, libraries):
    a = torch.randn(64, 64, device="cuda")
    b = torch.randn(64, 64, device="cuda")
    for call in (libraries[0]["matmul"], libraries[1].matmul):
        for activation, of in (("", lambda c: c), ("leaky_relu", lambda c: torch.where(c >= 0, c, 0.01 * c))):
            c = torch.empty(64, 64, device="cuda")
            call(a, b, c, 64, 64, 64, *a.stride(), *b.stride(), *c.stride(), activation)
            torch.testing.assert_close(c, of(a @ b), rtol=2e-2, atol=2e-2)


def test_a_call_is_in_the_order_of_the_current_stream(torch, add):
    stream = torch.cuda.Stream()
    x, y, out = arrays(torch)
    add(x, y, out, COUNT)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # whatever runs on another stream overtakes this
        x.add_(1)
        add(x, y, out, COUNT)
    assert not stream.query()  # the call did not wait
    stream.synchronize()
    assert torch.equal(out, x + 1)


def test_a_call_is_captured_into_a_graph(torch, add):
    x, y, out = arrays(torch)
    add(x, y, out, COUNT)  # loads the code: during a capture it cannot be
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(x, y, out, COUNT)
    out.fill_(-1)
    x.add_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + 1)


def test_a_wrong_dtype_and_another_device_are_errors(torch, add):
    x, y, out = arrays(torch)
    with pytest.raises((TypeError, RuntimeError), match="argument 'x' is an array of float64"):
        add(x.double(), y, out, COUNT)
    with pytest.raises((ValueError, RuntimeError), match="all arrays of one call are on one device"):
        add(x, y.cpu(), out, COUNT)
    add(x, y, out, COUNT)
    assert torch.equal(out, x + 1)


def test_every_gpu_of_the_machine(torch, add):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for index in (1, 0, 1):
        x, y, out = arrays(torch, f"cuda:{index}")
        add(x, y, out, COUNT)  # while device 0 is current
        assert torch.equal(out, x + 1)
    x, y, out = arrays(torch)
    with pytest.raises((ValueError, RuntimeError), match="all arrays of one call are on one device"):
        add(x, y.to("cuda:1"), out, COUNT)


def test_cpu_tensors_beside_it(torch, add):
    x, y, out = arrays(torch, "cpu")
    add(x, y, out, COUNT)
    assert torch.equal(out, x + 1)

"""Streams, threads, graphs, devices, bound launchers and hooks on a real NVIDIA GPU."""
# pyright: reportOperatorIssue=false

import gc
import threading

import pytest

import silo
from gpu_kernels import N, add, spin_then_store, tl, torch, triton, vectors
from silo.errors import ArgumentError, DeviceError, LaunchError

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture(scope="module")
def kernel(store):
    return silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),))(add)


# ---- streams, threads, graphs ----


def test_launches_go_to_torchs_current_stream(kernel):
    slow = silo.kernel(spin_then_store)
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    slow.warmup(out, 1000, 5, grid=(1,))
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        slow[(1,)](out, 200_000_000, 5)
    assert not side.query()
    assert torch.cuda.default_stream().query()
    side.synchronize()
    assert out.item() == 5
    for given in (side, side.cuda_stream):
        slow[(1,)](out, 100_000_000, 6, stream=given)
        assert not side.query()
        side.synchronize()
    with pytest.raises(ArgumentError, match="argument 'stream' needs a stream"):
        slow[(1,)](out, 1000, 5, stream="side")


def test_a_thread_without_a_context(kernel):
    x, y, out = vectors()
    errors = []
    torch.cuda.synchronize()

    def work():
        try:
            kernel(x, y, out, N)
        except Exception as error:  # noqa: BLE001  # to be looked at in the main thread
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert errors == []
    assert torch.equal(out, x + y)


def test_many_threads_launch_one_kernel(kernel):
    x, y, _ = vectors()
    outs = [torch.zeros(N, device="cuda") for _ in range(16)]
    errors = []

    def work(out):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(200):
                    kernel(x, y, out, N)
                torch.cuda.current_stream().synchronize()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    torch.cuda.synchronize()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for out in outs:
        assert torch.equal(out, x + y)


def test_graphs_capture_and_replay(kernel):
    x, y, out = vectors()
    kernel.warmup(x, y, out, N)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, y, out, N)
        kernel(out, y, out, N)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + 2 * y)
    x += 1
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + 2 * y)


def test_a_graph_outlives_the_kernel_it_captured():
    x, y, out = vectors()
    short_lived = silo.kernel(grid=(N // 256,))(add)
    short_lived.warmup(x, y, out, N)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        short_lived(x, y, out, N)
    short_lived.kernel.resolver.native.forget()
    del short_lived
    gc.collect()
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")  # torch's, of the capture that was refused
def test_a_miss_during_capture_is_a_clear_error(kernel):
    x, y, out = (tensor.double() for tensor in vectors())
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(LaunchError, match=r"add is called in a way .* captured .*add\.warmup"), torch.cuda.graph(graph):
        kernel(x, y, out, N)
    kernel(x, y, out, N)
    assert torch.equal(out, x + y)


def test_unloading_waits_for_kernels_that_run():
    @triton.jit
    def spin_twice(out, cycles, value):
        start = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
        now = start
        while now - start < cycles:
            now = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
        tl.store(out, value + 1)

    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    k = silo.kernel(spin_twice)
    k[(1,)](out, 300_000_000, 4, stream=side)
    k.kernel.resolver.native.forget()
    del k
    gc.collect()
    side.synchronize()
    assert out.item() == 5


# ---- bound launchers, hooks ----


def test_bound_launchers(kernel):
    x, y, out = vectors()
    launch = kernel.bind(x, y, out, N)
    launch(x, y, out, N)
    assert torch.equal(out, x + y)
    with pytest.raises(ArgumentError, match="argument 'x' needs a float32 array"):
        launch(x.double(), y, out, N)
    with pytest.raises(ArgumentError, match="cpu"):
        launch(x.cpu(), y.cpu(), out.cpu(), N)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(x, y, out, N)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end:UserWarning")  # torch's, of every profile
def test_hooks_see_stream_and_device(kernel):
    x, y, out = vectors()
    events = []
    side = torch.cuda.Stream()
    with silo.launch_hook(events.append):
        kernel(x, y, out, N, stream=side)
    side.synchronize()
    assert events[0].stream == side.cuda_stream
    assert events[0].device == "cuda:0"
    with torch.profiler.profile() as profile, silo.launch_hook(silo.torch_annotations()):
        kernel(x, y, out, N)
    assert "silo::add" in {event.key for event in profile.key_averages()}
    with silo.launch_hook(silo.nvtx_ranges()):
        kernel(x, y, out, N)


def test_two_devices():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU here, this test needs two")
    k = silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),))(add)
    errors = []

    def work(index):
        try:
            x = torch.arange(N, dtype=torch.float32, device=f"cuda:{index}")
            out = torch.zeros_like(x)
            for _ in range(500):
                k(x, x, out, N)
            torch.cuda.synchronize(index)
            assert torch.equal(out, 2 * x)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    x = torch.zeros(N, device="cuda:0")
    with pytest.raises(ArgumentError, match="add: argument 'x' is on cuda:0 and 'y' on cuda:1"):
        k(x, x.to("cuda:1"), x, N)
    launch = k.bind(x, x, x, N)
    y = x.to("cuda:1")
    with pytest.raises(ArgumentError, match="'x' is on cuda:1, and this code is loaded on cuda:0"):
        launch(y, y, y, N)
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    with cupy.cuda.Device(1):
        z = cupy.arange(N, dtype=cupy.float32)
        out = cupy.zeros_like(z)
    k(z, z, out, N)
    with cupy.cuda.Device(1):
        cupy.cuda.get_current_stream().synchronize()
        assert bool((out == 2 * z).all())


def test_a_device_that_is_not_there():
    with pytest.raises(DeviceError):
        silo.device("cuda:63")

"""The bandwidth of kernels on a real NVIDIA GPU, by events; and what the device reaches."""

import pytest

import silo
from gpu_kernels import add, spin_then_store, torch
from silo.launch.hooks import launch_hook
from silo.launch.profile import LaunchProfile
from silo.machine.device_plugins import device_named
from silo.tuning.device_limits import known_ceilings, measure_ceilings

pytestmark = pytest.mark.usefixtures("store")


def test_events_time_what_the_device_does(store):
    launch, spin = silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),))(add), silo.kernel(spin_then_store)
    n = 1 << 22
    x, out, flag = (torch.ones(size, device="cuda", dtype=torch.float32) for size in (n, n, 1))
    launch(x, x, out, n)
    spin[1](flag, 1, 2.0)
    profile = LaunchProfile()
    with launch_hook(profile):
        for _ in range(10):
            launch(x, x, out, n)
        spin[1](flag, 20_000_000, 2.0)  # some ten milliseconds, and four bytes
    slow, fast = profile.totals()
    assert (slow.kernel, slow.launches, slow.moved_bytes) == ("spin_then_store", 1, 4)
    assert (fast.kernel, fast.launches, fast.moved_bytes) == ("add", 10, 10 * 3 * 4 * n)
    assert slow.time_ns > 2_000_000
    assert 100 < fast.gigabytes_per_second < 20_000


def test_launches_of_a_captured_graph_are_counted_and_not_timed(store):
    launch = silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),))(add)
    x, out = torch.ones(4096, device="cuda"), torch.zeros(4096, device="cuda")
    launch(x, x, out, 4096)
    profile, graph = LaunchProfile(), torch.cuda.CUDAGraph()
    with launch_hook(profile), torch.cuda.graph(graph):
        launch(x, x, out, 4096)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 2).all()
    (total,) = profile.totals()
    assert (total.launches, total.untimed, total.time_ns) == (0, 1, 0)


@pytest.mark.slow
def test_ceilings_are_those_of_a_gpu(store):
    device = device_named("cuda")
    found = measure_ceilings(device)
    assert known_ceilings(device.model) == found
    largest = found.copies[-1][1]
    assert 10**11 < largest < 2 * 10**13  # bytes a second
    dots = dict(found.dots)
    assert 10**12 < dots["float32"] <= dots["float16"]

"""A real NVIDIA GPU as a device: facts against torch's, Buffers, copies, timing."""

import os
import subprocess
import sys

import numpy as np
import pytest

import silo
from gpu_kernels import add, torch
from silo.core.device import Measuring, place_of
from silo.core.recipes import ArrayRecipe
from silo.errors import CaseError
from silo.launch.array_libraries.library_table import library_named, library_of, materialize
from silo.machine import array_copies
from silo.machine.device_plugins import device_named
from silo.settings import override
from silo.tuner.measure import Contender, MeasurePolicy, measure
from silo.tuner.statistics import median

# jax frees arrays when Python collects them, from threads of its own, which ends a global capture of another test.
ALONE = "SILO_TEST_ALONE"


def in_a_process_of_its_own(test: str) -> bool:
    """Run a test of this file in another process; False in that process."""
    if os.environ.get(ALONE):
        return False
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::{test}"]
    done = subprocess.run(command, env={**os.environ, ALONE: "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return True


def test_facts_are_the_devices():
    properties = torch.cuda.get_device_properties(0)
    info = silo.device("cuda:0")
    assert info.model == properties.name
    assert info.arch == f"sm_{properties.major}{properties.minor}"
    assert info.sm_count == properties.multi_processor_count
    assert info.memory_bytes == properties.total_memory
    assert info.l2_bytes == properties.L2_cache_size
    assert info.warp_size == 32
    assert info.registers_per_sm == properties.regs_per_multiprocessor
    assert info.max_threads_per_sm == properties.max_threads_per_multi_processor
    assert info.shared_per_block_optin == properties.shared_memory_per_block_optin
    assert info.clock_khz > 100_000
    assert silo.device().name == "cuda:0"


def test_buffers_and_torch_share_memory():
    buffer = silo.Buffer.of(np.arange(12, dtype=np.float32).tobytes(), "float32", (3, 4), "cuda")
    tensor = torch.from_dlpack(buffer)
    assert tensor.device.type == "cuda"
    assert tensor.data_ptr() == buffer.data_ptr()
    assert tensor.sum().item() == 66
    tensor += 1
    torch.cuda.synchronize()
    assert buffer.numpy().sum() == 78
    host = torch.as_tensor(buffer, device="cuda")  # by __cuda_array_interface__
    assert host.data_ptr() == buffer.data_ptr()


def test_copies_keep_layout_and_alignment():
    storage = torch.arange(64, dtype=torch.float32, device="cuda")
    for tensor in (storage[1:33], storage.view(8, 8)[:, ::2], storage.view(8, 8).t(), storage.to(torch.bfloat16)[3:]):
        copy = array_copies.duplicate(tensor)
        assert copy.stride() == tensor.stride()
        assert copy.dtype == tensor.dtype
        assert copy.data_ptr() % 16 == tensor.data_ptr() % 16
        assert torch.equal(copy, tensor)
        put_back = array_copies.restorer(copy)
        copy.zero_()
        put_back()
        assert torch.equal(copy, tensor)
        assert (array_copies.host_bits(tensor) == array_copies.host_bits(copy)).all()


@pytest.mark.parametrize("strides", [None, (16, 2)])
def test_arrays_of_cases_are_the_cpus(strides):
    recipe = ArrayRecipe.of("normal", (4, 8), dtype="float16", strides=strides)
    host, device = materialize(recipe), materialize(recipe, "torch", place_of(device_named("cuda:0")))
    assert device.device.type == "cuda"
    assert device.stride() == (strides or (8, 1))
    assert (device.cpu().numpy() == host).all()


def elapsed(launch, state):
    with override(l2=state):
        device = device_named("cuda")
        return median(measure(Contender(launch), device.timer(), MeasurePolicy.of(device.timing)).samples)


def test_times_agree_with_torchs_events_and_know_the_cache():
    x = torch.empty(8 << 20, device="cuda")  # 32 MiB: more than half of no recent L2 cache, read and written
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(50):
        x.add_(1)
    begin.record()
    for _ in range(100):
        x.add_(1)
    end.record()
    end.synchronize()
    theirs = begin.elapsed_time(end) * 1e6 / 100
    warm, cold = elapsed(lambda: x.add_(1), "warm"), elapsed(lambda: x.add_(1), "cold")
    assert 0.5 * theirs < warm < 2 * theirs
    assert cold > 0.8 * warm
    assert cold < 20 * theirs


def test_the_timer_follows_torchs_stream():
    stream = torch.cuda.Stream()
    x = torch.zeros(64 << 20, device="cuda")
    torch.cuda.synchronize()
    alone = elapsed(lambda: x.add_(1), "warm")
    with torch.cuda.stream(stream):
        beside = elapsed(lambda: x.add_(1), "warm")
    # Events of another stream would see no time between them.
    assert beside > 0.5 * alone


def test_a_device_says_whose_memory_it_takes_and_how_much_is_free():
    device = device_named("cuda")
    tensor = torch.zeros(1, device="cuda:0")
    assert tensor.__dlpack_device__()[0] in device.memory.types
    assert device.measuring is Measuring.CONFINED
    torch.cuda._sleep(1_000_000)
    device.synchronize()
    assert torch.cuda.current_stream().query()
    free = device.free_memory()
    assert free is not None
    assert 0 < free <= device.model.memory_bytes


@pytest.mark.parametrize("name", ["torch", "buffer", "cupy", "jax"])
def test_every_array_library_does_the_same_on_a_gpu(name):
    if name != "buffer":
        pytest.importorskip(name)
    if name == "jax" and in_a_process_of_its_own("test_every_array_library_does_the_same_on_a_gpu[jax]"):
        return
    library, place = library_named(name), place_of(device_named("cuda:0"))
    recipe = ArrayRecipe.of("normal", (3, 5), dtype="float32")
    try:
        array = library.make(recipe, place)
    except CaseError as error:
        pytest.skip(str(error))  # a jax without CUDA
    wanted = materialize(recipe, "numpy").view("uint32")
    assert library_of(array) is library
    assert (library.bits(array) == wanted).all()
    copy = library.duplicate(array)
    put_back = library.keep(copy)
    if name != "jax":
        library.write(copy, wanted + 1)
        assert (library.bits(copy) == wanted + 1).all()
    put_back()
    assert (library.bits(copy) == wanted).all()
    assert (library.bits(array) == wanted).all()


def test_a_kernel_reads_what_jax_has_on_the_gpu():
    jax = pytest.importorskip("jax")
    if in_a_process_of_its_own("test_a_kernel_reads_what_jax_has_on_the_gpu"):
        return
    try:
        x = jax.device_put(np.arange(1000, dtype=np.float32), jax.devices("cuda")[0]).block_until_ready()
    except RuntimeError as error:
        pytest.skip(str(error))  # a jax without CUDA
    out = torch.empty(1000, device="cuda")
    silo.kernel(add)[(4,)](x, x, out, 1000)
    np.testing.assert_array_equal(out.cpu().numpy(), 2 * np.arange(1000, dtype=np.float32))

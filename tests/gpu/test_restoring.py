"""Arrays put back from the host's memory, locked by the driver, where a copy beside them would take too much."""

import ctypes

import pytest

import silo
from gpu_kernels import torch
from silo.core.decisions import Rejected
from silo.errors import DeviceError
from silo.launch import native
from silo.launch.array_libraries import silo_buffers, torch_tensors
from silo.launch.native import PinnedMemory
from silo.machine import array_copies
from silo.measuring.measuring_worker import _Array as Array
from silo.measuring.sent_calls import ArraySlot

SIZE = 64 << 20
PINNED = 3  # DLPack's kDLCUDAHost


def address(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.fixture
def tight(monkeypatch):
    for module in (silo_buffers, torch_tensors):
        monkeypatch.setattr(module, "copy_fits", lambda size, free: Rejected(f"{size} of {free}"))


def test_the_driver_locks_memory_and_takes_it_back():
    memory = PinnedMemory(SIZE, "cuda", 0)
    where = address(memory)
    assert native.gpu_locate("cuda", where)[0] == PINNED
    data = torch.arange(SIZE, dtype=torch.int64).to(torch.uint8).numpy().tobytes()
    memoryview(memory)[:] = data
    buffer = silo.Buffer(SIZE, "uint8", "cuda")
    buffer.copy_from(memoryview(memory))
    memoryview(memory)[:] = bytes(SIZE)
    buffer.copy_to(memoryview(memory))
    assert bytes(memory) == data
    del memory
    assert native.gpu_locate("cuda", where)[0] != PINNED
    with pytest.raises(DeviceError, match=r"cannot lock .* bytes of host memory for cuda:0"):
        PinnedMemory(1 << 60, "cuda", 0)


@pytest.mark.parametrize("layout", [lambda t: t, lambda t: t.view(1024, -1).t(), lambda t: t[3::5]])
def test_tensors(tight, layout):
    tensor = layout(torch.rand(1 << 20, device="cuda"))
    before = tensor.clone()
    assert torch_tensors.pristine_copy(tensor).is_pinned()
    put_back = array_copies.restorer(tensor)
    for _ in range(2):
        tensor.zero_()
        put_back()
        assert torch.equal(tensor, before)


def test_buffers(tight):
    data = bytes(range(256)) * 4096
    buffer = silo.Buffer.of(data, "uint8", None, "cuda")
    kept = silo_buffers.pristine_copy(buffer)
    assert native.gpu_locate("cuda", address(kept))[0] == PINNED
    put_back = array_copies.restorer(buffer)
    buffer.fill(0)
    put_back()
    assert buffer.numpy().tobytes() == data


def test_arguments_in_the_measuring_process():
    data = bytes(range(251)) * 4096
    results = memoryview(bytearray(len(data)))
    array = Array(ArraySlot(0, len(data), 48, 0), memoryview(data), results, "cuda:0")
    assert "from host memory" in array.keep(0)
    assert native.gpu_locate("cuda", address(array._pristine))[0] == PINNED
    array._memory.fill(0)
    array.restore()
    array.give_back()
    assert bytes(results) == data

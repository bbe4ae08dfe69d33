import numpy as np
import pytest

import silo
from silo.errors import ArgumentError
from silo.launch.array_parts import extent_of
from silo.machine import array_copies


def numpys():
    base = np.arange(64, dtype=np.float32)
    return {
        "plain": base,
        "misaligned": base[1:33],
        "gaps": base.reshape(8, 8)[:, ::2],
        "transposed": base.reshape(8, 8).T,
        "reversed": base[::-2],
        "scalar": np.array(3.0, dtype=np.float64),
        "empty": np.empty((0, 3), dtype=np.int8),
    }


@pytest.mark.parametrize("name", list(numpys()))
def test_numpy_copies_keep_layout_and_alignment(name):
    array = numpys()[name]
    copy = array_copies.duplicate(array)
    assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(copy, array)
    assert not np.shares_memory(copy, array)
    if array.size:
        assert copy.strides == array.strides
        assert (copy.ctypes.data - array.ctypes.data) % 16 == 0


@pytest.mark.parametrize("name", list(numpys()))
def test_extents(name):
    array = numpys()[name]
    extent = extent_of(array)
    lowest, end = np.lib.array_utils.byte_bounds(array) if array.size else (extent.start, extent.start)
    assert (extent.start, extent.start + extent.size) == (lowest, end)
    memory = memoryview(bytearray(extent.size))
    if array.size:
        extent.view(memory)[...] = array_copies.host_bits(array)
    np.testing.assert_array_equal(extent.typed(extent.view(memory)), array)


@pytest.mark.parametrize("name", list(numpys()))
def test_restoring(name):
    array = numpys()[name].copy(order="K")
    before = array.copy()
    put_back = array_copies.restorer(array)
    array[...] = 0
    put_back()
    np.testing.assert_array_equal(array, before)


def test_a_broadcast_is_refused():
    with pytest.raises(ArgumentError, match="repeats in memory"):
        array_copies.duplicate(np.broadcast_to(np.float32(1), (4, 4)))


def test_torch_copies():
    torch = pytest.importorskip("torch")
    storage = torch.arange(64, dtype=torch.float32)
    half = torch.arange(64, dtype=torch.float32).to(torch.bfloat16)
    flags = torch.arange(64) % 3 == 0
    for tensor in (
        storage[1:33],
        storage.view(8, 8)[:, ::2],
        storage.view(8, 8).t(),
        half[3:],
        flags[5:9],
        storage[:0],
    ):
        copy = array_copies.duplicate(tensor)
        assert (copy.stride(), copy.dtype, copy.shape) == (tensor.stride(), tensor.dtype, tensor.shape)
        assert not tensor.numel() or (copy.data_ptr() - tensor.data_ptr()) % 16 == 0
        assert torch.equal(copy, tensor)
        assert (array_copies.host_bits(copy) == array_copies.host_bits(tensor)).all()
        put_back = array_copies.restorer(copy)
        copy.zero_()
        put_back()
        assert torch.equal(copy, tensor)


def test_buffers():
    buffer = silo.Buffer.of(bytes(range(12)), "int16", (2, 3))
    copy = array_copies.duplicate(buffer)
    assert isinstance(copy, silo.Buffer)
    assert bytes(copy.raw) == bytes(buffer.raw)
    put_back = array_copies.restorer(buffer)
    buffer.fill(7)
    assert set(buffer.raw) == {7}
    put_back()
    assert bytes(buffer.raw) == bytes(copy.raw)
    buffer.copy_from(silo.Buffer((2, 3), "int16"))
    out = bytearray(12)
    buffer.copy_to(out)
    assert out == bytes(12)
    assert buffer.device == "cpu"


def test_what_is_an_array():
    assert array_copies.is_array(np.zeros(1))
    assert array_copies.is_array(silo.Buffer(1))
    assert not array_copies.is_array(3)
    assert not array_copies.is_array((1, 2))


def test_a_torch_copy_that_cannot_lie_on_the_device(monkeypatch, caplog):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("locks memory where there is a GPU: tests/gpu has the test")

    class OnGpu(torch.Tensor):
        __module__ = "torch"
        __torch_function__ = torch._C._disabled_torch_function_impl
        device = property(lambda _: torch.device("cuda:0"))

    tensor = torch.arange(6.0).view(2, 3).t().as_subclass(OnGpu)
    before = torch.arange(6.0).view(2, 3).t()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (47, 100))
    monkeypatch.setattr("silo.launch.array_libraries.torch_tensors.available_memory", lambda: 1 << 40)
    with caplog.at_level("INFO", "silo"):
        put_back = array_copies.restorer(tensor)
    assert "restoring 24 bytes from host memory" in caplog.text
    assert "pageable, which is slower still: " in caplog.text
    tensor.zero_()
    put_back()
    assert torch.equal(tensor.as_subclass(torch.Tensor), before)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (48, 100))
    caplog.clear()
    with caplog.at_level("INFO", "silo"):
        array_copies.restorer(tensor)
    assert not caplog.messages

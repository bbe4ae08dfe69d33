"""Where copies of arrays on a GPU lie, from which they are put back: there, in locked memory, in pageable memory."""

import gc
import logging

import pytest

import silo
from silo.machine import array_copies
from silo.measuring.measuring_worker import _Array as Array
from silo.measuring.sent_calls import ArraySlot

SIZE = 1 << 20
DATA = bytes(range(256)) * (SIZE // 256)
ROOMY, TIGHT = 64 << 30, 5 * SIZE // 2  # of a device that holds the array alone: half of what is left is less than it


@pytest.fixture
def device(stub):
    """A device with as much memory as asked."""
    yield stub.memory
    stub.memory(ROOMY)
    gc.collect()
    assert stub.count("allocations") == 0


@pytest.fixture
def plenty(monkeypatch):
    monkeypatch.setattr("silo.launch.array_libraries.pinned.available_memory", lambda: 8 * (SIZE + 4096))


@pytest.mark.parametrize(
    ("memory", "refused", "extra", "said"),
    [
        (ROOMY, "", SIZE, []),
        (TIGHT, "", SIZE, [f"restoring {SIZE} bytes from host memory"]),
        (TIGHT, "cuMemHostAlloc", 0, ["from host memory", "pageable", "CUDA_ERROR_OUT_OF_MEMORY"]),
    ],
)
def test_buffers(stub, device, plenty, caplog, memory, refused, extra, said):
    device(memory)
    buffer = silo.Buffer.of(DATA, "uint8", None, "cuda:1")
    if refused:
        stub.fail(refused, 2)
    with caplog.at_level(logging.INFO, "silo"):
        put_back = array_copies.restorer(buffer)
    assert stub.count("bytes") == SIZE + extra
    assert len(caplog.messages) == bool(said)
    assert all(text in caplog.text for text in said)
    assert ("pageable" in caplog.text) == bool(refused)
    for _ in range(2):
        buffer.fill(0)
        put_back()
        assert buffer.numpy().tobytes() == DATA
    del put_back
    gc.collect()
    assert stub.count("bytes") == SIZE


def test_the_host_keeps_memory_for_others(stub, device, monkeypatch, caplog):
    """No more than an eighth is locked, and none where nobody counts."""
    device(TIGHT)
    buffer = silo.Buffer.of(DATA, "uint8", None, "cuda")
    for left, words in ((8 * SIZE - 1, f"the host has {8 * SIZE - 1} left"), (None, "nobody says how many")):
        monkeypatch.setattr("silo.launch.array_libraries.pinned.available_memory", lambda left=left: left)
        with caplog.at_level(logging.INFO, "silo"):
            put_back = array_copies.restorer(buffer)
        assert words in caplog.messages[-1]
        assert stub.count("bytes") == SIZE
        buffer.fill(0)
        put_back()
        assert buffer.numpy().tobytes() == DATA


@pytest.mark.parametrize(
    ("memory", "refused", "pinned", "said"),
    [(ROOMY, "", 0, ""), (TIGHT, "", 1, "restoring"), (TIGHT, "cuMemHostAlloc", 0, "pageable")],
)
def test_arguments_in_the_measuring_process(stub, device, plenty, memory, refused, pinned, said):
    device(memory)
    results = memoryview(bytearray(SIZE))
    array = Array(ArraySlot(0, SIZE, 0, 0), memoryview(DATA), results, "cuda:0")
    before = stub.count("bytes")
    if refused:
        stub.fail(refused, 2)
    note = array.keep(memory - before)
    assert said in note
    assert bool(said) == bool(note)
    copies = (stub.count("bytes") - before) // SIZE
    assert copies == (1 if memory == ROOMY else pinned)
    assert array.keep(0) == ""  # asked once
    array._memory.fill(0)
    array.restore()
    array.give_back()
    assert bytes(results) == DATA
    del array

"""The memory of a checked launch: kept, put back, copied apart, compared."""

from __future__ import annotations

import numpy as np

from silo.checking.machine import Difference
from silo.checking.memory import CopiedMemory, LaunchMemory, allocations_of


def test_an_argument_that_is_named_twice_or_is_no_array_and_further_arrays():
    x, table = np.zeros(4, np.float32), np.zeros(2, np.int64)
    found = allocations_of(["x", "x", "n", "missing"], {"x": x, "n": 3}, [table])
    assert [(one.name, one.size) for one in found] == [("x", 16), ("memory[0]", 16)]

    class Descriptor:
        base, block_shape = x, (4,)

    (one,) = allocations_of(["x"], {"x": Descriptor()})
    assert one.low == x.ctypes.data


def test_memory_in_place_is_restored_compared_and_left():
    base, other = np.arange(8, dtype=np.int32), np.zeros(2, np.int32)
    memory = LaunchMemory(allocations_of(["x", "y", "z"], {"x": base[:4], "y": base[2:], "z": other}))
    assert len(memory.regions) == 2  # of one base array
    at = memory.region_of(memory.allocations[0])
    memory.keep([at])
    base[5] = -1
    other[0] = 7
    results = memory.results()
    assert list(results) == [at]
    memory.restore()
    assert base[5] == 5
    assert other[0] == 7  # was not kept
    assert memory.difference(results) == Difference(at, 20)
    assert memory.address(Difference(at, 20)) == base.ctypes.data + 20
    ignored = np.zeros(32, bool)
    ignored[20:24] = True
    assert memory.difference(results, {at: ignored}) is None
    memory.publish(results)
    assert base[5] == -1
    memory.put_back()
    assert list(base) == list(range(8))


def test_copies_lie_apart_and_only_publishing_writes_to_the_arrays():
    x, y, empty = np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32), np.zeros(0, np.int32)
    memory = CopiedMemory(allocations_of(["x", "y", "e"], {"x": x, "y": y, "e": empty}))
    first, second, nothing = memory.copies
    assert memory.low < min(first.low, second.low)
    assert max(first.high, second.high) < memory.high
    assert abs(first.low - second.low) > 1 << 20
    assert nothing.size == 0
    assert memory.moved("x", x.ctypes.data + 8) == first.low + 8
    assert memory.moved("n", 5) == 5
    memory.restore()
    before = memory.results()
    copy = np.frombuffer(memory_at(first.low, 16), np.int32)
    copy[2] = 9
    region = memory.region_of(memory.allocations[0])
    assert memory.difference(before) == Difference(region, 8)
    results = memory.results()
    memory.put_back()
    assert list(x) == [0, 1, 2, 3]
    y[0] = 8  # somebody else's, meanwhile: a region that the run did not change is not written
    memory.publish(results)
    assert list(x) == [0, 1, 9, 3]
    assert y[0] == 8


def memory_at(address, size):
    import ctypes

    return memoryview((ctypes.c_uint8 * size).from_address(address)).cast("B")

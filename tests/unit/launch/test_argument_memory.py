"""The memory behind an argument: all of the storage, or the elements of the view alone."""

import numpy as np
import pytest

from silo.checking.memory import CopiedMemory, allocations_of
from silo.launch.argument_memory import allocation_of


def spans(array, **options):
    one = allocation_of("x", array, **options)
    return one.low - array.ctypes.data, one.high - array.ctypes.data


def test_the_storage_of_a_view_and_its_elements():
    base = np.zeros((6, 8), np.float32)
    row = base[2]
    assert spans(row) == (-64, 128)
    assert spans(row, view=True) == (0, 32)
    assert allocation_of("x", row, view=True).inside is None
    assert spans(row[::-1], view=True) == (-28, 4)
    assert spans(row[:0], view=True) == (0, 0)


def test_bytes_between_the_elements_of_a_view_are_no_part_of_it():
    base = np.zeros((3, 4), np.int16)
    for column in (base[:, 1], base[::-1, 1]):
        one = allocation_of("x", column, view=True)
        assert one.size == 18
        assert one.inside.tolist() == [1, 1, *[0] * 6, 1, 1, *[0] * 6, 1, 1]
        assert one.has(one.low, 2)
        assert one.has(one.low + 8, 2)
        assert not one.has(one.low + 2, 2)
        assert not one.has(one.low + 1, 2)  # half of it
        assert not one.has(one.high, 2)
    repeated = np.broadcast_to(np.zeros(1, np.int16), (5,))
    assert allocation_of("x", repeated, view=True).size == 2
    rows = np.broadcast_to(base[:2, 1][:, None], (2, 9))
    assert allocation_of("x", rows, view=True).inside.tolist() == [1, 1, *[0] * 6, 1, 1]


def test_torch_and_dlpack_views():
    torch = pytest.importorskip("torch")
    base = torch.zeros(6, 8)
    one = allocation_of("x", base[2:4, 1:3], view=True)
    assert (one.address - base.data_ptr(), one.size, int(one.inside.sum())) == (68, 40, 16)
    assert one.words == "view of 16 bytes in a torch storage of 192 bytes"
    assert allocation_of("x", base[2:4, 1:3]).size == 192


def test_copies_of_views_holds_their_memory_alone():
    base = np.zeros(64, np.float32)
    given = {"x": base[8:16], "y": base[32:40]}
    for views, sizes in ((False, [256]), (True, [32, 32])):
        memory = CopiedMemory(allocations_of(["x", "y"], given, views=views))
        assert [one.high - one.low for one in memory.regions] == sizes

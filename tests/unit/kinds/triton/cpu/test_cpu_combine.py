"""Atomic adds whose old values nobody asks for: they are summed by place before they reach memory."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="kernels are lowered by Triton")

import triton
import triton.language as tl

from cpu_samples import MODES, module_of, needs_compiler, run
from silo.kinds.triton.cpu.analysis.streams import is_plain_add, may_come_later
from silo.kinds.triton.cpu.analysis.value_properties import every_operation

pytestmark = needs_compiler
each_mode = pytest.mark.parametrize("mode", MODES)


@triton.jit
def counted(places, values, sums, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sums + tl.load(places + i, mask=i < n, other=0), tl.load(values + i, mask=i < n), mask=i < n)


def scattered(spread, dtype, count=20000):
    """Places and values, as many as they are, and their sums, which wrap."""
    random, limits = np.random.default_rng(abs(spread)), np.iinfo(dtype)
    if spread < 0:  # all in lines that have one slot of the table
        places = random.integers(0, 40, count) * (4096 * 64 // np.dtype(dtype).itemsize)
    else:
        places = random.integers(0, spread, count)
    values = random.integers(limits.min, limits.max, count, dtype)
    expected = np.zeros(int(places.max()) + 1, dtype)
    np.add.at(expected, places[: count - 100], values[: count - 100])
    return places, values, np.zeros_like(expected), expected


# Few places, a line of the table each, all of its lines, more places than it has, lines that take each other's slot.
@each_mode
@pytest.mark.parametrize("spread", [7, 512, 5000, 300_000, -1])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_atomic_adds_that_meet_in_one_place(mode, dtype, spread):
    places, values, sums, expected = scattered(spread, dtype)
    run(counted, (20,), mode, places=places, values=values, sums=sums, n=19900, BLOCK=1024)
    np.testing.assert_array_equal(sums, expected)


@triton.jit
def counted_in_a_loop(places, values, sums, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.atomic_add(sums + tl.load(places + i, mask=i < n, other=0), tl.load(values + i, mask=i < n), mask=i < n)


@triton.jit(noinline=True)
def count_tile(places, values, sums, start, n, BLOCK: tl.constexpr):
    i = start + tl.arange(0, BLOCK)
    tl.atomic_add(sums + tl.load(places + i, mask=i < n, other=0), tl.load(values + i, mask=i < n), mask=i < n)


@triton.jit
def counted_by_a_function(places, values, sums, n, BLOCK: tl.constexpr):
    count_tile(places, values, sums, tl.program_id(0) * BLOCK, n, BLOCK)


@each_mode
@pytest.mark.parametrize("kernel", [counted_in_a_loop, counted_by_a_function])
@pytest.mark.parametrize("spread", [300, 300_000, -1])
def test_atomic_adds_of_a_tile_in_a_loop_and_in_a_function(mode, kernel, spread):
    places, values, sums, expected = scattered(spread, "int32", 5000)
    run(kernel, (10,), mode, places=places, values=values, sums=sums, n=4900, BLOCK=512)
    np.testing.assert_array_equal(sums, expected)


@triton.jit
def counted_and_read(places, sums, out, BLOCK: tl.constexpr):
    """Each program counts in places of its own, and reads what it counted."""
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.atomic_add(sums + pid * 64 + tl.load(places + i), 1)
    tl.debug_barrier()
    tl.store(out + pid * 64 + tl.arange(0, 64), tl.load(sums + pid * 64 + tl.arange(0, 64)))


@triton.jit
def counted_and_cleared(places, sums, again, BLOCK: tl.constexpr):
    """Each program counts in places of its own, and then writes there."""
    pid = tl.program_id(0)
    tl.atomic_add(sums + pid * 64 + tl.load(places + tl.arange(0, BLOCK)), 1)
    tl.debug_barrier()
    tl.store(again + pid * 64 + tl.arange(0, 64), tl.arange(0, 64))


@each_mode
def test_a_program_sees_its_own_atomic_adds(mode):
    places = np.random.default_rng(4).integers(0, 64, 512).astype(np.int32)
    sums, out = np.zeros(5 * 64, np.int32), np.zeros(5 * 64, np.int32)
    run(counted_and_read, (5,), mode, places=places, sums=sums, out=out, BLOCK=512)
    np.testing.assert_array_equal(out, np.tile(np.bincount(places, minlength=64), 5))
    run(counted_and_cleared, (5,), mode, places=places, sums=sums, again=sums, BLOCK=512)
    np.testing.assert_array_equal(sums, np.tile(np.arange(64), 5))


@each_mode
def test_atomic_adds_at_odd_addresses(mode):
    """No CPU level forbids them, so a table of sums may not take two places for one."""
    place = np.zeros(64 * 4 + 2, np.uint8)[2:].view(np.int32)
    places = np.random.default_rng(6).integers(0, 64, 2048).astype(np.int32)
    ones = np.ones(2048, np.int32)
    run(counted, (2,), mode, places=places, values=ones, sums=place, n=2048, BLOCK=1024)
    np.testing.assert_array_equal(place, np.bincount(places, minlength=64))


@triton.jit
def counted_twice(places, sums, others, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sums + tl.load(places + i), 1)
    tl.atomic_add(others + tl.load(places + i) // 2, 2)


@triton.jit
def counted_and_told(places, sums, others, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sums + tl.load(places + i), 1)
    tl.atomic_xchg(others, 1)


def test_adds_outlast_their_program_only_where_nobody_can_tell():
    i32 = np.zeros(64, np.int32)
    kernels = {
        counted: ({"places": i32, "values": i32, "sums": i32, "n": 8}, [True]),
        counted_in_a_loop: ({"places": i32, "values": i32, "sums": i32, "n": 8}, [False]),
        counted_and_read: ({"places": i32, "sums": i32, "out": i32}, [False]),
        counted_and_cleared: ({"places": i32, "sums": i32, "again": i32}, [False]),
        counted_twice: ({"places": i32, "sums": i32, "others": i32}, [False, True]),
        counted_and_told: ({"places": i32, "sums": i32, "others": i32}, [False]),
    }
    found = {}
    for kernel, (arguments, _) in kernels.items():
        module = module_of(kernel, {**arguments, "BLOCK": 64})
        adds = [one for one in every_operation(module.entry) if is_plain_add(one)]
        found[kernel.__name__] = sorted(may_come_later(module, one) for one in adds)
    assert found == {kernel.__name__: wanted for kernel, (_, wanted) in kernels.items()}

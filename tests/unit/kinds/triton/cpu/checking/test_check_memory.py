# ruff: noqa: E402  # Triton may be absent, which comes first; its constexprs are written in capitals
"""Checking mode: accesses and what they read."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
import silo
from checked_kernels import N, clean, fault, floats
from silo.errors import CheckError

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


# ---- bounds


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.store(out + i, v * 2, mask=i < n)


@triton.jit
def scale_unmasked_load(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, v * 2, mask=i < n)


@triton.jit
def scale_unmasked_store(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.store(out + i, v * 2)


def test_a_clean_launch_leaves_its_results():
    x, out = floats(), np.zeros(N, np.float32)
    clean(scale, (4,), x, out, N, BLOCK=32)
    np.testing.assert_array_equal(out, 2 * x)


def test_a_load_behind_the_end():
    error = fault(
        scale_unmasked_load,
        (4,),
        floats(),
        np.zeros(N, np.float32),
        N,
        BLOCK=32,
        expected="out of bounds",
        at="v = tl.load",
    )
    assert (error.program, error.index, error.argument) == ((3, 0, 0), (4,), "x")
    assert "byte 400 of x (numpy array of 400 bytes), up to 4 bytes beyond its end" in str(error)


def test_a_store_behind_the_end():
    error = fault(
        scale_unmasked_store,
        (4,),
        floats(),
        np.zeros(N, np.float32),
        N,
        BLOCK=32,
        expected="out of bounds",
        at="tl.store",
    )
    assert (error.program, error.index, error.argument) == ((3, 0, 0), (4,), "out")


@triton.jit
def shifted(x, out, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i + by))


def test_an_access_before_the_start_and_one_into_another_argument():
    both = np.zeros(2 * N, np.float32)
    error = fault(shifted, (1,), both[N:], both[:N], -N - 1, BLOCK=16, expected="out of bounds", at="tl.load")
    assert "4 bytes before its start" in str(error)
    x, out = floats(), np.zeros(N, np.float32)
    distance = (out.ctypes.data - x.ctypes.data) // 4
    error = fault(shifted, (1,), x, out, distance, BLOCK=16, expected="out of bounds", at="tl.load")
    assert "inside of out" in str(error)
    assert error.argument == "x"


def test_a_view_may_reach_all_of_its_base():
    base = floats(3 * N)
    clean(shifted, (1,), base[N : 2 * N], np.zeros(16, np.float32), 2 * N - 16, BLOCK=16)
    clean(shifted, (1,), base[N : 2 * N], np.zeros(16, np.float32), -N, BLOCK=16)
    out = np.zeros(16, np.float32)
    error = fault(shifted, (1,), base[N : 2 * N], out, 2 * N - 15, BLOCK=16, expected="out of bounds", at="tl.load")
    assert error.index == (15,)
    assert "byte 800 of x (numpy base array of 1200 bytes), up to 4 bytes beyond its end" in str(error)


def test_torch_tensors_may_reach_all_of_their_storage():
    torch = pytest.importorskip("torch")
    base = torch.arange(300, dtype=torch.float32)
    out = torch.zeros(16)
    silo.check(shifted)[(1,)](base[100:200], out, 184, BLOCK=16)
    assert out.tolist() == list(range(284, 300))
    with pytest.raises(CheckError, match=r"torch storage of 1200 bytes\), up to 4 bytes beyond its end"):
        silo.check(shifted)[(1,)](base[100:200], out, 185, BLOCK=16)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (40, "It writes 4 bytes: byte 40 of out (numpy array of 40 bytes), up to 4 bytes beyond its end"),
        (44, "It writes 4 bytes: byte 44 of out (numpy array of 40 bytes), up to 8 bytes beyond its end"),
        (38, "It writes 4 bytes: byte 38 of out (numpy array of 40 bytes), up to 2 bytes beyond its end"),
        (-4, "It writes 4 bytes: byte -4 of out (numpy array of 40 bytes), 4 bytes before its start"),
        (-2, "It writes 4 bytes: byte -2 of out (numpy array of 40 bytes), 2 bytes before its start"),
    ],
)
def test_how_far_out_of_bounds(at, said):
    out = np.zeros(10, np.float32)
    error = fault(put_at, (1,), out, at, expected="out of bounds", at="tl.store")
    assert str(error).splitlines()[1].strip() == said


@pytest.mark.parametrize("at", [0, 36])
def test_the_first_and_the_last_element_are_inside(at):
    out = np.zeros(10, np.float32)
    clean(put_at, (1,), out, at)
    assert out[at // 4] == 1


@triton.jit
def put_at(out, at):
    place = (out.to(tl.pointer_type(tl.int8)) + at).to(tl.pointer_type(tl.float32))
    tl.store(place, 1.0)


@triton.jit
def put_unloaded(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n))


def test_a_result_in_the_last_element_is_told_as_inside():
    """The first byte that differs may be any of an element: the element counts, which ends where the array does."""
    for kind, size in ((np.float32, 4), (np.float16, 2), (np.int64, 8)):
        x, out = np.zeros(16, kind), np.zeros(16, kind)
        error = fault(put_unloaded, (1,), x, out, 15, BLOCK=16, expected="masked-off value", at="tl.load")
        assert (
            str(error)
            .splitlines()[1]
            .strip()
            .startswith(
                f"A result depends on it: byte {15 * size} of out (numpy array of {16 * size} bytes), stored at "
            )
        )


@triton.jit
def tile(x, out, rows, columns, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLUMNS)[None, :]
    mask = (i < rows) & (j < columns)
    v = tl.load(x + i * stride + j, mask=mask, other=0)
    tl.store(out + i * columns + j, v, mask=mask)


def test_the_index_in_a_tile():
    x, out = floats(6 * 10).reshape(6, 10), np.zeros((6, 10), np.float32)
    clean(tile, (1, 2), x, out, 6, 10, 10, ROWS=4, COLUMNS=16)
    np.testing.assert_array_equal(x, out)
    error = fault(tile, (1, 2), x, out, 7, 10, 10, ROWS=4, COLUMNS=16, expected="out of bounds", at="v = tl.load")
    assert (error.program, error.index) == ((0, 1, 0), (2, 0))


@triton.jit
def counts(x, bins, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(bins + v, 1, mask=i < n)


def test_atomics_have_bounds_and_do_not_race():
    x, bins = np.arange(N, dtype=np.int32) % 7, np.zeros(7, np.int32)
    clean(counts, (4,), x, bins, N, BLOCK=32)
    assert bins.sum() == N
    x[42] = 7
    error = fault(counts, (4,), x, bins, N, BLOCK=32, expected="out of bounds", at="atomic_add")
    assert (error.program, error.index, error.argument) == ((1, 0, 0), (10,), "bins")


@triton.jit
def swaps(lock, at):
    tl.atomic_cas(lock + at, 0, 1)


def test_a_compare_and_swap_out_of_bounds():
    clean(swaps, (1,), np.zeros(4, np.int32), 3)
    error = fault(swaps, (1,), np.zeros(4, np.int32), 4, expected="out of bounds", at="atomic_cas")
    assert error.index == ()


# ---- addresses made of numbers


@triton.jit
def through_table(table, out, n, BLOCK: tl.constexpr):
    place = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    v = tl.load(place + i, mask=i < n, other=0)
    tl.store(out + tl.program_id(0), tl.sum(v))


def test_arrays_behind_a_table_of_addresses():
    arrays = [floats(10), floats(20)]
    table = np.array([array.ctypes.data for array in arrays])
    out = np.zeros(2, np.float32)
    clean(through_table, (2,), table, out, 10, BLOCK=16, options={"memory": arrays})
    assert out.tolist() == [55, 55]
    error = fault(
        through_table,
        (2,),
        table,
        out,
        11,
        BLOCK=16,
        options={"memory": arrays},
        expected="out of bounds",
        at="v = tl.load",
    )
    assert error.index == (10,)
    error = fault(through_table, (2,), table, out, 10, BLOCK=16, expected="out of bounds", at="v = tl.load")
    assert "memory=" in str(error)


@triton.jit
def through_writes(table, value):
    tl.store(tl.load(table).to(tl.pointer_type(tl.float32)), value)


def test_read_only_memory():
    x = floats(4)
    table = np.array([x.ctypes.data])
    clean(through_writes, (1,), table, 7.0, options={"memory": [x]})
    assert x[0] == 7
    x.flags.writeable = False
    fault(through_writes, (1,), table, 8.0, options={"memory": [x]}, expected="read-only", at="tl.store")


@triton.jit
def byte_offset(x, out, by):
    place = (x.to(tl.pointer_type(tl.int8)) + by).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(place))


def test_misaligned_elements():
    x, out = floats(4), np.zeros(1, np.float32)
    clean(byte_offset, (1,), x, out, 8)
    assert out[0] == 3
    error = fault(byte_offset, (1,), x, out, 6, expected="misaligned", at="tl.load")
    assert error.argument == "x"


# ---- memory that nothing was written to


@triton.jit
def accumulates(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(out + i, mask=i < n, other=0)
    tl.store(out + i, before + tl.load(x + i, mask=i < n, other=0), mask=i < n)


@triton.jit
def writes_then_reads(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0), mask=i < n)
    again = tl.load(out + i, mask=i < n, other=0)
    tl.store(out + i, again + 1, mask=i < n)


def test_reads_of_what_nothing_was_written_to():
    new = {"uninitialized": ("out",)}
    error = fault(
        accumulates,
        (4,),
        floats(),
        np.zeros(N, np.float32),
        N,
        BLOCK=32,
        options=new,
        expected="uninitialized",
        at="before = tl.load",
    )
    assert (error.program, error.index, error.argument) == ((0, 0, 0), (0,), "out")
    clean(accumulates, (4,), floats(), np.zeros(N, np.float32), N, BLOCK=32)
    clean(writes_then_reads, (4,), floats(), np.zeros(N, np.float32), N, BLOCK=32, options=new)
    clean(scale, (4,), floats(), np.zeros(N, np.float32), N, BLOCK=32, options=new)


# ---- masked-off lanes


@triton.jit
def sums_garbage(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out, tl.sum(v))


@triton.jit
def greatest(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out, tl.max(v))


@triton.jit
def least(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out, tl.min(v))


@triton.jit
def selects(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    w = tl.where(i < n, tl.exp(v), 0)
    tl.store(out, tl.sum(w))
    at = tl.load(x + i, mask=i < n).to(tl.int32)
    tl.store(out + at, w, mask=i < n)


@pytest.mark.parametrize("kernel", [sums_garbage, greatest, least])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32, np.int8])
def test_values_of_masked_off_lanes(kernel, kind):
    x, out = np.ones(N, kind), np.zeros(1, kind)
    error = fault(kernel, (1,), x, out, N, BLOCK=128, expected="masked-off value", at="v = tl.load")
    assert (error.program, error.index, error.argument) == ((0, 0, 0), (N,), "out")
    assert "stored at" in str(error)
    clean(kernel, (1,), x, out, N - 36, BLOCK=64)


def test_masked_off_lanes_that_do_not_count():
    clean(selects, (1,), floats(50, 0.0), np.zeros(50, np.float32), 50, BLOCK=64)


@triton.jit
def program_of_garbage(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if tl.program_id(0) > 0:
        v = tl.where(i < n, v, 0)
    tl.store(out + tl.program_id(0), tl.sum(v))


def test_the_program_and_lane_that_count_are_named():
    x = floats(40)
    clean(program_of_garbage, (3,), x, np.zeros(3, np.float32), 40, BLOCK=16)
    error = fault(
        program_of_garbage,
        (3,),
        x,
        np.zeros(3, np.float32),
        10,
        BLOCK=16,
        expected="masked-off value",
        at="v = tl.load",
    )
    assert (error.program, error.index) == ((0, 0, 0), (10,))


@triton.jit
def garbage_address(x, table, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.load(table + i, mask=i < n)
    tl.store(out + i, tl.load(x + at))


def test_a_masked_off_value_in_an_address():
    x, table = floats(), np.arange(10, dtype=np.int32)
    error = fault(
        garbage_address,
        (1,),
        x,
        table,
        np.zeros(16, np.float32),
        10,
        BLOCK=16,
        expected="masked-off value",
        at="at = tl.load",
    )
    assert "out of bounds" in str(error)

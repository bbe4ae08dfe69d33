# ruff: noqa: E402  # Triton may be absent, which comes first; its constexprs are written in capitals
"""Checking mode: two values at one address in one store, indices of a gather, the bounds of views, hidden wraps."""

from __future__ import annotations

import logging

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
import silo
from checked_kernels import N, clean, fault, floats
from silo.errors import ArgumentError, CheckError

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


# ---- one store, two elements, one address: the kind is a result that depends on the order of a store's elements


@triton.jit
def scattered(x, out, modulus, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i % modulus, tl.load(x + i, mask=i < n, other=0), mask=i < n)


@triton.jit
def in_turns(x, out, turns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for turn in range(turns):
        tl.store(out + (i + turn) % BLOCK, tl.load(x + i) + turn)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def transposed(x, out, rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLUMNS)[None, :]
    tl.store(out + j * rows + i, tl.load(x + i * COLUMNS + j))


def test_two_values_to_one_address_in_one_store():
    error = fault(scattered, (1,), floats(16), floats(16), 12, 16, BLOCK=16, expected="collision", at="tl.store(out")
    assert (error.program, error.index, error.argument) == ((0, 0, 0), (12,), "out")
    assert "Byte 0 of out" in str(error)
    fault(transposed, (1,), floats(32), floats(32), 3, ROWS=4, COLUMNS=8, expected="collision", at="tl.store(out")
    fault(scattered, (1,), np.arange(16, dtype=np.int8), np.zeros(16, np.int8), 12, 16, BLOCK=16,
          expected="collision", at="tl.store(out")  # fmt: skip


def test_one_value_at_one_address_and_values_of_several_stores_are_no_collision():
    clean(scattered, (1,), np.ones(16, np.float32), np.zeros(16, np.float32), 12, 16, BLOCK=16)
    clean(scattered, (1,), floats(16), np.zeros(16, np.float32), 12, 12, BLOCK=16)  # the others are masked off
    clean(transposed, (1,), floats(32), floats(32), 4, ROWS=4, COLUMNS=8)
    x, out = floats(16), np.zeros(16, np.float32)
    clean(in_turns, (1,), x, out, 5, BLOCK=16)
    np.testing.assert_array_equal(out, x)


# ---- several programs, one value


@triton.jit
def ready(flag, value):
    tl.store(flag, value)


@triton.jit
def ready_then_other(flag, n):
    tl.store(flag, 1)
    if tl.program_id(0) == n - 1:
        tl.store(flag, 2)


@triton.jit
def ready_then_read(flag, out):
    tl.store(flag, 3)
    tl.store(out + tl.program_id(0), tl.load(flag))


@triton.jit
def reads_first(flag, out):
    if tl.program_id(0) == 0:
        tl.store(out, tl.load(flag))
    tl.store(flag, 3)


@triton.jit
def overlapping_rows(out, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    tl.store(out + i, i * 10)


def test_programs_that_store_one_value_are_a_note_and_no_race(caplog):
    flag = np.zeros(1, np.int32)
    with caplog.at_level(logging.INFO, logger="silo"):
        clean(ready, (8,), flag, 7)
    assert flag[0] == 7
    assert "several programs store the same value to one element" in caplog.text
    assert "test_check_collisions.py" in caplog.text
    out = np.zeros(8, np.int32)
    clean(ready_then_read, (8,), flag, out)
    assert (out == 3).all()
    clean(overlapping_rows, (4,), np.zeros(32, np.int16), STEP=3, BLOCK=4)


def test_a_program_that_stores_another_value_later_is_a_race():
    error = fault(ready_then_other, (8,), np.zeros(1, np.int32), 8, expected="race", at="tl.store(flag, 2)")
    assert "Other programs wrote there" in str(error)
    fault(ready_then_other, (8,), np.zeros(1, np.int32), 1, expected="race", at="tl.store(flag, 1)")


def test_a_program_that_reads_before_all_store_one_value_is_a_race():
    out = np.zeros(1, np.int32)
    fault(reads_first, (8,), np.zeros(1, np.int32), out, expected="race", at="tl.store(flag, 3)")
    fault(reads_first, (8,), np.full(1, 3, np.int32), out, expected="race", at="tl.store(flag, 3)")


# ---- gather


@triton.jit
def gathered(x, index, out, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK))
    i = tl.load(index + tl.arange(0, COUNT))
    tl.store(out + tl.arange(0, COUNT), tl.gather(v, i, 0))


@triton.jit
def gathered_rows(x, index, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), 1))


@pytest.mark.parametrize("outside", [8, -1, 1 << 30])
def test_an_index_of_a_gather_outside_of_its_tile(outside):
    index = np.array([7, 0, 3, outside], np.int32)
    error = fault(gathered, (1,), floats(8), index, np.zeros(4, np.float32), BLOCK=8, COUNT=4,
                  expected="out of bounds", at="tl.gather")  # fmt: skip
    assert error.index == (3,)
    assert f"Index {outside} of axis 0, which has 8 elements" in str(error)


def test_gathers_inside_of_their_tile():
    x, out = floats(8), np.zeros(4, np.float32)
    clean(gathered, (1,), x, np.array([7, 0, 3, 3], np.int32), out, BLOCK=8, COUNT=4)
    np.testing.assert_array_equal(out, x[[7, 0, 3, 3]])
    rows, index = floats(32).reshape(4, 8), np.zeros((4, 8), np.int32)
    index[2, 5] = 7
    clean(gathered_rows, (1,), rows, index, np.zeros((4, 8), np.float32), ROWS=4, COLUMNS=8)
    index[2, 5] = 8  # in the tile's memory, and not in its row
    error = fault(gathered_rows, (1,), rows, index, np.zeros((4, 8), np.float32), ROWS=4, COLUMNS=8,
                  expected="out of bounds", at="tl.gather")  # fmt: skip
    assert error.index == (2, 5)


# ---- the bounds of a view


@triton.jit
def shifted(x, out, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i + by))


VIEW = {"bounds": "view"}


def test_the_bounds_of_a_view():
    base, out = floats(3 * N), np.zeros(16, np.float32)
    clean(shifted, (1,), base[N : 2 * N], out, N, BLOCK=16)
    clean(shifted, (1,), base[N : 2 * N], out, N - 16, BLOCK=16, options=VIEW)
    error = fault(shifted, (1,), base[N : 2 * N], out, N - 15, BLOCK=16, options=VIEW,
                  expected="out of bounds", at="tl.load")  # fmt: skip
    assert error.index == (15,)
    assert "byte 400 of x (view of 400 bytes in a numpy base array of 1200 bytes), up to 4 bytes beyond" in str(error)
    fault(shifted, (1,), base[N : 2 * N], out, -1, BLOCK=16, options=VIEW, expected="out of bounds", at="tl.load")


@triton.jit
def column(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride, mask=i < n, other=0), mask=i < n)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_what_lies_between_the_elements_of_a_view_is_outside(library):
    base = floats(64).reshape(8, 8)
    if library == "torch":
        base = pytest.importorskip("torch").from_numpy(base)
    out = np.zeros(8, np.float32)
    clean(column, (1,), base[:, 2], out, 8, 8, BLOCK=8, options=VIEW)
    np.testing.assert_array_equal(out, np.arange(8) * 8 + 3)
    clean(column, (1,), base[:, 2], out, 7, 8, BLOCK=8)
    with pytest.raises(CheckError, match=r"view of 32 bytes in a .* of 256 bytes.*, between its elements") as raised:
        silo.check(column, bounds="view")[(1,)](base[:, 2], out, 7, 8, BLOCK=8)
    assert (raised.value.kind, raised.value.index) == ("out of bounds", (1,))


def test_bounds_are_one_of_two():
    with pytest.raises(ArgumentError, match="bounds is 'storage' or 'view', not 'array'"):
        silo.check(shifted, bounds="array")


# ---- products that wrap, and a mask that hides it


@triton.jit
def rows_hidden(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offset = row * stride + tl.arange(0, BLOCK)
    inside = (offset >= 0) & (offset < n)
    tl.store(out + row * BLOCK + tl.arange(0, BLOCK), tl.load(x + offset, mask=inside, other=0))


@triton.jit
def rows_masked(x, out, stride, rows, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride, mask=row < rows, other=0)
    tl.store(out + row, v)


def test_a_product_that_wraps_and_is_hidden_by_a_mask_of_itself():
    x, out = floats(64), np.zeros(64, np.float32)
    clean(rows_hidden, (4,), x, out, 1 << 28, 64, BLOCK=16)  # far out, and no product wraps
    for stride in ((1 << 30) + 7, -(1 << 30) - 7):
        error = fault(rows_hidden, (4,), x, out, stride, 64, BLOCK=16,
                      expected="overflow", at="offset = row * stride")  # fmt: skip
        assert "Only a mask that is computed from the wrapped product keeps it from being used" in str(error)


def test_a_product_that_wraps_in_lanes_that_another_mask_switches_off_is_no_overflow():
    clean(rows_masked, (1,), np.zeros((1 << 28) + 1, np.int8), np.zeros(16, np.int8), 1 << 28, 2, BLOCK=16)

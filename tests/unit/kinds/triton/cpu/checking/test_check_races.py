# ruff: noqa: E402  # Triton may be absent, which comes first; its constexprs are written in capitals
"""Checking mode: races between programs, and the order that atomics give."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
from checked_kernels import clean, fault, floats

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


# ---- races


@triton.jit
def stores_one(out):
    tl.store(out, tl.program_id(0))


@triton.jit
def neighbour(x, n):
    i = tl.program_id(0)
    v = tl.load(x + i + 1, mask=i + 1 < n, other=0)
    tl.store(x + i, v)


@triton.jit
def reads_then_writes(x, out, n):
    i = tl.program_id(0)
    total = tl.load(x) + tl.load(x + i)
    tl.store(out + i, total)
    if i == n - 1:
        tl.store(x, total)


def test_two_programs_that_write_one_element():
    error = fault(stores_one, (4,), np.zeros(1, np.int32), expected="race", at="tl.store")
    assert (error.program, error.argument) == ((1, 0, 0), "out")
    assert "Program (0, 0, 0) wrote there" in str(error)
    clean(stores_one, (1,), np.zeros(1, np.int32))


def test_a_program_that_writes_what_another_reads():
    error = fault(neighbour, (8,), floats(8), 8, expected="race", at="tl.store(x + i")
    assert error.program == (1, 0, 0)
    assert "Program (0, 0, 0) read there" in str(error)
    error = fault(reads_then_writes, (8,), floats(8), np.zeros(8, np.float32), 8, expected="race", at="tl.store(x, tot")
    assert "Other programs read there" in str(error)


@triton.jit
def overlapping(x, BLOCK: tl.constexpr):
    i = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    tl.store(x + i, i + tl.program_id(0))


@triton.jit
def bytes_apart(x, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, i.to(tl.int8))


def test_neighbours_of_different_widths():
    clean(bytes_apart, (4,), np.zeros(12, np.int8), BLOCK=2)
    clean(bytes_apart, (4,), np.zeros(13, np.int8)[1:], BLOCK=2)
    fault(overlapping, (4,), np.zeros(32, np.int16), BLOCK=4, expected="race", at="tl.store")


@triton.jit
def zeroes_and_adds(total, x):
    if tl.program_id(0) == 0:
        tl.store(total, 0.0)
    tl.atomic_add(total, tl.load(x + tl.program_id(0)))


def test_an_atomic_that_meets_a_plain_store():
    error = fault(zeroes_and_adds, (4,), np.zeros(1, np.float32), floats(4), expected="race", at="atomic_add")
    assert error.program == (1, 0, 0)


@triton.jit
def locked(partial, lock, counts, x, columns, groups, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    group = row % groups
    i = tl.arange(0, BLOCK)
    mask = i < columns
    part = tl.load(x + row * columns + i, mask=mask, other=0)
    mine = lock + group
    first = counts + group
    while tl.atomic_cas(mine, 0, 1) == 1:
        pass
    count = tl.load(first)
    if count == 0:
        tl.atomic_xchg(first, 1)
    else:
        part += tl.load(partial + group * columns + i, mask=mask, other=0)
    tl.store(partial + group * columns + i, part, mask=mask)
    tl.atomic_xchg(mine, 0)


@triton.jit
def unlocked_early(partial, lock, x, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = i < columns
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    part = tl.load(partial + i, mask=mask, other=0)
    tl.atomic_xchg(lock, 0)
    part += tl.load(x + tl.program_id(0) * columns + i, mask=mask, other=0)
    tl.store(partial + i, part, mask=mask)


def test_a_lock_orders_programs():
    x = floats(12 * 5).reshape(12, 5)
    partial, lock, counts = np.full((3, 5), 9, np.float32), np.zeros(3, np.int32), np.zeros(3, np.int32)
    clean(locked, (12,), partial, lock, counts, x, 5, 3, BLOCK=8, options={"uninitialized": ("partial",)})
    np.testing.assert_allclose(partial.sum(0), x.sum(0))
    error = fault(
        unlocked_early,
        (12,),
        np.zeros(5, np.float32),
        np.zeros(1, np.int32),
        x,
        5,
        BLOCK=8,
        expected="race",
        at="part = tl.load",
    )
    assert error.program == (1, 0, 0)


@triton.jit
def last_one_sums(x, partial, counter, out, n, PROGRAMS: tl.constexpr):
    row = tl.program_id(0)
    tl.store(partial + row, tl.load(x + row) * 2)
    if tl.atomic_add(counter, 1) == PROGRAMS - 1:
        i = tl.arange(0, PROGRAMS)
        tl.store(out, tl.sum(tl.load(partial + i)))
        tl.store(partial + i, 0.0)


@triton.jit
def last_one_relaxed(x, partial, counter, out, n, PROGRAMS: tl.constexpr):
    row = tl.program_id(0)
    tl.store(partial + row, tl.load(x + row) * 2)
    if tl.atomic_add(counter, 1, sem="relaxed") == PROGRAMS - 1:
        i = tl.arange(0, PROGRAMS)
        tl.store(out, tl.sum(tl.load(partial + i)))


def test_a_counter_orders_programs_unless_it_is_relaxed():
    out = np.zeros(1, np.float32)
    clean(last_one_sums, (8,), floats(8), np.zeros(8, np.float32), np.zeros(1, np.int32), out, 8, PROGRAMS=8)
    assert out[0] == 72
    fault(
        last_one_relaxed,
        (8,),
        floats(8),
        np.zeros(8, np.float32),
        np.zeros(1, np.int32),
        out,
        8,
        PROGRAMS=8,
        expected="race",
        at="tl.sum(tl.load(partial + i)",
    )


@triton.jit
def hands_over(x, flag, out):
    if tl.program_id(0) == 0:
        tl.store(x, 5)
        tl.atomic_xchg(flag, 1)
    elif tl.program_id(0) == 1:
        tl.atomic_add(flag, 0, sem="acquire")
        tl.store(out, tl.load(x))


@triton.jit
def waits_for_lower(x, flag, out):
    i = tl.program_id(0)
    if i > 0:
        while tl.load(flag + i - 1, volatile=True) == 0:
            pass
        tl.store(out + i, tl.load(x + i - 1) + 1)
    tl.store(x + i, i + tl.program_id(0))
    tl.atomic_xchg(flag + i, 1)


def test_what_only_shows_in_another_order():
    error = fault(
        hands_over,
        (2,),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
        expected="race",
        at="tl.store(x, 5)",
    )
    assert "when programs run from the last to the first" in str(error)


def test_programs_that_wait_for_lower_ones_do_not_hang(caplog):
    caplog.set_level("INFO", "silo")
    clean(waits_for_lower, (8,), np.zeros(8, np.int32), np.zeros(8, np.int32), np.zeros(8, np.int32))
    assert "programs wait for one another" in caplog.text

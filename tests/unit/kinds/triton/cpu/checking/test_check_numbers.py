# ruff: noqa: E402  # Triton may be absent, which comes first; its constexprs are written in capitals
"""Checking mode: arithmetic, promises, loops."""

from __future__ import annotations

import logging

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
import silo
from checked_kernels import N, clean, fault, floats
from silo.errors import CheckError

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


# ---- 32-bit arithmetic


@triton.jit
def strided(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offset = i * stride
    v = tl.load(x + offset % 7, mask=offset < n, other=0)
    tl.store(out + i, v, mask=i < n)


@triton.jit
def strided_wide(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offset = i.to(tl.int64) * stride
    v = tl.load(x + offset % 7, mask=offset < n, other=0)
    tl.store(out + i, v, mask=i < n)


@triton.jit
def far(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    offset = i * stride
    v = tl.load(x + offset, mask=i < n, other=0)
    tl.store(out + i, v, mask=i < n)


def test_offsets_that_wrap():
    x, out = floats(7), np.zeros(32, np.float32)
    stride = (1 << 31) // 5
    error = fault(strided, (2,), x, out, stride, 32, BLOCK=16, expected="overflow", at="offset = i * stride")
    assert (error.program, error.index) == ((0, 0, 0), (6,))
    assert "64 bits" in str(error)
    clean(strided_wide, (2,), x, out, stride, 32, BLOCK=16)


def test_offsets_that_wrap_where_nothing_is_accessed():
    clean(far, (1,), floats(7), np.zeros(32, np.float32), 1 << 28, 1, BLOCK=16)


def test_an_access_out_of_bounds_because_of_a_wrap_names_the_wrap():
    x, out = floats(7), np.zeros(32, np.float32)
    error = fault(far, (1,), x, out, -(1 << 29), 16, BLOCK=16, expected="out of bounds", at="v = tl.load")
    assert error.index == (1,)
    x, out = np.zeros(1 << 20, np.int8), np.zeros(32, np.int8)
    error = fault(far, (1,), x, out, 1 << 31 - 3, 16, BLOCK=16, expected="out of bounds", at="v = tl.load")


@triton.jit
def wraps_in_bounds(x, out, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    far = i + by
    tl.store(out + i, tl.load(x + (far + by)))


def test_a_wrap_that_leads_out_of_bounds_is_the_cause():
    x, out = floats(), np.zeros(16, np.float32)
    error = fault(
        wraps_in_bounds, (1,), x, out, (1 << 30) + 50, BLOCK=16, expected="overflow", at="tl.load(x + (far + by))"
    )
    assert "out of bounds" in str(error)


@triton.jit
def drops(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) > p
    at = tl.randint(seed, i) % 64
    v = tl.load(x + at, mask=keep, other=0)
    tl.store(out + i, v, mask=i < n)


@triton.jit
def hashes(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    h = i * 0x01000193
    h = (h ^ (h >> 15)) * 0x05EBCA6B
    at = (h ^ (h >> 13)) & 63
    tl.store(out + i, tl.load(x + at), mask=i < n)


def test_random_numbers_and_hashes_wrap_as_they_should():
    clean(drops, (4,), floats(64), np.zeros(N, np.float32), N, 0.5, 1234567, BLOCK=32)
    clean(hashes, (1,), floats(64), np.zeros(N, np.float32), N, BLOCK=128)


# ---- promises


@triton.jit
def promises(x, out, start, BLOCK: tl.constexpr, UNIT: tl.constexpr):
    i = start + tl.arange(0, BLOCK)
    i = tl.multiple_of(i, UNIT)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def promises_wrapped(x, out, start, n, BLOCK: tl.constexpr):
    i = (start + tl.arange(0, BLOCK)) % n
    i = tl.max_contiguous(tl.multiple_of(i, BLOCK), BLOCK)
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + i))


@triton.jit
def promises_constancy(x, out, BLOCK: tl.constexpr, EACH: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i // EACH
    at = tl.max_constancy(at + 1, 4)
    tl.store(out + i, tl.load(x + at))


def test_multiples():
    x, out = floats(), np.zeros(N, np.float32)
    clean(promises, (1,), x, out, 32, BLOCK=16, UNIT=16)
    error = fault(promises, (1,), x, out, 36, BLOCK=16, UNIT=8, expected="hint", at="i = start + ")
    assert "tl.multiple_of promises that the element is divisible by 8; it is 36" in str(error)


@triton.jit
def promises_address(x, out, by, BLOCK: tl.constexpr, UNIT: tl.constexpr):
    at = tl.multiple_of(x + by, UNIT)
    tl.store(out + tl.arange(0, BLOCK), tl.load(at + tl.arange(0, BLOCK)))


def odd(size):
    """An array of the host whose memory begins at no multiple of 32, as a GPU's always does."""
    memory = bytearray(4 * size + 64)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % 32 + 16
    return np.frombuffer(memory, np.float32, size, start)


def test_an_address_of_the_host_that_no_gpu_would_give_is_noted_and_the_rest_is_checked(caplog):
    caplog.set_level(logging.INFO, "silo")
    x, out = odd(N), np.zeros(N, np.float32)
    clean(promises_address, (1,), x, out, 0, BLOCK=16, UNIT=32)
    clean(promises_address, (1,), x, out, 32, BLOCK=16, UNIT=128)
    assert [record.getMessage().partition(": ")[2].partition(": ")[2] for record in caplog.records] == [
        f"tl.multiple_of promises an address that is divisible by {unit}, which this one is not: what libraries "
        "allocate on a GPU begins at such an address, and this memory of the host does not, so it counts as no fault"
        for unit in (32, 128)
    ]
    caplog.clear()
    error = fault(promises_address, (1,), x, out, N - 4, BLOCK=16, UNIT=32, expected="out of bounds", at="tl.store")
    assert "up to 4 bytes beyond its end" in str(error)


def test_an_address_inside_an_array_that_is_none_on_a_gpu_either():
    x, out = odd(N), np.zeros(N, np.float32)
    error = fault(promises_address, (1,), x, out, 3, BLOCK=16, UNIT=32, expected="hint", at="tl.multiple_of")
    assert "the address is divisible by 32; it is byte 12 of x (numpy array of 400 bytes)" in str(error)


def test_contiguity():
    x, out = floats(), np.zeros(N, np.float32)
    clean(promises_wrapped, (1,), x, out, 32, 64, BLOCK=16)
    error = fault(promises_wrapped, (1,), x, out, 48, 60, BLOCK=16, expected="hint", at="% n")
    assert error.index == (12,)
    assert "tl.max_contiguous" in str(error)


def test_constancy():
    x, out = floats(), np.zeros(N, np.float32)
    clean(promises_constancy, (1,), x, out, BLOCK=16, EACH=8)
    error = fault(promises_constancy, (1,), x, out, BLOCK=16, EACH=2, expected="hint", at="at + 1")
    assert error.index == (2,)


@triton.jit
def assumes(x, n):
    tl.assume(n > 10)
    tl.store(x, n)


@triton.jit
def asserts(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=1)
    tl.device_assert(v > 0, "x is positive")
    tl.store(out + i, v, mask=i < n)


def test_assumptions_and_assertions():
    clean(assumes, (1,), np.zeros(1, np.int32), 11)
    fault(assumes, (1,), np.zeros(1, np.int32), 10, expected="assumption", at="tl.assume")
    x, out = floats(), np.zeros(N, np.float32)
    clean(asserts, (1,), x, out, N, BLOCK=128)
    x[7] = 0
    error = fault(asserts, (1,), x, out, N, BLOCK=128, expected="assertion", at="device_assert")
    assert error.index == (7,)
    assert "x is positive" in str(error)


@triton.jit
def positive(v, w):
    tl.device_assert(w > 0, "positive in a sum")
    return v + w


@triton.jit
def maps(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.associative_scan(tl.load(x + i), 0, positive))


def test_assertions_in_functions_that_scans_apply():
    x, out = floats(16), np.zeros(16, np.float32)
    clean(maps, (1,), x, out, BLOCK=16)
    np.testing.assert_array_equal(out, np.cumsum(x))
    x[5], out[:] = -1, 7
    with pytest.raises(CheckError, match="positive in a sum") as raised:
        silo.check(maps)[(1,)](x, out, BLOCK=16)
    assert raised.value.kind == "assertion"
    assert (out == 7).all()


# ---- division and NaN


@triton.jit
def divides(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=0)
    b = tl.load(y + i, mask=i < n, other=0)
    tl.store(out + i, a // b, mask=i < n)


def test_integer_division_by_zero():
    x, y, out = np.arange(N, dtype=np.int32), np.ones(N, np.int32), np.zeros(N, np.int32)
    clean(divides, (1,), x, y, out, N, BLOCK=128)
    y[33] = 0
    error = fault(divides, (1,), x, y, out, N, BLOCK=128, expected="division by zero", at="a // b")
    assert (error.index, error.argument) == ((33,), "out")


@triton.jit
def logs(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=-1.0)
    w = tl.log(v)
    tl.store(out + i, w + 1, mask=i < n)


def test_nans_that_are_made():
    x, out = floats(), np.zeros(N, np.float32)
    find = {"nan": True}
    clean(logs, (1,), x, out, N, BLOCK=128, options=find)
    x[50] = np.nan
    clean(logs, (1,), x, out, N, BLOCK=128, options=find)
    x[60] = -2
    clean(logs, (1,), x, out, N, BLOCK=128)
    out[:] = 0
    error = fault(logs, (1,), x, out, N, BLOCK=128, options=find, expected="NaN", at="tl.log")
    assert (error.index, error.argument) == ((60,), "out")


# ---- loops


@triton.jit
def collatz(out, start):
    v = tl.full((), start, tl.int64)
    steps = 0
    while v != 1:
        v = tl.where(v % 2 == 0, v // 2, 3 * v + 1)
        steps += 1
    tl.store(out, steps)


@triton.jit
def spins(flag):
    while tl.load(flag, volatile=True) == 0:
        pass
    tl.store(flag, 2)


def test_loops_that_do_not_end():
    out = np.zeros(1, np.int32)
    clean(collatz, (1,), out, 27)
    assert out[0] == 111
    fault(collatz, (1,), out, 0, options={"steps": 100_000}, expected="endless", at="while v != 1")
    fault(spins, (1,), np.zeros(1, np.int32), options={"steps": 100_000}, expected="endless", at="while tl.load")
    clean(spins, (1,), np.ones(1, np.int32))


@triton.jit
def adds_up(x, y, out, N: tl.constexpr, DOT: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.load(x + i), tl.load(y + i)
    if DOT:
        tl.store(out + i, tl.dot(a, b))
    else:
        tl.store(out + tl.arange(0, N), tl.sum(a + b, axis=1))


@pytest.mark.parametrize("dot", [True, False])
def test_nans_that_sums_and_dots_make(dot):
    x, y, out = (np.ones((16, 16), np.float32) for _ in range(3))
    find = {"nan": True}
    x[3, 2] = np.nan
    clean(adds_up, (1,), x, y, out, N=16, DOT=dot, options=find)
    x[3, 2], x[5, 1], x[5, 2] = 1, np.inf, -np.inf
    error = fault(
        adds_up, (1,), x, y, out, N=16, DOT=dot, options=find, expected="NaN", at="tl.dot" if dot else "tl.sum"
    )
    assert error.index == ((5, 0) if dot else (5,))

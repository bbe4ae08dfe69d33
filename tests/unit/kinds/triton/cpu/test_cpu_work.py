"""The estimate of a program's work: which kernels have one, and how it grows."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import module_of  # noqa: E402
from silo.kinds.triton.cpu.analysis.costs import program_nanoseconds  # noqa: E402


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def exponential(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.exp(tl.exp(tl.exp(tl.load(x + i, mask=i < n)))), mask=i < n)


@triton.jit
def product(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    tile = tl.load(x + at)
    tl.store(out + at, tl.dot(tile, tile))


@triton.jit
def repeated(x, out, n, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        total += tl.load(x + turn * BLOCK + i)
    tl.store(out + i, total)


@triton.jit
def as_often_as_it_is_told(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for turn in range(n):
        total += tl.load(x + turn * BLOCK + i)
    tl.store(out + i, total)


@triton.jit
def until_it_is_small(x, out, n, BLOCK: tl.constexpr):
    value = tl.load(x)
    while value > 1.0:
        value = value / 2
    tl.store(out, value)


def estimate(kernel, **constants):
    array = np.zeros(4, np.float32)
    arrays = {name: array for name in kernel.arg_names if name in ("x", "y", "out")}
    return program_nanoseconds(module_of(kernel, {**arrays, "n": 100, **constants}))


def test_it_grows_with_the_block():
    small, large = estimate(add, BLOCK=256), estimate(add, BLOCK=16384)
    assert 30 * small < large < 70 * small


def test_bytes_count_and_operations_do():
    plain = estimate(add, BLOCK=4096)
    assert 100 < plain < 5000, "a program of 4096 additions takes about half a microsecond"
    assert estimate(exponential, BLOCK=4096) > 2 * plain


def test_products_count_by_their_depth():
    assert 5 < estimate(product, BLOCK=128) / estimate(product, BLOCK=64) < 9


def test_a_loop_counts_as_often_as_it_turns():
    assert 8 < estimate(repeated, BLOCK=1024, TURNS=100) / estimate(repeated, BLOCK=1024, TURNS=10) < 11
    assert estimate(repeated, BLOCK=1024, TURNS=0) > 0


@pytest.mark.parametrize("kernel", [as_often_as_it_is_told, until_it_is_small])
def test_a_loop_that_does_not_say_how_often_it_turns(kernel):
    assert estimate(kernel, BLOCK=1024) == 0

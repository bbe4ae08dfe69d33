"""Stores past the caches: which stores may, and that large launches write what small ones do."""

from __future__ import annotations

import re

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.analysis.streams import streamable_stores  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler
RNG = np.random.default_rng(5)
BLOCK = 1024


@triton.jit
def add_scaled(x, y, out, n, BLOCK: tl.constexpr):
    """Only the first program does anything, so that a launch may be large and its arrays small."""
    i = tl.arange(0, BLOCK)
    inside = i < tl.where(tl.program_id(0) == 0, n, 0)
    tl.store(out + i, tl.load(x + i, mask=inside) * 2 + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def copy_loop(x, out, n, STEP: tl.constexpr):
    for start in range(0, n, STEP):
        i = start + tl.arange(0, STEP)
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def last_of_loop(x, out, n, STEP: tl.constexpr):
    for start in range(0, n, STEP):
        i = tl.arange(0, STEP)
        tl.store(out + i, tl.load(x + start + i))


@triton.jit
def in_place(x, out, n, STEP: tl.constexpr):
    i = tl.program_id(0) * STEP + tl.arange(0, STEP)
    tl.store(out + i, tl.load(x + i))
    tl.store(x + i, tl.load(x + i) + 1)


@triton.jit
def announced(x, out, n, STEP: tl.constexpr):
    i = tl.program_id(0) * STEP + tl.arange(0, STEP)
    tl.store(out + i, tl.load(x + i))
    tl.atomic_add(x, 1.0)


@triton.jit
def through_table(x, out, n, STEP: tl.constexpr):
    place = tl.load(out.to(tl.pointer_type(tl.int64))).to(tl.pointer_type(tl.float32), bitcast=True)
    i = tl.arange(0, STEP)
    tl.store(place + i, tl.load(x + i))


@triton.jit
def returns_early(x, out, n, STEP: tl.constexpr):
    if tl.program_id(0) > n:
        return
    i = tl.program_id(0) * STEP + tl.arange(0, STEP)
    tl.store(out + i, tl.load(x + i))


def normal(count, dtype=np.float32):
    return (RNG.standard_normal(count) * (100 if dtype == np.int16 else 1)).astype(dtype)


def text_of(kernel, **arguments):
    return emit_c(module_of(kernel, arguments), CpuOptions(vector_bits=512)).source


def programs_of(text):
    """How many programs a launch must have for its stores to go past the caches."""
    return int(re.search(r"if \(\(double\)grid.* >= (\d+)\)", text)[1])


@pytest.mark.parametrize(("kernel", "count"), [(copy_loop, 1), (last_of_loop, 0), (in_place, 1), (announced, 0)])
def test_stores_to_what_is_touched_once_may_be_streamed(kernel, count):
    x = normal(64)
    assert len(streamable_stores(module_of(kernel, {"x": x, "out": x, "n": 64, "STEP": 16}).entry)) == count


def test_addresses_from_memory_and_early_returns():
    x = normal(64)
    arguments = {"x": x, "out": x, "n": 64, "STEP": 16}
    assert not streamable_stores(module_of(through_table, arguments).entry)
    assert len(streamable_stores(module_of(returns_early, arguments).entry)) == 1


def test_the_reference_schedule_streams_nothing():
    x = normal(BLOCK)
    arguments = {"x": x, "y": x, "out": x, "n": BLOCK, "BLOCK": BLOCK}
    assert "silo_stream" in text_of(add_scaled, **arguments)
    assert "silo_stream" not in emit_c(module_of(add_scaled, arguments), CpuOptions(mode="reference")).source


def test_short_rows_are_not_streamed():
    x = normal(32)
    assert "silo_stream" not in text_of(add_scaled, x=x, y=x, out=x, n=32, BLOCK=32)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.float64])
@pytest.mark.parametrize("offset", [0, 1, 5])
@pytest.mark.parametrize("n", [BLOCK, 700, 3, 0])
def test_large_launches_write_what_small_ones_do(dtype, offset, n):
    x, y = normal(BLOCK, dtype), normal(BLOCK, dtype)
    many = programs_of(text_of(add_scaled, x=x, y=y, out=x, n=n, BLOCK=BLOCK))
    assert many <= 1 << 14
    results = []
    for programs in (1, many):
        memory = np.full(BLOCK + 16, 7, dtype)
        run(add_scaled, (programs,), "optimized", x=x, y=y, out=memory[offset:], n=n, BLOCK=BLOCK)
        results.append(memory)
    wanted = np.full(BLOCK + 16, 7, dtype)
    wanted[offset : offset + n] = x[:n] * dtype(2) + y[:n]
    np.testing.assert_allclose(results[0], wanted, rtol=1e-5, atol=1e-5)
    assert results[1].tobytes() == results[0].tobytes()


@pytest.mark.parametrize("shift", [-1030, -65, -16, -1, 0, 1, 7, 64, 1024])
def test_loads_come_before_streamed_stores_through_an_overlapping_argument(shift):
    memory = normal(6 * BLOCK)
    x, y = memory[2000 : 2000 + BLOCK], memory[4000 : 4000 + BLOCK]
    wanted = x * 2 + y
    out = memory[2000 + shift : 2000 + shift + BLOCK]
    run(add_scaled, (1 << 13,), "optimized", x=x, y=y, out=out, n=BLOCK, BLOCK=BLOCK)
    np.testing.assert_allclose(out, wanted, rtol=1e-6, atol=1e-6)


def test_iterations_count():
    """2^9 programs of 16 iterations write as much as 2^13 of one."""
    x = normal(16 * BLOCK + 5)
    text = text_of(copy_loop, x=x, out=x, n=len(x), STEP=BLOCK)
    assert programs_of(text) == 1 << 13
    assert "* (double)trips" in text
    out = np.zeros_like(x)
    run(copy_loop, (1 << 9,), "optimized", x=x, out=out, n=len(x), STEP=BLOCK)
    np.testing.assert_array_equal(out, x)

"""Atomic adds that need hold within their launch: plain ones where one thread runs it, atomic where several do."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, compiled, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler
ALONE = {"cpu_launch_atomics": True}
DTYPES = ["int32", "uint64", "float16", "bfloat16", "float32", "float64"]


@triton.jit
def add_rows(rows, values, sums, n, d, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + i // d, mask=i < n, other=0)
    tl.atomic_add(sums + row * d + i % d, tl.load(values + i, mask=i < n), mask=i < n, sem="relaxed")


@triton.jit
def add_all_rows(rows, values, sums, d, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sums + tl.load(rows + i // d) * d + i % d, tl.load(values + i), sem="relaxed")


@triton.jit
def add_to_few(sums, values, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sums + (i & 3), 1, mask=i < n)
    tl.atomic_add(sums + 4 + i * 0, tl.load(values + i, mask=i < n), mask=i < n)
    tl.atomic_add(sums + 5, 2)


@triton.jit
def add_and_ask(sums, old, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(old + i, tl.atomic_add(sums + (i & 7), i))
    tl.atomic_max(sums + (i & 7), i * 3)


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def rows_of(dtype, d, n, count=11):
    """Rows, what is added to them, and the sums; halves are integers whose sums are exact in them."""
    random = np.random.default_rng(d)
    rows = random.integers(0, count, -(-n // d) + 1)
    values = random.integers(-3, 4, n).astype(dtype)
    expected = np.zeros(count * d, dtype)
    at = rows[np.arange(n) // d] * d + np.arange(n) % d
    np.add.at(expected, at, values)
    return rows, values, np.zeros_like(expected), expected


# Widths that are a vector's, that vectors do not fit into, and of which none is a run.
@pytest.mark.parametrize("d", [64, 16, 20, 100, 3, 1])
@pytest.mark.parametrize("name", DTYPES)
def test_rows_are_added(name, d):
    dtype, n = dtype_of(name), 2037
    rows, values, sums, expected = rows_of(dtype, d, n)
    seen = [value.view(np.uint16) if name == "bfloat16" else value for value in (values, sums)]
    kernel = {"rows": rows, "values": values, "sums": sums, "n": n, "d": d, "BLOCK": 256}
    loaded = compiled(add_rows, "optimized", options=ALONE, **kernel)
    kernel.update(values=seen[0], sums=seen[1])
    loaded.run((8,), {slot.name: kernel[slot.name] for slot in loaded.launch.layout})
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [ALONE, {}])
def test_every_element_of_a_row_is_added(mode, options):
    rows, values, sums, expected = rows_of(np.dtype("float32"), 32, 2048)
    run(add_all_rows, (8,), mode, options=options, rows=rows, values=values, sums=sums, d=32, BLOCK=256)
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("mode", MODES)
def test_elements_of_one_place_are_added_one_after_the_other(mode):
    values, sums = np.arange(1000, dtype=np.int64), np.zeros(6, np.int64)
    run(add_to_few, (4,), mode, options=ALONE, sums=sums, values=values, n=1000, BLOCK=256)
    assert sums.tolist() == [250, 250, 250, 250, 499500, 8]


def test_an_old_value_that_is_asked_for_stays_atomic():
    sums, old = np.zeros(8, np.int32), np.zeros(64, np.int32)
    run(add_and_ask, (1,), "optimized", options=ALONE, sums=sums, old=old, BLOCK=64)
    each = np.arange(64).reshape(8, 8)
    np.testing.assert_array_equal(old.reshape(8, 8), np.cumsum(each, 0) - each)
    np.testing.assert_array_equal(sums, np.maximum(each.sum(0), each.max(0) * 3))
    text = emit_c(module_of(add_and_ask, {"sums": sums, "old": old, "BLOCK": 64}), CpuOptions(launch_atomics=True))
    assert " = silo_atomic_add_i32(" in text.source


def test_kernels_take_turns_unless_the_caller_says_that_nobody_else_is_there():
    rows, values, sums, _ = rows_of(np.dtype("float32"), 32, 2048)
    module = module_of(add_all_rows, {"rows": rows, "values": values, "sums": sums, "d": 32, "BLOCK": 256})
    assert "silo_add_tile_f32(" in emit_c(module, CpuOptions(launch_atomics=True)).source
    assert "turns->enter(context, 1)" in emit_c(module, CpuOptions()).source
    assert "turns->" not in emit_c(module, CpuOptions(launch_atomics=True)).source
    assert "turns->enter(context, 0)" in emit_c(module, CpuOptions(mode="reference")).source
    assert "alone" not in emit_c(module, CpuOptions(mode="reference", launch_atomics=True)).source


def test_threads_that_nobody_told_they_are_alone_add_atomically():
    n, d = 1 << 16, 16
    rows, values, sums, expected = rows_of(np.dtype("float32"), d, n, count=2)
    loaded = compiled(add_all_rows, "optimized", options=ALONE, rows=rows, values=values, sums=sums, d=d, BLOCK=256)
    cells = [ctypes.c_void_p(array.ctypes.data) for array in (rows, values, sums)] + [ctypes.c_int32(d)]
    cells = cells[: len(loaded.launch.layout)]
    addresses = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
    extents = (ctypes.c_uint32 * 3)(n // 256, 1, 1)

    def part(begin):
        scratch = np.empty(loaded.launch.scratch_bytes + 64, np.uint8)
        at = -(-scratch.ctypes.data // 64) * 64
        return loaded._entry(addresses, extents, begin, begin + 64, at, None)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            assert not any(pool.map(part, range(0, n // 256, 64)))
    np.testing.assert_array_equal(sums, expected * 20)

"""Sums along columns and over the middle axis: rows that lie apart in memory are asked for before they are read."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def column_sums(x, o, R, C, BR: tl.constexpr, BC: tl.constexpr):
    j = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), tl.float32)
    for k in range(0, R, BR):
        i = k + tl.arange(0, BR)
        tile = tl.load(x + i[:, None] * C + j[None, :], mask=(i[:, None] < R) & (j[None, :] < C), other=0.0)
        total += tl.sum(tile, 0)
    tl.store(o + j, total, mask=j < C)


@triton.jit
def column_sums_of_tiles(x, o, R, C, BR: tl.constexpr, BC: tl.constexpr):
    j = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros((BR, BC), tl.float32)
    for k in range(0, R, BR):
        i = k + tl.arange(0, BR)
        total += tl.load(x + i[:, None] * C + j[None, :], mask=(i[:, None] < R) & (j[None, :] < C), other=0.0)
    tl.store(o + j, tl.sum(total, 0), mask=j < C)


@triton.jit
def middle(x, high, low, M, C, BM: tl.constexpr, BC: tl.constexpr):
    b, j, i = tl.program_id(1), tl.program_id(0) * BC + tl.arange(0, BC), tl.arange(0, BM)
    inside = (i[:, None] < M) & (j[None, :] < C)
    tile = tl.load(x + b * M * C + i[:, None] * C + j[None, :], mask=inside, other=0.0)
    tl.store(high + b * C + j, tl.max(tl.where(inside, tile, -float("inf")), 0), mask=j < C)
    tl.store(low + b * C + j, tl.min(tl.where(inside, tile, float("inf")), 0), mask=j < C)


@triton.jit
def row_sums(x, o, C, BR: tl.constexpr, BC: tl.constexpr):
    i, j = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BC)
    tl.store(o + i, tl.sum(tl.load(x + i[:, None] * C + j[None, :]), 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [column_sums, column_sums_of_tiles])
@pytest.mark.parametrize("shape", [(100, 1000), (37, 6), (64, 128), (1, 300), (129, 513)])
def test_columns(kernel, shape, mode):
    x = np.random.default_rng(0).integers(-8, 9, shape).astype(np.float32)
    o = np.full(shape[1], np.nan, np.float32)
    grid = (-(-shape[1] // 128),)
    run(kernel, grid, mode, x=x, o=o, R=shape[0], C=shape[1], BR=32, BC=128)
    np.testing.assert_array_equal(o, x.sum(0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(3, 50, 700), (2, 64, 64), (1, 1, 5)])
def test_middle_axis(shape, mode):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    high, low = (np.zeros((shape[0], shape[2]), np.float32) for _ in range(2))
    run(middle, (-(-shape[2] // 64), shape[0]), mode, x=x, high=high, low=low, M=shape[1], C=shape[2], BM=64, BC=64)
    np.testing.assert_array_equal(high, x.max(1))
    np.testing.assert_array_equal(low, x.min(1))


def test_only_rows_that_are_summed_up_are_asked_for():
    x, o = np.zeros((64, 2000), np.float32), np.zeros(2000, np.float32)
    sizes = {"C": 2000, "BR": 32, "BC": 128}
    for kernel, asks in ((column_sums, True), (column_sums_of_tiles, True), (row_sums, False)):
        more = {} if kernel is row_sums else {"R": 64}
        text = emit_c(module_of(kernel, {"x": x, "o": o, **more, **sizes}), CpuOptions(vector_bits=512)).source
        assert (" silo_ahead(&tiles" in text) is asks

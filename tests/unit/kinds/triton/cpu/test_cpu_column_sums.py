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


@triton.jit
def extremes(x, largest, least, proud, R, C, fill, BR: tl.constexpr, BC: tl.constexpr):
    """Of each column the largest and least number, and the largest or NaN; masked rows are ``fill``."""
    j = tl.program_id(0) * BC + tl.arange(0, BC)
    i = tl.arange(0, BR)
    tile = tl.load(x + i[:, None] * C + j[None, :], mask=(i[:, None] < R) & (j[None, :] < C), other=fill)
    tl.store(largest + j, tl.max(tile, 0), mask=j < C)
    tl.store(least + j, tl.min(tile, 0), mask=j < C)
    tl.store(proud + j, tl.reduce(tile, 0, _larger_or_nan), mask=j < C)


@triton.jit
def _larger_or_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@pytest.mark.parametrize("fill", [0.0, 100.0, -np.inf, np.nan])
@pytest.mark.parametrize("shape", [(64, 64), (61, 17), (3, 130), (1, 5), (64, 1)])
def test_extremes_with_nans(shape, fill):
    random = np.random.default_rng(7)
    x = random.standard_normal(shape).astype(np.float32)
    x[random.random(shape) < 0.2] = np.nan
    x[:, shape[1] // 2] = np.nan
    found = []
    for mode in MODES:
        out = [np.full(shape[1], 9, np.float32) for _ in range(3)]
        words = dict(zip(("largest", "least", "proud"), out, strict=True))
        run(extremes, (-(-shape[1] // 64),), mode, x=x, **words, R=shape[0], C=shape[1], fill=float(fill), BR=64, BC=64)
        found.append(out)
    whole = np.vstack([x, np.full((64 - shape[0], shape[1]), fill, np.float32)])
    with np.errstate(invalid="ignore"):
        expected = [np.fmax.reduce(whole, 0), np.fmin.reduce(whole, 0), np.maximum.reduce(whole, 0)]
    for out in found:
        for one, other in zip(out, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@triton.jit
def filled_sums(x, o, R, C, fill, BR: tl.constexpr, BC: tl.constexpr):
    """Masked elements count as ``fill``, in rows behind the last, too."""
    i, j = tl.arange(0, BR), tl.arange(0, BC)
    tile = tl.load(x + i[:, None] * C + j[None, :], mask=(i[:, None] < R) & (j[None, :] < C), other=fill)
    tl.store(o + j, tl.sum(tile, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(32, 32), (19, 32), (32, 7), (5, 9), (0, 3)])
def test_sums_of_what_masks_fill_in(shape, dtype):
    x = np.random.default_rng(8).integers(-8, 9, (max(shape[0], 1), shape[1])).astype(dtype)
    for fill in (0, 3):
        expected = np.full((32, 32), fill, dtype)
        expected[: shape[0], : shape[1]] = x[: shape[0]]
        for mode in MODES:
            o = np.full(32, 99, dtype)
            run(filled_sums, (1,), mode, x=x, o=o, R=shape[0], C=shape[1], fill=fill, BR=32, BC=32)
            np.testing.assert_array_equal(o, expected.sum(0))

"""Rows that end within a vector, and tiles larger than their array: no work behind the end, nothing written there."""
# pyright: reportCallIssue=false

from __future__ import annotations

import re

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def softmax(x, o, R, C, BR: tl.constexpr, BC: tl.constexpr):
    i, j = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BC)
    inside = (i[:, None] < R) & (j[None, :] < C)
    values = tl.load(x + i[:, None] * C + j[None, :], mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 1)[:, None])
    tl.store(o + i[:, None] * C + j[None, :], powers / tl.sum(powers, 1)[:, None], mask=inside)


@triton.jit
def quotients(x, y, o, C, stride, BC: tl.constexpr):
    i = tl.arange(0, BC)
    row = tl.program_id(0) * stride + i
    a, b = tl.load(x + row, mask=i < C, other=0), tl.load(y + row, mask=i < C, other=0)
    tl.store(o + row, a // b + a % b, mask=i < C)


@triton.jit
def deviations(x, o, C, BLOCK: tl.constexpr):
    row, total, square = tl.program_id(0) * C, tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for k in range(0, C, BLOCK):
        i = k + tl.arange(0, BLOCK)
        total += tl.load(x + row + i, mask=i < C, other=0.0)
    mean = tl.sum(total) / C
    for k in range(0, C, BLOCK):
        i = k + tl.arange(0, BLOCK)
        centred = tl.where(i < C, tl.load(x + row + i, mask=i < C, other=0.0) - mean, 0.0)
        square += centred * centred
    tl.store(o + tl.program_id(0), tl.sum(square))


@triton.jit
def transpose(x, o, R, C, BR: tl.constexpr, BC: tl.constexpr):
    i, j = (tl.program_id(0) * BR + tl.arange(0, BR))[:, None], (tl.program_id(1) * BC + tl.arange(0, BC))[None, :]
    inside = (i < R) & (j < C)
    tl.store(o + j * R + i, tl.load(x + i * C + j, mask=inside, other=7.0), mask=inside)


@triton.jit
def filled(x, o, R, C, BR: tl.constexpr, BC: tl.constexpr):
    i, j = tl.arange(0, BR)[:, None], tl.arange(0, BC)[None, :]
    tile = tl.load(x + i * C + j, mask=(i < R) & (j < C), other=7.0)
    tl.store(o + j * BR + i, tile)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("columns", [1, 13, 17, 30, 32, 47])
def test_softmax_of_short_rows(columns, mode):
    x = np.random.default_rng(0).standard_normal((21, columns)).astype(np.float32)
    o = np.full((23, columns), np.nan, np.float32)
    run(softmax, (3,), mode, x=x, o=o, R=21, C=columns, BR=8, BC=64)
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(o[:21], powers / powers.sum(1, keepdims=True), rtol=1e-6)
    assert np.isnan(o[21:]).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_elements_behind_a_row_stay(dtype, mode):
    random = np.random.default_rng(0)
    for columns in (15, 16, 31, 90, 128):
        x = random.integers(0, 100, (3, 140)).astype(dtype)
        y = random.integers(1, 9, (3, 140)).astype(dtype)
        o = np.full((3, 140), -5, dtype)
        run(quotients, (3,), mode, x=x, y=y, o=o, C=columns, stride=140, BC=128)
        np.testing.assert_array_equal(o[:, :columns], (x // y + x % y)[:, :columns])
        assert (o[:, columns:] == -5).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("columns", [3, 64, 100, 300])
def test_deviations_of_rows_shorter_than_a_block(columns, mode):
    x = np.random.default_rng(0).integers(-4, 5, (5, columns)).astype(np.float32)
    x[:, -1] -= x.sum(1) - columns  # the mean is 1, so that every sum is exact
    o = np.zeros(5, np.float32)
    run(deviations, (5,), mode, x=x, o=o, C=columns, BLOCK=256)
    np.testing.assert_array_equal(o, np.square(x - 1).sum(1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tile", [(16, 64), (128, 16), (64, 128)])
def test_tiles_larger_than_the_array(tile, mode):
    x = np.random.default_rng(0).standard_normal((37, 29)).astype(np.float32)
    o = np.full((29, 37), np.nan, np.float32)
    rows, columns = tile
    run(transpose, (-(-37 // rows), -(-29 // columns)), mode, x=x, o=o, R=37, C=29, BR=rows, BC=columns)
    np.testing.assert_array_equal(o, x.T)


@pytest.mark.parametrize("mode", MODES)
def test_elements_outside_of_a_mask_have_the_other_value(mode):
    x = np.random.default_rng(0).standard_normal((37, 29)).astype(np.float32)
    o = np.full((32, 64), np.nan, np.float32)
    run(filled, (1,), mode, x=x, o=o, R=37, C=29, BR=64, BC=32)
    wanted = np.full((32, 64), 7, np.float32)
    wanted[:29, :37] = x.T
    np.testing.assert_array_equal(o, wanted)


def test_short_loops_of_vectors_end_with_a_mask():
    x = np.zeros((8, 30), np.float32)
    text = {
        bits: emit_c(
            module_of(softmax, {"x": x, "o": x, "R": 8, "C": 30, "BR": 8, "BC": 32}), CpuOptions(vector_bits=bits)
        ).source
        for bits in (256, 512)
    }
    divided = re.compile(r"if \(on\d+\) t\d+\[i\d+\] = ")
    assert divided.search(text[512])
    assert not divided.search(text[256])  # the level has no masks

"""Kernels that were compiled wrong once, as small as they show it; most were found by tests/fuzz."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, needs_compiler, run  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def reshape_after_return(out, limit):
    i = tl.arange(0, 64)
    j = tl.arange(0, 2)
    tile = tl.broadcast_to(((i[:, None] + 2) % 2).to(tl.int64), (64, 2))
    if tl.max(i) > limit:
        return
    if tl.max(tile) >= 1:
        tl.store(out + j, tl.full((2,), 1, tl.int16))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [2, 100])
def test_a_tile_made_before_an_early_return_is_reshaped_after_it(mode, limit):
    out = np.zeros(2, np.int16)
    run(reshape_after_return, (1,), mode, out=out, limit=limit)
    assert out.tolist() == [int(limit > 63)] * 2


@triton.jit
def load_between(x, tile, out, n):
    i = tl.arange(0, 8)
    j = tl.arange(0, 16)
    table = tl.broadcast_to(((i[None, :] * 7 + 3) % 3 - 1).to(tl.int64), (16, 8))
    loaded = tl.load(x + j * 0, mask=j < n, other=tl.sum(table, 1))
    tl.store(tile + j[:, None] * 8 + i[None, :], tl.full((16, 8), 1, tl.int64))
    tl.store(out + j, loaded)


@pytest.mark.parametrize("mode", MODES)
def test_a_load_that_needs_a_sum_comes_before_a_store_that_may_overwrite_what_it_reads(mode):
    x, tile, out = np.full(4, 50), np.zeros(128, np.int64), np.zeros(16, np.int64)
    run(load_between, (1,), mode, x=tile, tile=tile, out=out, n=2)
    total = int(((np.arange(8) * 7 + 3) % 3 - 1).sum())
    assert out.tolist() == [0, 0, *[total] * 14]
    run(load_between, (1,), mode, x=x, tile=tile, out=out, n=2)
    assert out.tolist() == [50, 50, *[total] * 14]


@triton.jit
def halves_in_dots_and_rows(x, out, row):
    i, j, k = tl.arange(0, 16), tl.arange(0, 128), tl.arange(0, 32)
    left = tl.load(x + i[:, None] * 32 + k[None, :])
    right = tl.load(x + k[:, None] * 16 + i[None, :])
    tl.store(out + i[:, None] * 16 + i[None, :], tl.dot(left, right))
    tl.store(row + j, tl.load(x + j) + tl.load(x + 128 + j))


@pytest.mark.parametrize("mode", MODES)
def test_halves_in_dots_and_in_rows_of_one_kernel(mode):
    x = np.random.default_rng(0).integers(-3, 4, 512).astype(np.float16)
    out, row = np.zeros((16, 16), np.float32), np.zeros(128, np.float16)
    run(halves_in_dots_and_rows, (1,), mode, x=x, out=out, row=row)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(out, wide.reshape(16, 32) @ wide.reshape(32, 16))
    np.testing.assert_array_equal(row, x[:128] + x[128:256])

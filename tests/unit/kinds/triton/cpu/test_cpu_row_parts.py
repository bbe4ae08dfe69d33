"""Programs of products cut into parts of their rows: the same bits, however the parts are handed out."""

from __future__ import annotations

import ctypes
import itertools
import re

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import compiled, module_of, needs_compiler  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402
from silo.launch.cpu_objects import context_alone  # noqa: E402

pytestmark = needs_compiler

PARTS = {"cpu_row_parts": True}


@triton.jit(do_not_specialize=["M", "N", "K", "am", "ak", "bk", "bn"])
def linear(a, b, bias, c, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    p = tl.program_id(0)
    columns = tl.cdiv(N, BN)
    i, j, k = (p // columns) * BM + tl.arange(0, BM), (p % columns) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for s in range(tl.cdiv(K, BK)):
        d = s * BK + k
        x = tl.load(a + i[:, None] * am + d[None, :] * ak, mask=(i[:, None] < M) & (d[None, :] < K), other=0)
        y = tl.load(b + d[:, None] * bk + j[None, :] * bn, mask=(d[:, None] < K) & (j[None, :] < N), other=0)
        total = tl.dot(x, y, total)
    total += tl.load(bias + j, mask=j < N)[None, :]
    tl.store(c + i[:, None] * N + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def wrapped(a, b, scale, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows by a remainder, pointers that the loop moves, a factor for each row, and two results."""
    p = tl.program_id(0)
    i, j, k = (p * BM + tl.arange(0, BM)) % M, tl.arange(0, BN), tl.arange(0, BK)
    left, right = a + i[:, None] * K + k[None, :], b + k[:, None] * N + j[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(K // BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK * N
    row = p * BM + tl.arange(0, BM)
    inside = (row[:, None] < M) & (j[None, :] < N)
    total *= tl.load(scale + row, mask=row < M)[:, None]
    at = row[:, None] * N + j[None, :]
    tl.store(c + at, total, mask=inside)
    tl.store(c + M * N + at, tl.where(total > 0, total, 0.0), mask=inside)


@triton.jit
def normalized(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Every column is divided by its sum over the rows, which no part of the rows has."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x, y = tl.load(a + i[:, None] * K + s + k[None, :]), tl.load(b + (s + k)[:, None] * N + j[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + i[:, None] * N + j[None, :], total / tl.sum(total, 0)[None, :])


def _run(loaded, programs, arguments, parts, ranges):
    """Run ``ranges`` of programs, or of the parts that a launch hands out."""
    cells = [loaded._cell(slot.name, slot.type, arguments[slot.name]) for slot in loaded.launch.layout]
    addresses = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
    context = context_alone()
    context.parts = parts
    grid = (ctypes.c_uint32 * 3)(programs, 1, 1)
    scratch = loaded._scratch_address
    for begin, end in ranges:
        assert loaded.function(addresses, grid, begin, end, scratch, ctypes.addressof(context)) == 0
    return context.parts


def _cuts(total, seed):
    """Uneven ranges of all parts, out of order."""
    random = np.random.default_rng(seed)
    edges = [0, *sorted(random.choice(np.arange(1, total), size=min(total - 1, 5), replace=False).tolist()), total]
    return random.permutation(list(itertools.pairwise(edges))).tolist()


def _bits(array):
    return array.view(np.uint32)


@pytest.mark.parametrize("right", ["turned", "plain"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (150, 92, 700), (33, 17, 300), (5, 130, 94)])
def test_parts_have_the_same_bits(shape, name, right):
    (m, n, k), dtype, random = shape, np.dtype(getattr(ml_dtypes, name, name)), np.random.default_rng(1)
    a, b = random.standard_normal((m, k)).astype(dtype), random.standard_normal((k, n)).astype(dtype)
    b = np.asfortranarray(b) if right == "turned" else b
    strides = [step // dtype.itemsize for step in (*a.strides, *b.strides)]
    bias = random.standard_normal(n).astype(np.float32)
    words = {"a": a, "b": b, "bias": bias, "c": np.empty((m, n), np.float32), "M": m, "N": n, "K": k}
    words |= dict(zip(("am", "ak", "bk", "bn"), strides, strict=True))
    loaded = compiled(linear, "optimized", options=PARTS, **words, BM=64, BN=32, BK=64)
    if name == "bfloat16":
        words |= {"a": a.view(np.uint16), "b": b.view(np.uint16)}
    programs = -(-m // 64) * -(-n // 32)
    assert _run(loaded, programs, words, 2**32 - 1, [(0, 0)]) == 4
    whole, found = np.full((m, n), np.nan, np.float32), np.full((m, n), np.nan, np.float32)
    _run(loaded, programs, words | {"c": whole}, 0, [(0, programs)])
    np.testing.assert_allclose(whole, a.astype(np.float64) @ b.astype(np.float64) + bias, rtol=0.02, atol=1e-2)
    for parts in (2, 4):
        found.fill(np.nan)
        _run(loaded, programs, words | {"c": found}, parts, _cuts(programs * parts, parts))
        np.testing.assert_array_equal(_bits(found), _bits(whole))


def test_rows_by_a_remainder_and_moved_pointers():
    m, n, k, random = 77, 40, 192, np.random.default_rng(2)
    a, b, scale = (random.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m,)))
    words = {"a": a, "b": b, "scale": scale, "c": np.empty((2, m, n), np.float32), "M": m, "N": n, "K": k}
    b_wide = np.zeros((k + 1, n), np.float32)  # columns behind the last are read and not stored
    b_wide[:k] = b
    words["b"] = b_wide
    loaded = compiled(wrapped, "optimized", options=PARTS, **words, BM=32, BN=64, BK=64)
    whole, found = np.full((2, m, n), np.nan, np.float32), np.full((2, m, n), np.nan, np.float32)
    _run(loaded, 3, words | {"c": whole}, 1, [(0, 3)])
    total = (a.astype(np.float64) @ b) * scale[:, None]
    np.testing.assert_allclose(whole, [total, np.maximum(total, 0)], rtol=1e-4, atol=1e-4)
    _run(loaded, 3, words | {"c": found}, 2, [(5, 6), (0, 3), (3, 5)])
    np.testing.assert_array_equal(_bits(found), _bits(whole))


def test_what_is_made_of_several_rows_is_not_cut():
    a, b, c = (np.zeros(shape, np.float32) for shape in ((64, 128), (128, 32), (64, 32)))
    arguments = {"a": a, "b": b, "c": c, "N": 32, "K": 128, "BM": 64, "BN": 32, "BK": 64}
    text = emit_c(module_of(normalized, arguments), CpuOptions(vector_bits=512, row_parts=True)).source
    assert not re.search(r"\bpart_first\b", text)


def test_panels_that_last_from_call_to_call_are_of_this_launch():
    """A thread gets its programs by several calls; the next launch has other numbers in the same place."""
    m, n, k, random = 128, 96, 130, np.random.default_rng(4)
    a, b = np.empty((m, k), np.float32), np.empty((n, k), np.float32)
    c, bias = np.empty((m, n), np.float32), np.zeros(n, np.float32)
    words = {"a": a, "b": b, "bias": bias, "c": c, "M": m, "N": n, "K": k, "am": k, "ak": 1, "bk": 1, "bn": k}
    loaded = compiled(linear, "optimized", options=PARTS, **words, BM=64, BN=32, BK=64)
    for _ in range(2):
        a[...], b[...] = random.integers(-4, 5, (m, k)), random.integers(-4, 5, (n, k))
        _run(loaded, 6, words, 1, [(0, 1), (1, 3), (3, 6)])
        np.testing.assert_array_equal(c, a @ b.T)


def test_a_result_in_the_place_of_an_operand_is_not_cut():
    """One program may write what it has read; parts of it do not wait for each other."""
    m = n = k = 64
    a, b, bias = np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.zeros(n, np.float32)
    words = {"a": a, "b": b, "bias": bias, "c": b, "M": m, "N": n, "K": k, "am": k, "ak": 1, "bk": n, "bn": 1}
    loaded = compiled(linear, "optimized", options=PARTS, **words, BM=64, BN=64, BK=64)
    assert _run(loaded, 1, words, 2**32 - 1, [(0, 0)]) == 1
    assert _run(loaded, 1, words | {"c": np.empty((m, n), np.float32)}, 2**32 - 1, [(0, 0)]) == 4


def test_programs_stay_whole_without_the_authors_promise():
    arguments = {
        "a": np.zeros(64 * 64, np.float32),
        "b": np.zeros(64 * 64, np.float32),
        "bias": np.zeros(64, np.float32),
    }
    arguments |= {"c": np.zeros(64 * 64, np.float32), "M": 64, "N": 64, "K": 64, "am": 64, "ak": 1, "bk": 64, "bn": 1}
    blocks = {"BM": 64, "BN": 32, "BK": 64}
    plain = emit_c(module_of(linear, arguments | blocks), CpuOptions()).source
    apart = emit_c(module_of(linear, arguments | blocks), CpuOptions(elements_apart=True)).source
    assert "lasting->parts" not in plain
    assert plain != apart

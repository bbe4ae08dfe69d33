"""Loops of products at the edges of matrices: sums that masks of stores hide are not computed, all others are."""
# ruff: noqa: N806  # kernels are written as Triton authors write them

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from test_cpu_dot import WAYS, laid_out  # noqa: E402

from cpu_samples import module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.analysis.used_elements import seen_masks  # noqa: E402
from silo.kinds.triton.cpu.analysis.value_properties import every_operation  # noqa: E402
from silo.kinds.triton.front.operations import flow, tt  # noqa: E402

pytestmark = needs_compiler

RNG = np.random.default_rng(0)
BM = BN = 32


@triton.jit
def edges(
    a, b, c, M, N, K, am, ak, bk, bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WRAPPED: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m, n = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    if WRAPPED:
        row, column = m % M, n % N
    else:
        row, column = m, n
    at, bt = a + row[:, None] * am + k[None, :] * ak, b + k[:, None] * bk + column[None, :] * bn
    total = tl.zeros((BM, BN), dtype=c.dtype.element_ty)
    for step in range(tl.cdiv(K, BK)):
        inside = k < K - step * BK
        if WRAPPED:
            left = tl.load(at, mask=inside[None, :], other=0.0)
            right = tl.load(bt, mask=inside[:, None], other=0.0)
        else:
            left = tl.load(at, mask=(m[:, None] < M) & inside[None, :], other=0.0)
            right = tl.load(bt, mask=inside[:, None] & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total, out_dtype=c.dtype.element_ty)
        at += BK * ak
        bt += BK * bk
    total = tl.where(total > 0, total, total * 2)
    m, n = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def surrounded(array, order):
    """The matrix in memory that holds something else around it: numbers that would show in any sum."""
    kept, strides = laid_out(array, order)
    rest = 101 if array.dtype == np.int8 else np.nan
    if order == "gaps":
        inside = np.zeros(kept.shape, bool)
        inside[::3, ::2] = True
        kept = np.where(inside, kept, np.array(rest, array.dtype))
    whole = np.full(kept.size + 128, rest, array.dtype)
    whole[64:-64] = kept.ravel()
    return whole[64:], strides


SIZES = [(33, 47, 71), (9, 13, 523), (61, 1, 33), (38, 50, 302)]


BF16 = ml_dtypes.bfloat16
CASES = [
    (np.float32, ("rows", "rows"), True),
    (np.float32, ("columns", "gaps"), False),
    (np.float16, ("columns", "columns"), True),
    (BF16, ("rows", "rows"), False),
    (BF16, ("columns", "columns"), True),
    (np.int8, ("rows", "columns"), True),
    (np.float64, ("columns", "rows"), False),
]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("dtype", "layout", "wrapped"), CASES)
def test_edges_of_matrices(how, dtype, layout, wrapped):
    whole = np.int32 if dtype is np.int8 else np.float64 if dtype is np.float64 else np.float32
    for M, N, K in SIZES:
        a, b = RNG.integers(-9, 10, (M, K)), RNG.integers(-9, 10, (K, N))
        (at, (am, ak)), (bt, (bk, bn)) = surrounded(a.astype(dtype), layout[0]), surrounded(b.astype(dtype), layout[1])
        c = np.full((M + 1, N), 77, whole)
        run(
            edges, (-(-M // BM), -(-N // BN)), **how, a=at, b=bt, c=c, M=M, N=N, K=K, am=am, ak=ak, bk=bk, bn=bn,
            BM=BM, BN=BN, BK=32, WRAPPED=wrapped,
        )  # fmt: skip
        product = a @ b
        np.testing.assert_array_equal(c[:M], np.where(product > 0, product, product * 2).astype(whole), str((M, N, K)))
        assert (c[M:] == 77).all()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.parametrize("shape", [(33, 47, 71), (38, 50, 45)])
def test_infinities_stay_in_their_rows_and_columns(how, dtype, shape):
    """What is beyond the end of an odd depth is not multiplied, not even by zero."""
    M, N, K = shape
    a, b = RNG.integers(-9, 10, (M, K)).astype(dtype), RNG.integers(-9, 10, (K, N)).astype(dtype)
    a[5, 0], a[7, K - 1], b[K - 1, 11], b[0, 3] = np.inf, -np.inf, np.nan, np.inf
    with np.errstate(invalid="ignore"):
        product = a.astype(np.float64) @ b.astype(np.float64)
        wanted = np.where(product > 0, product, product * 2).astype(np.float32)
    c = np.zeros((M, N), np.float32)
    run(
        edges, (-(-M // BM), -(-N // BN)), **how, a=a, b=b, c=c, M=M, N=N, K=K, am=K, ak=1, bk=N, bn=1,
        BM=BM, BN=BN, BK=32, WRAPPED=False,
    )  # fmt: skip
    np.testing.assert_array_equal(c, wanted)


@triton.jit
def one_side(a, b, c, K, BK: tl.constexpr, OTHER: tl.constexpr, LEFT: tl.constexpr):
    """The tile of one side goes on where that of the other ends, or ends in something that is not zero."""
    i, k = tl.arange(0, 16), tl.arange(0, BK)
    total = tl.zeros((16, 16), dtype=tl.float32)
    for start in range(0, K, BK):
        here = a + i[:, None] * 128 + start + k[None, :]
        there = b + (start + k[:, None]) * 16 + i[None, :]
        if LEFT:
            left, right = tl.load(here, mask=start + k[None, :] < K, other=OTHER), tl.load(there)
        else:
            inside = start + k < K
            left = tl.load(here, mask=inside[None, :], other=OTHER)
            right = tl.load(there, mask=inside[:, None], other=OTHER)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * 16 + i[None, :], total)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("other", "left"), list(itertools.product([0.0, 2.0], [True, False])))
def test_depths_that_end_on_one_side_or_not_in_zeros(how, other, left):
    a, b = (RNG.integers(-9, 10, shape).astype(np.float32) for shape in ((16, 128), (128, 16)))
    b[60, 4] = np.inf  # beyond the end: multiplied by `other` where the right tile goes on
    c = np.zeros((16, 16), np.float32)
    run(one_side, (1,), **how, a=a, b=b, c=c, K=50, BK=32, OTHER=other, LEFT=left)
    x, y = a[:, :64].copy(), b[:64].copy()
    x[:, 50:] = other
    if not left:
        y[50:] = other
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, x @ y)


@triton.jit
def late(a, b, c, M, N, K, STORE: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of one round of a loop that are stored in the next, under the next one's mask."""
    i = tl.arange(0, BLOCK)
    before = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for tile in range(3):
        rows = M - tile * 4
        inside = (i[:, None] < rows) & (i[None, :] < N)
        if STORE == "before":
            tl.store(c + tile * BLOCK * BLOCK + i[:, None] * BLOCK + i[None, :], before, mask=inside)
        total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for start in range(0, K, BLOCK):
            left = tl.load(a + i[:, None] * K + start + i[None, :])
            total = tl.dot(left, tl.load(b + (start + i[:, None]) * BLOCK + i[None, :]), total)
        if STORE == "plain":
            tl.store(c + tile * BLOCK * BLOCK + i[:, None] * BLOCK + i[None, :], total, mask=inside)
        if STORE == "sums":
            tl.store(c + tile * BLOCK * BLOCK + i[:, None] * BLOCK + i[None, :], total, mask=inside)
            tl.store(c + tile, tl.sum(total))
        if STORE == "all":
            tl.store(c + tile * BLOCK * BLOCK + i[:, None] * BLOCK + i[None, :], total, mask=inside)
            tl.store(c + (tile + 3) * BLOCK * BLOCK + i[:, None] * BLOCK + i[None, :], total)
        if STORE == "loaded":
            last = tl.load(c + tile).to(tl.int32)
            tl.store(c + tile * BLOCK * BLOCK + i[:, None] * BLOCK + i[None, :], total, mask=i[:, None] < last)
        before = total


@pytest.mark.parametrize(("store", "known"), [("plain", 1), ("before", 0), ("sums", 0), ("all", 0), ("loaded", 0)])
def test_masks_count_only_where_every_sum_is_behind_one(store, known):
    """And where what they compare is there before the loop, and still the same at the store."""
    floats = np.zeros(4096, np.float32)
    arguments = {"a": floats, "b": floats, "c": floats, "M": 11, "N": 7, "K": 32, "STORE": store, "BLOCK": 16}
    module = module_of(late, arguments)
    (dot,) = [one for one in every_operation(module.entry) if one.name == tt.DOT]
    loop = dot.block.region.owner
    assert loop.name == flow.FOR
    assert len(seen_masks(dot.result, loop)) == known


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("store", ["plain", "before", "sums", "all"])
def test_sums_are_there_wherever_they_are_seen(how, store):
    M, N, K, BLOCK = 11, 7, 32, 16
    a, b = (RNG.integers(-9, 10, shape).astype(np.float32) for shape in ((BLOCK, K), (K, BLOCK)))
    c = np.zeros((6, BLOCK, BLOCK), np.float32)
    run(late, (1,), **how, a=a, b=b, c=c, M=M, N=N, K=K, STORE=store, BLOCK=BLOCK)
    wanted, product = np.zeros_like(c), a @ b
    for tile in range(3):  # in the order of the kernel's stores
        rows = M - tile * 4
        if store != "before" or tile:
            wanted[tile, :rows, :N] = product[:rows, :N]
        if store == "sums":
            wanted.ravel()[tile] = product.sum()
        if store == "all":
            wanted[tile + 3] = product
    np.testing.assert_array_equal(c, wanted)

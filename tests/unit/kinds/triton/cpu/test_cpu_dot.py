"""Products of tiles against numpy: every type and shape, by every instruction set that this machine has."""
# pyright: reportGeneralTypeIssues=false
# ruff: noqa: N806, RET505  # kernels are written as Triton authors write them

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import needs_compiler, run  # noqa: E402
from silo.core.device import CPU_LEVELS, Target  # noqa: E402
from silo.drivers.cpu.levels import gather_facts, highest_level  # noqa: E402

pytestmark = needs_compiler

RNG = np.random.default_rng(0)
HERE = highest_level(gather_facts())
FAMILY = next((names for names in CPU_LEVELS.values() if HERE in names), ())
LEVELS = FAMILY[: FAMILY.index(HERE) + 1] if HERE else ()


def way(mode, number=0, level=""):
    target = Target("cpu", level) if level else None
    how = {"mode": mode, "options": {"cpu_dot_units": number}, "target": target}
    return pytest.param(how, id=level or f"{mode}-{number}")


# Reference mode, each level alone, vector instructions beyond it, matrix tiles. What a machine lacks falls back.
WAYS = [way("reference"), way("optimized", 1), way("optimized", 2), *(way("optimized", 0, level) for level in LEVELS)]


@triton.jit
def tile(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """One product of whole tiles that lie one after the other."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    total = tl.load(c + m[:, None] * N + n[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(left, right, total, out_dtype=out.dtype.element_ty))


@triton.jit
def tiles(a, b, c, out, SHAPES: tl.constexpr):
    for i in tl.static_range(len(SHAPES)):
        tile(a, b, c, out, SHAPES[i][0], SHAPES[i][1], SHAPES[i][2])
        a += SHAPES[i][0] * SHAPES[i][2]
        b += SHAPES[i][2] * SHAPES[i][1]
        c += SHAPES[i][0] * SHAPES[i][1]
        out += SHAPES[i][0] * SHAPES[i][1]


# Single elements, fewer columns or rows than a vector or a block, remainders of every kind, several passes of depth.
SHAPES = (
    (1, 1, 1),
    (1, 16, 2),
    (2, 4, 8),
    (4, 1, 16),
    (8, 8, 4),
    (16, 16, 16),
    (32, 64, 32),
    (64, 16, 128),
    (16, 32, 1),
    (16, 32, 4),  # beside the same rows and columns of a depth that fills no word of several elements
    (1, 128, 1024),
    (128, 32, 2),
)
DTYPES = {
    "f32": (np.float32, np.float32),
    "f64": (np.float64, np.float64),
    "f16": (np.float16, np.float32),
    "f16 sums": (np.float16, np.float16),
    "bf16": (ml_dtypes.bfloat16, np.float32),
    "i8": (np.int8, np.int32),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", DTYPES)
def test_shapes(how, kind):
    dtype, total = DTYPES[kind]
    # Whole numbers, so that sums are exact in any order.
    limit = 2 if total is np.float16 else 100 if dtype is np.int8 else 9
    cases = []
    for M, N, K in SHAPES:
        a, b = (RNG.integers(-limit, limit + 1, shape).astype(dtype) for shape in ((M, K), (K, N)))
        cases.append((a, b, RNG.integers(-9, 9, (M, N)).astype(total)))
    a, b, c = (np.concatenate([case[part].ravel() for case in cases]) for part in range(3))
    out = np.zeros_like(c)
    run(tiles, (1,), **how, a=a, b=b, c=c, out=out, SHAPES=SHAPES)
    exact = np.int64 if dtype is np.int8 else np.float64
    expected = [case[0].astype(exact) @ case[1].astype(exact) + case[2].astype(exact) for case in cases]
    place = 0
    for shape, wanted in zip(SHAPES, expected, strict=True):
        found = out[place : place + wanted.size].reshape(wanted.shape)
        np.testing.assert_array_equal(found, wanted.astype(total), err_msg=str(shape))
        place += wanted.size


@triton.jit
def matmul(
    a, b, c, M, N, K, am, ak, bk, bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    at, bt = a + m[:, None] * am + k[None, :] * ak, b + k[:, None] * bk + n[None, :] * bn
    total = tl.zeros((BM, BN), dtype=c.dtype.element_ty)
    for step in range(tl.cdiv(K, BK)):
        if MASKED:
            left = tl.load(at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
            right = tl.load(bt, mask=(n[None, :] < N) & (k[:, None] < K - step * BK), other=0.0)
        else:
            left, right = tl.load(at), tl.load(bt)
        total = tl.dot(left, right, total, out_dtype=c.dtype.element_ty)
        at += BK * ak
        bt += BK * bk
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def laid_out(array, order):
    """The same matrix in memory by rows, by columns, or with gaps; strides in elements."""
    if order == "gaps":
        wide = np.zeros((array.shape[0] * 3, array.shape[1] * 2), array.dtype)
        wide[::3, ::2] = array
        return wide, (wide.shape[1] * 3, 2)
    kept = np.ascontiguousarray(array if order == "rows" else array.T)
    return kept, ((array.shape[1], 1) if order == "rows" else (1, array.shape[0]))


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("left", "right"), [("rows", "rows"), ("columns", "columns"), ("gaps", "gaps")])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.float64])
def test_loops_over_the_inner_axis(how, dtype, left, right):
    """Loops whose iterations become one product, whole ones and the ends that masks cut off; panels are kept."""
    whole = np.int32 if dtype is np.int8 else np.float64 if dtype is np.float64 else np.float32
    for M, N, K in [(96, 64, 640), (50, 40, 72)]:
        a, b = RNG.integers(-9, 10, (M, K)), RNG.integers(-9, 10, (K, N))
        (at, (am, ak)), (bt, (bk, bn)) = laid_out(a.astype(dtype), left), laid_out(b.astype(dtype), right)
        c = np.full((M + 1, N), 77, whole)
        grid = (-(-M // 32), -(-N // 32))
        run(
            matmul, grid, **how, a=at, b=bt, c=c, M=M, N=N, K=K, am=am, ak=ak, bk=bk, bn=bn,
            BM=32, BN=32, BK=32, MASKED=M != 96,
        )  # fmt: skip
        np.testing.assert_array_equal(c[:M], (a @ b).astype(whole))
        assert (c[M:] == 77).all()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_products_of_halves_are_exact_and_summed_in_f32(how, dtype):
    M = N = 64
    K = 512
    a, b = (RNG.standard_normal(shape, dtype=np.float32).astype(dtype) for shape in ((M, K), (K, N)))
    c = np.zeros((M, N), np.float32)
    run(
        matmul, (1, 1), **how, a=a, b=b, c=c, M=M, N=N, K=K, am=K, ak=1, bk=N, bn=1,
        BM=64, BN=64, BK=64, MASKED=False,
    )  # fmt: skip
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    bound = K * 2.0**-24 * (abs(wide_a) @ abs(wide_b))
    assert (abs(c - wide_a @ wide_b) <= bound).all()


@triton.jit
def write_then_read(x, y, out, BLOCK: tl.constexpr):
    """The second program reads the tile that the first wrote: in order where one thread runs both."""
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(2):
        total = tl.dot(
            tl.load(x + i * 2 * BLOCK + step * BLOCK + j), tl.load(y + (step * BLOCK + i) * BLOCK + j), total
        )
    tl.store(out + tl.program_id(0) * BLOCK * BLOCK + i * BLOCK + j, total)
    tl.store(y + i * BLOCK + j, total)


@pytest.mark.parametrize("how", WAYS)
def test_panels_are_not_kept_where_the_kernel_writes_what_they_hold(how):
    x, y = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((16, 32), (32, 16)))
    first = x @ y
    second = x[:, :16] @ first + x[:, 16:] @ y[16:]
    out = np.zeros((2, 16, 16), np.float32)
    run(write_then_read, (2,), **how, x=x, y=y.copy(), out=out, BLOCK=16)
    np.testing.assert_array_equal(out, [first, second])


@triton.jit
def batched(a, b, out, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, m, n, k = tl.arange(0, B), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + i[:, None, None] * M * K + m[None, :, None] * K + k[None, None, :])
    right = tl.load(b + i[:, None, None] * K * N + k[None, :, None] * N + n[None, None, :])
    place = i[:, None, None] * M * N + m[None, :, None] * N + n[None, None, :]
    tl.store(out + place, tl.dot(left, right, tl.dot(left, right)))


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_batches(how, dtype):
    B, M, N, K = 4, 16, 32, 8
    a, b = (RNG.integers(-9, 10, shape).astype(dtype) for shape in ((B, M, K), (B, K, N)))
    out = np.zeros((B, M, N), np.float32)
    run(batched, (1,), **how, a=a, b=b, out=out, B=B, M=M, N=N, K=K)
    np.testing.assert_array_equal(out, 2 * (a.astype(np.float64) @ b.astype(np.float64)))


@pytest.mark.parametrize("rows", [1, 3, 12, 16])
@pytest.mark.parametrize("vectors", [1, 3, 4])
def test_blocks_of_every_size(rows, vectors):
    M, N, K = 64, 128, 32
    a, b = (RNG.integers(-9, 10, shape).astype(np.float32) for shape in ((M, K), (K, N)))
    c, out = np.zeros((M, N), np.float32), np.zeros((M, N), np.float32)
    options = {"cpu_dot_rows": rows, "cpu_dot_vectors": vectors}
    run(tiles, (1,), "optimized", options=options, a=a, b=b, c=c, out=out, SHAPES=((M, N, K),))
    np.testing.assert_array_equal(out, a @ b)


@triton.jit
def as_fp8(bits, FORMAT: tl.constexpr):
    if FORMAT == "e4m3":
        return bits.to(tl.float8e4nv, bitcast=True)
    elif FORMAT == "e5m2":
        return bits.to(tl.float8e5, bitcast=True)
    elif FORMAT == "e4m3fnuz":
        return bits.to(tl.float8e4b8, bitcast=True)
    else:
        return bits.to(tl.float8e5b16, bitcast=True)


@triton.jit
def eights(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = as_fp8(tl.load(a + m[:, None] * K + k[None, :]), A)
    right = as_fp8(tl.load(b + k[:, None] * N + n[None, :]), B)
    total = tl.dot(left, right, out_dtype=out.dtype.element_ty, max_num_imprecise_acc=0)
    tl.store(out + m[:, None] * N + n[None, :], total)


EIGHTS = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


@pytest.mark.parametrize("mode", ["reference", "optimized"])
@pytest.mark.parametrize("total", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("A", "B"), [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2"), ("e4m3fnuz", "e4m3fnuz"), ("e5m2fnuz", "e4m3")]
)
def test_eight_bits(mode, total, A, B):
    M, N, K = 16, 32, 64
    a, b = ((RNG.integers(-8, 9, shape) / 4).astype(EIGHTS[name]) for name, shape in ((A, (M, K)), (B, (K, N))))
    out = np.zeros((M, N), total)
    run(eights, (1,), mode, a=a.view(np.uint8), b=b.view(np.uint8), out=out, M=M, N=N, K=K, A=A, B=B)
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


@triton.jit
def scaled(
    a, sa, b, sb, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, G: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, PACK_A: tl.constexpr, PACK_B: tl.constexpr,
    SCALE_A: tl.constexpr, SCALE_B: tl.constexpr,
):  # fmt: skip
    m, n, groups = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // G)
    am: tl.constexpr = M // 2 if A == "e2m1" and not PACK_A else M
    ak: tl.constexpr = K // 2 if A == "e2m1" and PACK_A else K
    bn: tl.constexpr = N // 2 if B == "e2m1" and not PACK_B else N
    bk: tl.constexpr = K // 2 if B == "e2m1" and PACK_B else K
    left = tl.load(a + tl.arange(0, am)[:, None] * ak + tl.arange(0, ak)[None, :])
    right = tl.load(b + tl.arange(0, bk)[:, None] * bn + tl.arange(0, bn)[None, :])
    total = tl.load(c + m[:, None] * N + n[None, :])
    scale_a = tl.load(sa + m[:, None] * (K // G) + groups[None, :]) if SCALE_A else None
    scale_b = tl.load(sb + n[:, None] * (K // G) + groups[None, :]) if SCALE_B else None
    total = tl.dot_scaled(left, scale_a, A, right, scale_b, B, total, lhs_k_pack=PACK_A, rhs_k_pack=PACK_B)
    tl.store(out + m[:, None] * N + n[None, :], total)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FORMATS = {
    "e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
    "e5m2": (ml_dtypes.float8_e5m2, np.uint8),
    "bf16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "fp16": (np.float16, np.float16),
}


def factor(name, shape, pair_axis):
    """A random factor as a kernel takes it, and its values; 4-bit ones lie in pairs along ``pair_axis``."""
    if name != "e2m1":
        dtype, stored = FORMATS[name]
        values = (RNG.integers(-8, 9, shape) / 4).astype(dtype)
        return values.view(stored), values.astype(np.float64)
    codes = RNG.integers(0, 16, shape).astype(np.uint8)
    low, high = (codes.take(range(start, shape[pair_axis], 2), pair_axis) for start in (0, 1))
    return low | high << 4, E2M1[codes]


@pytest.mark.parametrize("mode", ["reference", "optimized"])
@pytest.mark.parametrize(
    ("A", "B", "pack_a", "pack_b", "scale_a", "scale_b"),
    [
        ("e2m1", "e2m1", True, True, True, True),
        ("e2m1", "e2m1", False, False, True, True),
        ("e2m1", "bf16", True, True, True, False),
        ("fp16", "e2m1", True, False, False, True),
        ("e2m1", "e4m3", False, True, True, True),
        ("e5m2", "e4m3", True, True, True, True),
    ],
)
def test_scaled(mode, A, B, pack_a, pack_b, scale_a, scale_b):
    M, N, K, G = 16, 32, 64, 32
    a, left = factor(A, (M, K), 1 if pack_a else 0)
    b, right = factor(B, (K, N), 0 if pack_b else 1)
    sa, sb = (RNG.integers(120, 135, (extent, K // G)).astype(np.uint8) for extent in (M, N))
    c, out = RNG.integers(-9, 10, (M, N)).astype(np.float32), np.zeros((M, N), np.float32)
    if scale_a:
        sa[0, 0] = 255  # NaN, for all of the first row
        left = left * np.repeat(np.where(sa == 255, np.nan, 2.0 ** (sa.astype(np.int32) - 127)), G, 1)
    if scale_b:
        right = right * np.repeat(2.0 ** (sb.astype(np.int32) - 127), G, 1).T
    run(
        scaled, (1,), mode, a=a, sa=sa, b=b, sb=sb, c=c, out=out, M=M, N=N, K=K, G=G, A=A, B=B,
        PACK_A=pack_a, PACK_B=pack_b, SCALE_A=scale_a, SCALE_B=scale_b,
    )  # fmt: skip
    bound = K * 2.0**-24 * (abs(left) @ abs(right) + abs(c))
    wanted = left @ right + c
    assert ((abs(out - wanted) <= bound) | (np.isnan(out) & np.isnan(wanted))).all()
    assert np.isnan(out[0]).all() == scale_a

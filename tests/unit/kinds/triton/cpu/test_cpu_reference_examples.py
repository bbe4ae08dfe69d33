"""The kernels people write first, in both modes, against numpy."""
# pyright: reportGeneralTypeIssues=false
# ruff: noqa: E741, N806  # kernels are written as Triton authors write them

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, both, needs_compiler, run  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def softmax(out, x, sx, so, rows, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0)
    step = tl.num_programs(0)
    for row in tl.range(start, rows, step):
        c = tl.arange(0, BLOCK)
        m = c < cols
        v = tl.load(x + row * sx + c, mask=m, other=-float("inf"))
        v = v - tl.max(v, axis=0)
        e = tl.exp(v)
        tl.store(out + row * so + c, e / tl.sum(e, axis=0), mask=m)


@triton.jit
def layer_norm(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    _mean = tl.zeros([BLOCK], dtype=tl.float32)
    for off in tl.range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        a = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK], dtype=tl.float32)
    for off in tl.range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    var = tl.sum(_var, axis=0) / N
    rstd = 1 / tl.sqrt(var + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in tl.range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    sam,
    sak,
    sbk,
    sbn,
    scm,
    scn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    G: tl.constexpr,
    ACT: tl.constexpr,
):
    pid = tl.program_id(0)
    npm = tl.cdiv(M, BM)
    npn = tl.cdiv(N, BN)
    npg = G * npn
    gid = pid // npg
    first = gid * G
    gs = min(npm - first, G)
    pm = first + ((pid % npg) % gs)
    pn = (pid % npg) // gs
    oam = (pm * BM + tl.arange(0, BM)) % M
    obn = (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    ap = a_ptr + (oam[:, None] * sam + ok[None, :] * sak)
    bp = b_ptr + (ok[:, None] * sbk + obn[None, :] * sbn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(ap, mask=ok[None, :] < K - k * BK, other=0.0)
        b = tl.load(bp, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        ap += BK * sak
        bp += BK * sbk
    if ACT == "leaky":
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    c = acc.to(c_ptr.dtype.element_ty)
    ocm = pm * BM + tl.arange(0, BM)
    ocn = pn * BN + tl.arange(0, BN)
    cp = c_ptr + scm * ocm[:, None] + scn * ocn[None, :]
    tl.store(cp, c, mask=(ocm[:, None] < M) & (ocn[None, :] < N))


@triton.jit
def attention(Q, K, V, O, sm, sqz, sqm, N, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    start = tl.program_id(0)
    z = tl.program_id(1)
    om = start * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    od = tl.arange(0, D)
    q = tl.load(Q + z * sqz + om[:, None] * sqm + od[None, :], mask=om[:, None] < N, other=0.0)
    mi = tl.zeros([BM], dtype=tl.float32) - float("inf")
    li = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    hi = tl.minimum((start + 1) * BM, N) if CAUSAL else N
    for s in range(0, hi, BN):
        kk = tl.load(K + z * sqz + (s + on)[:, None] * sqm + od[None, :], mask=(s + on)[:, None] < N, other=0.0)
        qk = tl.dot(q, tl.trans(kk)) * (sm * 1.44269504)
        keep = (s + on)[None, :] < N
        if CAUSAL:
            keep = keep & (om[:, None] >= (s + on)[None, :])
        qk = tl.where(keep, qk, -float("inf"))
        mn = tl.maximum(mi, tl.max(qk, 1))
        p = tl.exp2(qk - mn[:, None])
        alpha = tl.exp2(mi - mn)
        li = li * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + z * sqz + (s + on)[:, None] * sqm + od[None, :], mask=(s + on)[:, None] < N, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        mi = mn
    tl.store(
        O + z * sqz + om[:, None] * sqm + od[None, :], (acc / li[:, None]).to(O.dtype.element_ty), mask=om[:, None] < N
    )


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m)
    r = tl.rand(seed, i)
    tl.store(out + i, tl.where(r > p, v / (1 - p), 0.0), mask=m)


RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape, dtype=np.float32).astype(dtype)


TOLERANCE = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1, "float64": 1e-12}


def close(found, wanted, dtype):
    limit = TOLERANCE[np.dtype(dtype).name]
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=limit, atol=limit)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.int32, np.int64])
def test_add(mode, dtype):
    n = 1000
    x, y = (normal(n) * 50).astype(dtype), (normal(n) * 50).astype(dtype)
    out = np.zeros(n + 100, dtype)
    run(add, (4,), mode, x=x, y=y, out=out, n=n, BLOCK=256)
    np.testing.assert_array_equal(out[:n], x + y)
    assert not out[n:].any()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("cols", [512, 381])
def test_softmax(mode, dtype, cols):
    x = normal(5, cols, dtype=dtype)
    x[1, 3:9] = -np.inf
    out = np.zeros_like(x)
    run(softmax, (2,), mode, out=out, x=x, sx=cols, so=cols, rows=5, cols=cols, BLOCK=512)
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    close(out, e / e.sum(1, keepdims=True), dtype)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_layer_norm(mode, dtype):
    rows, cols = 3, 700
    x, w, b = normal(rows, cols, dtype=dtype), normal(cols, dtype=dtype), normal(cols, dtype=dtype)
    y, mean, rstd = np.zeros_like(x), np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    run(layer_norm, (rows,), mode, X=x, Y=y, W=w, B=b, Mean=mean, Rstd=rstd, stride=cols, N=cols, eps=1e-5, BLOCK=256)
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    close(y, (wide - wide.mean(1, keepdims=True)) * scale * w.astype(np.float64) + b.astype(np.float64), dtype)
    np.testing.assert_allclose(mean, wide.mean(1), atol=1e-4)
    np.testing.assert_allclose(rstd, scale[:, 0], rtol=1e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("M", "N", "K"), [(64, 64, 64), (50, 77, 45)])
def test_matmul(mode, dtype, M, N, K):
    a, b = normal(M, K, dtype=dtype), normal(K, N, dtype=dtype)
    c = np.zeros((M + 2, N), dtype)
    grid = (-(-M // 32) * -(-N // 32),)
    run(
        matmul, grid, mode, a_ptr=a, b_ptr=b, c_ptr=c, M=M, N=N, K=K, sam=K, sak=1, sbk=N, sbn=1, scm=N, scn=1,
        BM=32, BN=32, BK=16, G=2, ACT="leaky",
    )  # fmt: skip
    product = a.astype(np.float64) @ b.astype(np.float64)
    close(c[:M], np.where(product >= 0, product, product * 0.01), dtype)
    assert not c[M:].any()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("length", "causal"), [(64, True), (70, True), (33, False)])
def test_attention(mode, dtype, length, causal):
    q, k, v = (normal(2, length, 32, dtype=dtype) for _ in range(3))
    out = np.zeros_like(q)
    run(
        attention, (-(-length // 32), 2), mode, Q=q, K=k, V=v, O=out, sm=0.25, sqz=length * 32, sqm=32, N=length,
        BM=32, BN=16, D=32, CAUSAL=causal,
    )  # fmt: skip
    wide_q, wide_k, wide_v = (array.astype(np.float64) for array in (q, k, v))
    scores = wide_q @ wide_k.transpose(0, 2, 1) * 0.25
    if causal:
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    close(out, weights / weights.sum(2, keepdims=True) @ wide_v, dtype)


def test_dropout_is_the_same_in_both_modes_and_keeps_the_right_share():
    x = normal(5000)
    reference, optimized = both(dropout, (5,), x=x, out=np.zeros_like(x), n=5000, p=0.3, seed=7, BLOCK=1024)
    np.testing.assert_array_equal(reference["out"], optimized["out"])
    kept = optimized["out"] != 0
    assert 0.67 < kept.mean() < 0.73
    np.testing.assert_allclose(optimized["out"][kept], x[kept] / np.float32(0.7), rtol=1e-6)

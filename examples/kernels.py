"""Six ordinary Triton kernels, each with a tuning space, a grid and cases.

``silo build examples/kernels.py -o kernels.silo --target cpu --target cuda:sm_90`` packs them;
``silo run kernels.silo`` runs their cases wherever the file goes.
"""

import math

import numpy as np
import triton
import triton.language as tl

import silo


@silo.kernel(
    space={"BLOCK": [1024, 4096, 16384], "num_warps": [4]},
    key=["n"],
    grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
)
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@add.cases(n=[1 << 16, 1 << 20, (1 << 20) + 17])
def _(n, make):
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    return silo.Case(args=(x, y, out, n), expected={"out": lambda: x.host + y.host}, bytes=12 * n, flops=n)


@silo.kernel(
    space={"num_warps": [4, 8]},
    key=["columns"],
    grid=lambda a: (a.rows,),
)
@triton.heuristics({"BLOCK": lambda a: triton.next_power_of_2(a["columns"])})
@triton.jit
def softmax(out, x, out_stride, x_stride, rows, columns, BLOCK: tl.constexpr):
    """Row-wise softmax, one program for each row."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + i, mask=i < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * out_stride + i, values / tl.sum(values, axis=0), mask=i < columns)


@softmax.cases(shape=[(512, 1024), (300, 781)])
def _(shape, make):
    rows, columns = shape
    x, out = make.normal(shape), make.empty(shape)

    def expected():
        e = np.exp(x.host.astype(np.float64) - x.host.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    return silo.Case(
        args=(out, x, columns, columns, rows, columns), expected={"out": expected}, bytes=8 * rows * columns
    )


@silo.kernel(
    space={"BLOCK": [512, 1024, 2048], "num_warps": [4]},
    key=["columns"],
    grid=lambda a: (a.rows,),
)
@triton.jit
def layer_norm(x, out, weight, bias, mean, rstd, stride, rows, columns, eps, BLOCK: tl.constexpr):
    """Layer norm over the last axis; also stores each row's mean and the reciprocal of its standard deviation."""
    row = tl.program_id(0)
    x += row * stride
    out += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < columns, other=0.0).to(tl.float32)
    mu = tl.sum(total, axis=0) / columns
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        centred = tl.where(i < columns, tl.load(x + i, mask=i < columns, other=0.0).to(tl.float32) - mu, 0.0)
        square += centred * centred
    r = 1 / tl.sqrt(tl.sum(square, axis=0) / columns + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        inside = i < columns
        w = tl.load(weight + i, mask=inside)
        b = tl.load(bias + i, mask=inside)
        tl.store(out + i, (tl.load(x + i, mask=inside, other=0.0).to(tl.float32) - mu) * r * w + b, mask=inside)


@layer_norm.cases(shape=[(256, 1024), (100, 1500)])
def _(shape, make):
    rows, columns = shape
    x, weight, bias = make.normal(shape), make.uniform(columns), make.normal(columns)
    out, mean, rstd = make.empty(shape), make.empty(rows), make.empty(rows)
    eps = 1e-5

    def expected():
        wide = x.host.astype(np.float64)
        centred = wide - wide.mean(axis=1, keepdims=True)
        return centred / np.sqrt(wide.var(axis=1, keepdims=True) + eps) * weight.host + bias.host

    return silo.Case(
        args=(x, out, weight, bias, mean, rstd, columns, rows, columns, eps),
        expected={"out": expected, "mean": lambda: x.host.astype(np.float64).mean(axis=1)},
        bytes=4 * (2 * rows * columns + 2 * columns + 2 * rows),
    )


@silo.kernel(
    space=[
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3},
        {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 3},
        {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 3},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3},
    ],
    key=["M", "N", "K"],
    grid=lambda a: (silo.cdiv(a.M, a.BLOCK_M) * silo.cdiv(a.N, a.BLOCK_N),),
)
@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """c = activation(a @ b); tiles are computed in groups of rows, so that their columns of b stay in the cache."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first_m = group * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (pid % (GROUP_M * tiles_n)) % rows
    tile_n = (pid % (GROUP_M * tiles_n)) // rows
    m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    k = tl.arange(0, BLOCK_K)
    a_tile = a + (m[:, None] * stride_am + k[None, :] * stride_ak)
    b_tile = b + (k[:, None] * stride_bk + n[None, :] * stride_bn)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = tl.load(a_tile, mask=k[None, :] < K - step * BLOCK_K, other=0.0)
        right = tl.load(b_tile, mask=k[:, None] < K - step * BLOCK_K, other=0.0)
        total = tl.dot(left, right, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        total = tl.where(total >= 0, total, 0.01 * total)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + stride_cm * m[:, None] + stride_cn * n[None, :], total.to(c.dtype.element_ty), mask=inside)


@matmul.cases(size=[(256, 256, 256), (200, 333, 150)], activation=["", "leaky_relu"])
def _(size, activation, make):
    M, N, K = size
    a, b, c = make.normal((M, K)), make.normal((K, N)), make.empty((M, N))

    def expected():
        product = a.host.astype(np.float64) @ b.host.astype(np.float64)
        return np.where(product >= 0, product, 0.01 * product) if activation else product

    # The tolerance is larger than the default, because GPUs multiply fp32 in tf32 by default.
    return silo.Case(
        args=(a, b, c, M, N, K, K, 1, N, 1, N, 1),
        kwargs={"ACTIVATION": activation},
        expected={"c": expected},
        rtol=1e-2,
        atol=5e-2,
        bytes=4 * (M * K + K * N + M * N),
        flops=2 * M * N * K,
    )


@silo.kernel(
    space={"BLOCK_M": [32, 64], "BLOCK_N": [32, 64], "num_warps": [4]},
    key=["length"],
    grid=lambda a: (silo.cdiv(a.length, a.BLOCK_M), a.heads),
)
@triton.jit
def attention(q, k, v, out, scale, heads, length, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Causal flash attention, forward: q, k, v and out are (heads, length, D), contiguous."""
    start_m = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1) * length * D
    m = start_m + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    rows = m[:, None] * D + d[None, :]
    query = tl.load(q + base + rows, mask=m[:, None] < length, other=0.0)
    highest = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    weight = tl.zeros([BLOCK_M], dtype=tl.float32)
    total = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    for start_n in range(0, start_m + BLOCK_M, BLOCK_N):
        n = start_n + tl.arange(0, BLOCK_N)
        columns = n[:, None] * D + d[None, :]
        keys = tl.load(k + base + columns, mask=n[:, None] < length, other=0.0)
        values = tl.load(v + base + columns, mask=n[:, None] < length, other=0.0)
        scores = tl.dot(query, tl.trans(keys)) * scale
        scores = tl.where((m[:, None] >= n[None, :]) & (n[None, :] < length), scores, -float("inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        p = tl.exp(scores - new_highest[:, None])
        decay = tl.exp(highest - new_highest)
        weight = weight * decay + tl.sum(p, axis=1)
        total = tl.dot(p.to(values.dtype), values, total * decay[:, None])
        highest = new_highest
    tl.store(out + base + rows, (total / weight[:, None]).to(out.dtype.element_ty), mask=m[:, None] < length)


@attention.cases(length=[128, 200], D=[64])
def _(length, D, make):
    heads = 4
    shape = (heads, length, D)
    q, k, v, out = make.normal(shape), make.normal(shape), make.normal(shape), make.empty(shape)
    scale = 1 / math.sqrt(D)

    def expected():
        scores = np.einsum("hmd,hnd->hmn", q.host.astype(np.float64), k.host.astype(np.float64)) * scale
        scores = np.where(np.tril(np.ones((length, length), dtype=bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.einsum("hmn,hnd->hmd", p / p.sum(axis=-1, keepdims=True), v.host.astype(np.float64))

    return silo.Case(
        args=(q, k, v, out, scale, heads, length),
        kwargs={"D": D},
        expected={"out": expected},
        rtol=1e-2,
        atol=1e-2,
        bytes=4 * 4 * heads * length * D,
        flops=2 * heads * length * (length + 1) * D,  # two products over the lower triangle
    )


@silo.kernel(
    space={"BLOCK": [1024, 4096], "num_warps": [4]},
    key=["n"],
    grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
)
@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    """Zero each element with probability p and scale the others by 1 / (1 - p); equal seeds drop the same elements."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, mask=i < n)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, values / (1 - p), 0.0), mask=i < n)


def philox(seed, counter):
    """Return the first word of Philox-4x32-10 for each 32-bit counter, as ``tl.rand`` uses it."""
    c = [counter.astype(np.uint64), *(np.zeros_like(counter, dtype=np.uint64) for _ in range(3))]
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        low, high = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(high >> half) ^ c[1] ^ k0, high & mask, (low >> half) ^ c[3] ^ k1, low & mask]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return c[0].astype(np.uint32)


@dropout.cases(n=[1 << 16, 100_003])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    p, seed = 0.25, 1234

    def expected():
        words = philox(seed, np.arange(n, dtype=np.uint32)).view(np.int32).astype(np.int64)
        uniform = np.where(words < 0, -words - 1, words).astype(np.float32) * np.float32(4.6566127342e-10)
        return np.where(uniform > p, x.host / np.float32(1 - p), np.float32(0))

    return silo.Case(args=(x, out, n, p, seed), expected={"out": expected}, bytes=8 * n)

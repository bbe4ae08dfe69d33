"""Kernels around ``tl.dot``, as a Triton user writes them for a GPU: flash attention and a grouped matrix product."""

import triton
import triton.language as tl

import silo

TILES = {"BLOCK_M": [32, 64, 128], "BLOCK_N": [32, 64], "num_warps": [4]}


@silo.kernel(space=TILES, key=["length"], grid=lambda a: (silo.cdiv(a.length, a.BLOCK_M), a.heads))
@triton.jit
def flash_forward(
    q,
    k,
    v,
    out,
    lse,
    scale,
    heads,
    length,
    CAUSAL: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute out = softmax(q k^T scale) v for each head, and ``lse``, the log of each row's sum of exponentials.

    q, k, v and out are (heads, length, D).
    """
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    base = head * length * D
    m = start_m + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    rows = m[:, None] * D + d[None, :]
    query = tl.load(q + base + rows, mask=m[:, None] < length, other=0.0)
    highest = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    weight = tl.zeros([BLOCK_M], dtype=tl.float32)
    total = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    end = tl.minimum(start_m + BLOCK_M, length) if CAUSAL else length
    for start_n in range(0, end, BLOCK_N):
        n = start_n + tl.arange(0, BLOCK_N)
        keys = tl.load(k + base + n[None, :] * D + d[:, None], mask=n[None, :] < length, other=0.0)
        scores = tl.dot(query, keys) * scale
        inside = n[None, :] < length
        if CAUSAL:
            inside = inside & (m[:, None] >= n[None, :])
        scores = tl.where(inside, scores, -float("inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1))
        p = tl.exp(scores - new_highest[:, None])
        decay = tl.exp(highest - new_highest)
        weight = weight * decay + tl.sum(p, axis=1)
        values = tl.load(v + base + n[:, None] * D + d[None, :], mask=n[:, None] < length, other=0.0)
        total = tl.dot(p.to(values.dtype), values, total * decay[:, None])
        highest = new_highest
    tl.store(out + base + rows, (total / weight[:, None]).to(out.dtype.element_ty), mask=m[:, None] < length)
    tl.store(lse + head * length + m, highest + tl.log(weight), mask=m < length)


@silo.kernel(
    space={"BLOCK_M": [64], "num_warps": [4]}, key=["length"], grid=lambda a: (silo.cdiv(a.length, a.BLOCK_M), a.heads)
)
@triton.jit
def flash_delta(out, grad, delta, heads, length, D: tl.constexpr, BLOCK_M: tl.constexpr):
    """Compute the row sums of out * grad."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = tl.program_id(1)
    place = head * length * D + m[:, None] * D + tl.arange(0, D)[None, :]
    o = tl.load(out + place, mask=m[:, None] < length, other=0.0).to(tl.float32)
    g = tl.load(grad + place, mask=m[:, None] < length, other=0.0).to(tl.float32)
    tl.store(delta + head * length + m, tl.sum(o * g, axis=1), mask=m < length)


@silo.kernel(space=TILES, key=["length"], grid=lambda a: (silo.cdiv(a.length, a.BLOCK_N), a.heads))
@triton.jit
def flash_backward_keys(
    q,
    k,
    v,
    grad,
    lse,
    delta,
    dk,
    dv,
    scale,
    heads,
    length,
    CAUSAL: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute the gradients of k and v.

    Each program handles a block of keys and loops over the queries that attend to them.
    """
    start_n = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1)
    base = head * length * D
    n = start_n + tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)
    columns = n[:, None] * D + d[None, :]
    keys = tl.load(k + base + columns, mask=n[:, None] < length, other=0.0)
    values = tl.load(v + base + columns, mask=n[:, None] < length, other=0.0)
    key_grad = tl.zeros([BLOCK_N, D], dtype=tl.float32)
    value_grad = tl.zeros([BLOCK_N, D], dtype=tl.float32)
    begin = (start_n // BLOCK_M) * BLOCK_M if CAUSAL else 0
    for start_m in range(begin, length, BLOCK_M):
        m = start_m + tl.arange(0, BLOCK_M)
        rows = m[:, None] * D + d[None, :]
        query = tl.load(q + base + rows, mask=m[:, None] < length, other=0.0)
        g = tl.load(grad + base + rows, mask=m[:, None] < length, other=0.0)
        sums = tl.load(lse + head * length + m, mask=m < length, other=0.0)
        mean = tl.load(delta + head * length + m, mask=m < length, other=0.0)
        p = tl.exp(tl.dot(keys, tl.trans(query)) * scale - sums[None, :])
        inside = (m[None, :] < length) & (n[:, None] < length)
        if CAUSAL:
            inside = inside & (m[None, :] >= n[:, None])
        p = tl.where(inside, p, 0.0)
        value_grad = tl.dot(p.to(g.dtype), g, value_grad)
        ds = p * (tl.dot(values, tl.trans(g)) - mean[None, :])
        key_grad = tl.dot(ds.to(query.dtype), query, key_grad)
    tl.store(dk + base + columns, (key_grad * scale).to(dk.dtype.element_ty), mask=n[:, None] < length)
    tl.store(dv + base + columns, value_grad.to(dv.dtype.element_ty), mask=n[:, None] < length)


@silo.kernel(space=TILES, key=["length"], grid=lambda a: (silo.cdiv(a.length, a.BLOCK_M), a.heads))
@triton.jit
def flash_backward_queries(
    q,
    k,
    v,
    grad,
    lse,
    delta,
    dq,
    scale,
    heads,
    length,
    CAUSAL: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute the gradient of q.

    Each program handles a block of queries and loops over the keys that they attend to.
    """
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    base = head * length * D
    m = start_m + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    rows = m[:, None] * D + d[None, :]
    query = tl.load(q + base + rows, mask=m[:, None] < length, other=0.0)
    g = tl.load(grad + base + rows, mask=m[:, None] < length, other=0.0)
    sums = tl.load(lse + head * length + m, mask=m < length, other=0.0)
    mean = tl.load(delta + head * length + m, mask=m < length, other=0.0)
    query_grad = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    end = tl.minimum(start_m + BLOCK_M, length) if CAUSAL else length
    for start_n in range(0, end, BLOCK_N):
        n = start_n + tl.arange(0, BLOCK_N)
        columns = n[:, None] * D + d[None, :]
        keys = tl.load(k + base + columns, mask=n[:, None] < length, other=0.0)
        values = tl.load(v + base + columns, mask=n[:, None] < length, other=0.0)
        p = tl.exp(tl.dot(query, tl.trans(keys)) * scale - sums[:, None])
        inside = n[None, :] < length
        if CAUSAL:
            inside = inside & (m[:, None] >= n[None, :])
        p = tl.where(inside, p, 0.0)
        ds = p * (tl.dot(g, tl.trans(values)) - mean[:, None])
        query_grad = tl.dot(ds.to(keys.dtype), keys, query_grad)
    tl.store(dq + base + rows, (query_grad * scale).to(dq.dtype.element_ty), mask=m[:, None] < length)


@silo.kernel(
    space={"BLOCK_M": [64, 128], "BLOCK_N": [64, 128], "BLOCK_K": [32, 64], "num_warps": [4]},
    key=["group_count"],
    grid=lambda a: (a.PROGRAMS,),
)
@triton.jit
def grouped_matmul(
    a_addresses,
    b_addresses,
    c_addresses,
    sizes,
    strides,
    group_count,
    like,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute several matrix products in one launch; a fixed number of programs share the tiles of all of them.

    The addresses of the matrices are integers. ``sizes`` and ``strides`` have three numbers for each product: M, N, K,
    and the row strides of a, b, c. Only the element type of ``like`` is used.
    """
    tile = tl.program_id(0)
    before = 0
    for problem in range(group_count):
        M = tl.load(sizes + problem * 3)
        N = tl.load(sizes + problem * 3 + 1)
        K = tl.load(sizes + problem * 3 + 2)
        tiles_n = tl.cdiv(N, BLOCK_N)
        tiles = tl.cdiv(M, BLOCK_M) * tiles_n
        while tile >= before and tile < before + tiles:
            stride_a = tl.load(strides + problem * 3)
            stride_b = tl.load(strides + problem * 3 + 1)
            stride_c = tl.load(strides + problem * 3 + 2)
            a = tl.load(a_addresses + problem).to(like.dtype)
            b = tl.load(b_addresses + problem).to(like.dtype)
            c = tl.load(c_addresses + problem).to(like.dtype)
            m = ((tile - before) // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
            n = ((tile - before) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
            k = tl.arange(0, BLOCK_K)
            a_tile = a + m[:, None] * stride_a + k[None, :]
            b_tile = b + k[:, None] * stride_b + n[None, :]
            total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for start in range(0, K, BLOCK_K):
                left = tl.load(a_tile, mask=(m[:, None] < M) & (start + k[None, :] < K), other=0.0)
                right = tl.load(b_tile, mask=(start + k[:, None] < K) & (n[None, :] < N), other=0.0)
                total = tl.dot(left, right, total)
                a_tile += BLOCK_K
                b_tile += BLOCK_K * stride_b
            place = c + m[:, None] * stride_c + n[None, :]
            tl.store(place, total.to(like.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))
            tile += PROGRAMS
        before += tiles

"""Attention without a score matrix in memory, forward and backward, causal and not."""
# pyright: reportCallIssue=false

import torch
import triton
import triton.language as tl
from census_kinds import close, kind, normal


@triton.jit
def forward_inner(
    total, weight, largest, q, k_at, v_at, start, end, rows, LENGTH,
    DIM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BN)
    dims = tl.arange(0, DIM)
    for begin in range(start, end, BN):
        begin = tl.multiple_of(begin, BN)  # noqa: PLW2901
        at = begin + columns
        k = tl.load(k_at + at[None, :] * DIM + dims[:, None], mask=at[None, :] < LENGTH, other=0.0)
        scores = tl.dot(q, k)
        seen = at[None, :] < LENGTH
        if CAUSAL:
            seen = seen & (at[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, -1.0e6)
        grown = tl.maximum(largest, tl.max(scores, 1))
        shares = tl.math.exp2(scores - grown[:, None])
        shrink = tl.math.exp2(largest - grown)
        weight = weight * shrink + tl.sum(shares, 1)
        v = tl.load(v_at + at[:, None] * DIM + dims[None, :], mask=at[:, None] < LENGTH, other=0.0)
        total = tl.dot(shares.to(v.dtype), v, total * shrink[:, None])
        largest = grown
    return total, weight, largest


@triton.jit
def forward_kernel(
    q, k, v, out, logs, scale, LENGTH, DIM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * LENGTH
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, DIM)
    at = (head + rows[:, None]) * DIM + dims[None, :]
    inside = rows[:, None] < LENGTH
    query = tl.load(q + at, mask=inside, other=0.0)
    query = (query * (scale * 1.44269504)).to(q.dtype.element_ty)
    largest = tl.zeros([BM], tl.float32) - float("inf")
    weight = tl.zeros([BM], tl.float32) + 1.0
    weight = tl.where(largest == -float("inf"), 0.0, weight)
    total = tl.zeros([BM, DIM], tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BM, LENGTH) if CAUSAL else LENGTH
    total, weight, largest = forward_inner(
        total, weight, largest, query, k + head * DIM, v + head * DIM, 0, end, rows, LENGTH, DIM, BN, CAUSAL
    )
    tl.store(logs + head + rows, largest + tl.math.log2(weight), mask=rows < LENGTH)
    tl.store(out + at, (total / weight[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def prepare_kernel(out, change, deltas, DIM: tl.constexpr, BM: tl.constexpr, TOTAL):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    at = rows[:, None] * DIM + tl.arange(0, DIM)[None, :]
    inside = rows[:, None] < TOTAL
    x = tl.load(out + at, mask=inside, other=0.0).to(tl.float32) * tl.load(change + at, mask=inside, other=0.0)
    tl.store(deltas + rows, tl.sum(x, axis=1), mask=rows < TOTAL)


@triton.jit
def backward_kernel(
    q, k, v, dout, dq, dk, dv, logs, deltas, scale, LENGTH, DIM: tl.constexpr, B: tl.constexpr, CAUSAL: tl.constexpr
):
    """One program a block of keys; gradients of queries are added up in memory."""
    head = tl.program_id(1).to(tl.int64) * LENGTH
    columns = tl.program_id(0) * B + tl.arange(0, B)
    dims = tl.arange(0, DIM)
    at = (head + columns[:, None]) * DIM + dims[None, :]
    inside = columns[:, None] < LENGTH
    key, value = tl.load(k + at, mask=inside, other=0.0), tl.load(v + at, mask=inside, other=0.0)
    dkey, dvalue = tl.zeros([B, DIM], tl.float32), tl.zeros([B, DIM], tl.float32)
    first = tl.program_id(0) * B if CAUSAL else 0
    for begin in range(first, LENGTH, B):
        rows = begin + tl.arange(0, B)
        there = (head + rows[:, None]) * DIM + dims[None, :]
        query = tl.load(q + there, mask=rows[:, None] < LENGTH, other=0.0)
        change = tl.load(dout + there, mask=rows[:, None] < LENGTH, other=0.0)
        log = tl.load(logs + head + rows, mask=rows < LENGTH, other=0.0)
        delta = tl.load(deltas + head + rows, mask=rows < LENGTH, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * (scale * 1.44269504)
        shares = tl.math.exp2(scores - log[:, None])
        seen = (rows[:, None] < LENGTH) & (columns[None, :] < LENGTH)
        if CAUSAL:
            seen = seen & (rows[:, None] >= columns[None, :])
        shares = tl.where(seen, shares, 0.0)
        dvalue = tl.dot(tl.trans(shares), change, dvalue)
        dscores = shares * (tl.dot(change, tl.trans(value)) - delta[:, None])
        dkey = tl.dot(tl.trans(dscores), query, dkey)
        tl.atomic_add(dq + there, tl.dot(dscores, key) * scale, mask=rows[:, None] < LENGTH)
    tl.store(dk + at, dkey * scale, mask=inside)
    tl.store(dv + at, dvalue, mask=inside)


HEADS, LENGTH, DIM = 3, 100, 32
SCALE = 0.2


def exact(q, k, v, causal):
    scores = SCALE * q @ k.transpose(-1, -2)
    if causal:
        scores = scores.masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, -1) @ v


def forward(q, k, v, causal):
    out, logs = torch.empty_like(q), torch.empty(HEADS, LENGTH)
    forward_kernel[(triton.cdiv(LENGTH, 32), HEADS)](
        q, k, v, out, logs, SCALE, LENGTH, DIM=DIM, BM=32, BN=16, CAUSAL=causal, num_warps=4
    )
    return out, logs


def inputs(dtype=torch.float32):
    return [normal(HEADS, LENGTH, DIM, dtype=dtype, seed=seed) for seed in range(3)]


@kind("tutorial", "attention forward")
def attention_forward():
    for causal in (False, True):
        q, k, v = inputs()
        close(forward(q, k, v, causal)[0], exact(q.double(), k.double(), v.double(), causal), rtol=1e-3, atol=1e-4)


@kind("tutorial", "attention forward in float16")
def attention_forward_half():
    q, k, v = inputs(torch.float16)
    close(forward(q, k, v, True)[0], exact(q.double(), k.double(), v.double(), True), rtol=2e-2, atol=2e-2)


@kind("tutorial", "attention backward")
def attention_backward():
    for causal in (False, True):
        q, k, v = inputs()
        out, logs = forward(q, k, v, causal)
        change = normal(HEADS, LENGTH, DIM, seed=9)
        deltas = torch.empty(HEADS, LENGTH)
        prepare_kernel[(triton.cdiv(HEADS * LENGTH, 64),)](out, change, deltas, DIM=DIM, BM=64, TOTAL=HEADS * LENGTH)
        dq, dk, dv = torch.zeros_like(q), torch.empty_like(k), torch.empty_like(v)
        backward_kernel[(triton.cdiv(LENGTH, 32), HEADS)](
            q, k, v, change, dq, dk, dv, logs, deltas, SCALE, LENGTH, DIM=DIM, B=32, CAUSAL=causal
        )
        leaves = [one.double().requires_grad_() for one in (q, k, v)]
        exact(*leaves, causal).backward(change.double())
        for found, leaf in zip((dq, dk, dv), leaves, strict=True):
            close(found, leaf.grad, rtol=2e-3, atol=2e-4)

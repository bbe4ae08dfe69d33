"""Triton kernels that between them use most of the language, each with arguments to lower it for."""
# kernels are written as Triton authors write them

import triton
import triton.language as tl

from silo.core.argument_facts import ArgumentFacts
from silo.core.values import FunctionValue, dtype
from silo.kinds.triton.front.triton_fingerprint import function_value

SCALE = tl.constexpr(3)
A = ArgumentFacts.array
V = ArgumentFacts


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(out, x, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, e / tl.sum(e, 0), mask=i < n)


@triton.jit
def scaled(v):
    return v * SCALE


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + (rm % M)[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + (rn % N)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        va = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0.0)
        vb = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(va, vb, acc)
        pa += BK
        pb += BK * N
    acc = scaled(acc)
    pc = c + rm[:, None] * N + rn[None, :]
    tl.store(pc, acc.to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def early_return(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if n == 17:
        return
    tl.store(out + i, tl.load(x + i) * 2)


@triton.jit
def while_loop(x, out, n):
    total = 0.0
    i = 0
    while i < n:
        total += tl.load(x + i)
        i += 2
    tl.store(out, total)


@triton.jit
def branches(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if n > 5:
        p = x + i
        s = tl.load(p) * 2
    else:
        p = y + i
        s = tl.load(p)
    tl.store(out + i, s)


@triton.jit
def combine(a, b):
    return a * 2 + b


@triton.jit
def scans(x, out, index, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    value, at = tl.max(v, 0, return_indices=True)
    s = tl.cumsum(v, 0) + tl.associative_scan(v, 0, combine, reverse=True)
    tl.store(out + i, tl.sort(s) + value)
    tl.store(index, at)


@triton.jit
def atomics(counter, total, lock, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    old = tl.atomic_add(counter + i, 1, mask=i < n)
    tl.atomic_max(total, tl.max(old, 0))
    tl.atomic_xchg(lock, 0)


@triton.jit
def shapes(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    m = tl.reshape(v, (BLOCK // 4, 4))
    t = tl.trans(m)
    j = tl.join(t, t + 1.0)
    a, b = tl.split(j)
    flat = tl.reshape(tl.trans(a * b), (BLOCK,))
    h = tl.histogram(i % 8, 8)
    g = tl.gather(flat, (i + 1) % BLOCK, 0)
    tl.store(out + i, g + tl.sum(h, 0))


@triton.jit
def maths(x, out, seed, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    v = tl.sqrt(tl.abs(v)) + tl.rsqrt(v) + tl.sin(v) + tl.cos(v) + tl.log(v) + tl.log2(v) + tl.exp2(v) + tl.erf(v)
    v = tl.floor(v) + tl.ceil(v) + tl.fma(v, v, v) + tl.maximum(v, 0.0) + tl.clamp(v, 0.0, 1.0) + tl.rand(seed, i)
    w = tl.where(v > 0, v, -v).to(tl.int32, bitcast=True) >> 3
    tl.store(out + i, w.to(tl.float32) + tl.umulhi(i, i) + (i // 3) % 5)


@triton.jit
def eight_bit(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i).to(tl.float32)
    tl.store(out + i, (v + float("inf")).to(tl.float8e5))


@triton.jit(noinline=True)
def helper_not_inlined(p, n):
    return tl.load(p) + n


@triton.jit
def calls(x, out, n):
    tl.store(out, helper_not_inlined(x, n))


@triton.jit
def descriptors(x, out, M: tl.constexpr, N: tl.constexpr):
    out.store([0, 0], x.load([0, 0]) + 1)


@triton.jit
def device_descriptors(x, out, rows, cols, M: tl.constexpr, N: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [rows, cols], [cols, 1], [M, N])
    v = d.load([M, 0])
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], v)


@triton.jit
def pointer_array(pointers, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = tl.load(pointers + 1).to(tl.pointer_type(tl.float32))
    tl.store(out + i, tl.load(p + i))


@triton.jit
def printing(x, n, BLOCK: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK))
    tl.device_print('value "quoted" \\ ', v)
    tl.device_assert(n > 0, "n must be > 0 } : ( -> ")


@triton.jit
def applied(x, out, f: tl.constexpr, kind: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, f(tl.load(x + i)).to(kind))


def function_argument(function) -> V:
    value = function_value(function)
    assert isinstance(value, FunctionValue)
    return V(value)


# name -> (kernel, arguments)
SAMPLES = {
    "add": (add, {"x": A("fp32"), "y": A("fp32", 8), "out": A("fp32"), "n": V(1000), "BLOCK": V(256)}),
    "softmax": (softmax, {"out": A("fp16"), "x": A("fp16"), "stride": V(128), "n": V(100), "BLOCK": V(128)}),
    "matmul": (
        matmul,
        {
            "a": A("fp16"),
            "b": A("fp16"),
            "c": A("fp16"),
            "M": V(64),
            "N": V(48),
            "K": V(40),
            "BM": V(32),
            "BN": V(16),
            "BK": V(16),
        },
    ),
    "early_return": (early_return, {"x": A("fp32"), "out": A("fp32"), "n": V(5), "BLOCK": V(64)}),
    "while_loop": (while_loop, {"x": A("fp32"), "out": A("fp32"), "n": V(1 << 40)}),
    "branches": (branches, {"x": A("bf16"), "y": A("bf16"), "out": A("bf16"), "n": V(3), "BLOCK": V(64)}),
    "scans": (scans, {"x": A("fp32"), "out": A("fp32"), "index": A("i32"), "BLOCK": V(16)}),
    "atomics": (atomics, {"counter": A("i32"), "total": A("i32"), "lock": A("i32"), "n": V(9), "BLOCK": V(16)}),
    "shapes": (shapes, {"x": A("fp32"), "out": A("fp32"), "BLOCK": V(32)}),
    "maths": (maths, {"x": A("fp32"), "out": A("fp32"), "seed": V(7), "BLOCK": V(32)}),
    "eight_bit": (eight_bit, {"x": A("float8_e4m3fn"), "out": A("float8_e5m2"), "BLOCK": V(64)}),
    "calls": (calls, {"x": A("fp32"), "out": A("fp32"), "n": V(2.5)}),
    "descriptors": (
        descriptors,
        {
            "x": V(dtype=dtype("fp16"), is_pointer=True, block_shape=(16, 32)),
            "out": V(dtype=dtype("fp16"), is_pointer=True, block_shape=(16, 32)),
            "M": V(16),
            "N": V(32),
        },
    ),
    "device_descriptors": (
        device_descriptors,
        {"x": A("fp16"), "out": A("fp16"), "rows": V(64), "cols": V(32), "M": V(16), "N": V(32)},
    ),
    "pointer_array": (pointer_array, {"pointers": A("i64"), "out": A("fp32"), "BLOCK": V(16)}),
    "printing": (printing, {"x": A("fp32"), "n": V(3), "BLOCK": V(16)}),
    "applied": (
        applied,
        {"x": A("fp32"), "out": A("fp16"), "f": function_argument(scaled), "kind": V(dtype("fp16")), "BLOCK": V(16)},
    ),
}

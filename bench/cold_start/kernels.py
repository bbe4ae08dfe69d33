"""Ten small Triton kernels, each a function of its own, that a fresh process launches for the first time."""

import triton
import triton.language as tl


@triton.jit
def add_0(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_1(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 2 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_2(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 3 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_3(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 4 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_4(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 5 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_5(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 6 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_6(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 7 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_7(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 8 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_8(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 9 * tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_9(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 10 * tl.load(y + i, mask=i < n), mask=i < n)

"""Kernels of the bundles that are lied about: one for each thing that a call may be lied to about."""

import triton
import triton.language as tl

import silo


@silo.kernel(space={"BLOCK": [32, 64]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@silo.kernel(space={"BLOCK": [64]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def shift(x, out, n, amount=3, BLOCK: tl.constexpr = 64):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + amount, mask=i < n)


@silo.kernel(space={"BLOCK": [64]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def order(x, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    block = tl.load(x + i, mask=i < n, other=float("inf"))
    tl.store(x + i, tl.sort(block) * factor, mask=i < n)


@add.cases(n=[40, 100])
def _(n, make):
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    return silo.Case(args=(x, y, out, n), expected={"out": lambda: x.host + y.host})


@shift.cases(n=[100])
def _(n, make):
    x, out = make.integers(n, low=0, high=9, dtype="int32"), make.empty(n, dtype="int32")
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host + 3})


@order.cases(n=[60])
def _(n, make):
    x = make.normal(n)
    return silo.Case(args=(x, n, 2.0))

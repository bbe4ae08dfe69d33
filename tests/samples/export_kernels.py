"""Kernels whose cases have every kind of argument of an export: dtypes, constants, None, strides, descriptors, ..."""

import numpy as np
import triton
import triton.language as tl

import silo


@silo.kernel(space={"BLOCK": [64]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, bias, out, n, factor, BLOCK: tl.constexpr, MODE: tl.constexpr = "plain"):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n).to(tl.float32) * factor
    if bias is not None:
        value += tl.load(bias + i, mask=i < n).to(tl.float32)
    if MODE == "abs":
        value = tl.abs(value)
    tl.store(out + i, value.to(out.dtype.element_ty), mask=i < n)


@scale.cases(how=[("float32", True, "plain"), ("float32", False, "abs"), ("bfloat16", True, "abs")])
def _(how, make):
    element, biased, mode = how
    n = 1000
    x, out = make.normal(n, dtype=element), make.empty(n, dtype=element)
    bias = make.uniform(n, dtype=element) if biased else None

    def expected():
        value = x.host.astype(np.float32) * 1.5 + (bias.host.astype(np.float32) if biased else 0)
        return np.abs(value) if mode == "abs" else value

    return silo.Case(args=(x, bias, out, n, 1.5), kwargs={"MODE": mode}, expected={"out": expected})


@silo.kernel(space={"BLOCK": [64]}, key=["n"])
@triton.jit
def step(x, y, n, more, BLOCK: tl.constexpr):
    """No grid is declared: the case gives it."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if more:
        value = value + 1
    tl.store(y + i, value, mask=i < n)


@step.cases(n=[5, 700], more=[True])
def _(n, more, make):
    x = make.integers(n, low=-5, high=1 << 40, dtype="int64")
    return silo.Case(
        args=(x, x, n, more), expected={"y": lambda: x.host + int(more)}, grid=lambda a: (silo.cdiv(a.n, 64),)
    )


@silo.kernel(space={"BLOCK": [16]}, grid=lambda a: (silo.cdiv(a.x.shape[0], a.BLOCK), a.x.shape[1]))
@triton.jit
def columns(x, out, n, x_stride, out_stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1)
    tl.store(out + i * out_stride + j, tl.load(x + i * x_stride + j, mask=i < n), mask=i < n)


@columns.cases(dtype=["float8_e5m2", "bool"])
def _(dtype, make):
    if dtype == "bool":
        x = make.array(lambda i, j: (i * 7 + j) % 2, shape=(40, 3), dtype=dtype)
    else:
        x = make.normal((40, 3), dtype=dtype)
    out = make.empty((40, 3), dtype=dtype, strides=(5, 1))
    return silo.Case(args=(x, out, 40, 3, 5), expected={"out": lambda: x.host})


@silo.kernel(space={"BM": [16]}, grid=lambda a: (silo.cdiv(a.n, a.BM),))
@triton.jit
def twice(tiles, out, n, BM: tl.constexpr):
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, 16)
    value = tiles.load([tl.program_id(0) * BM, 0])
    tl.store(out + i[:, None] * 16 + j[None, :], value * 2, mask=(i < n)[:, None])


@twice.cases(n=[33])
def _(n, make):
    x, out = make.normal((n, 16)), make.empty((n, 16))
    return silo.Case(args=(make.descriptor(x, [16, 16]), out, n), expected={"out": lambda: x.host * 2})

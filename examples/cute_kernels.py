"""Kernels of the CuTe DSL, each with a tuning space, a grid and cases. They need ``kernel-silo[cute]`` to be compiled.

``silo build examples/cute_kernels.py -o cute.silo --target cuda:sm_90a`` packs them, on any machine and without a GPU;
``silo run cute.silo`` runs their cases wherever the file goes, without the DSL.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import cutlass
import numpy as np
from cutlass import cute, memory

import silo

WARP = 32


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, n: cutlass.Int32, THREADS: cutlass.Constexpr):
    """out = x + y, one element for each thread."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < n:
        out[i] = x[i] + y[i]


@cute.jit
def block_sum(value: cutlass.Float32, shared: cute.Tensor, thread: cutlass.Int32, THREADS: cutlass.Constexpr):
    """Return the sum of a value over a block's threads, to all of them; ``shared`` has one element for each warp."""
    of_warp = cute.arch.warp_reduction_sum(value)
    if thread % WARP == 0:
        shared[thread // WARP] = of_warp
    cute.arch.barrier()
    total = cutlass.Float32(0.0)
    for warp in cutlass.range_constexpr(THREADS // WARP):
        total += shared[warp]
    cute.arch.barrier()  # reached before the next sum overwrites `shared`
    return total


@cute.kernel
def row_sum_kernel(x: cute.Tensor, out: cute.Tensor, THREADS: cutlass.Constexpr):
    """The sum of each row, one thread block for each row."""
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    shared = memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS // WARP), 16)
    columns = cute.size(x, mode=[1])
    total = cutlass.Float32(0.0)
    for column in cutlass.range(thread, columns, THREADS):
        total += x[row, column].to(cutlass.Float32)
    total = block_sum(total, shared, thread, THREADS)
    if thread == 0:
        out[row] = total.to(out.element_type)


@cute.kernel
def layer_norm_kernel(
    x: cute.Tensor,
    weight: cute.Tensor,
    bias: cute.Tensor,
    out: cute.Tensor,
    eps: cutlass.Float32,
    THREADS: cutlass.Constexpr,
):
    """Layer norm of each row, one thread block for each row.

    The variance is the mean square of differences from the mean, which avoids cancellation.
    """
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    shared = memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS // WARP), 16)
    columns = cute.size(x, mode=[1])
    total = cutlass.Float32(0.0)
    for column in cutlass.range(thread, columns, THREADS):
        total += x[row, column].to(cutlass.Float32)
    mean = block_sum(total, shared, thread, THREADS) / cutlass.Float32(columns)
    spread = cutlass.Float32(0.0)
    for column in cutlass.range(thread, columns, THREADS):
        centred = x[row, column].to(cutlass.Float32) - mean
        spread += centred * centred
    variance = block_sum(spread, shared, thread, THREADS) / cutlass.Float32(columns)
    scale = cute.math.rsqrt(variance + eps)
    for column in cutlass.range(thread, columns, THREADS):
        centred = x[row, column].to(cutlass.Float32) - mean
        value = centred * scale * weight[column].to(cutlass.Float32) + bias[column].to(cutlass.Float32)
        out[row, column] = value.to(out.element_type)


add = silo.cute(
    add_kernel,
    signature="x: in *fp32, y: in *fp32, out: out *fp32",
    name="add",
    block="THREADS",
    space={"THREADS": [128, 256]},
    grid=lambda a: (silo.cdiv(a.n, a.THREADS),),
)

row_sum = silo.cute(
    row_sum_kernel,
    signature="x: in *fp32, out: out *fp32",
    name="row_sum",
    block="THREADS",
    space={"THREADS": [128, 256]},
    grid=lambda a: (a.x.shape[0],),
)

layer_norm = silo.cute(
    layer_norm_kernel,
    signature="x: in *fp32, weight: in *fp32, bias: in *fp32, out: out *fp32",
    name="layer_norm",
    block="THREADS",
    space={"THREADS": [128, 256]},
    grid=lambda a: (a.x.shape[0],),
)


dynamic_add = silo.cute(
    add_kernel,
    signature="x: in *fp32, y: in *fp32, out: out *fp32",
    name="dynamic_add",
    layouts="dynamic",
    block="THREADS",
    space={"THREADS": [256]},
    grid=lambda a: (silo.cdiv(a.n, a.THREADS),),
)

dynamic_row_sum = silo.cute(
    row_sum_kernel,
    signature="x: in *fp32, out: out *fp32",
    name="dynamic_row_sum",
    layouts="dynamic",
    block="THREADS",
    space={"THREADS": [128]},
    grid=lambda a: (a.x.shape[0],),
)


@add.cases(n=[1 << 16, (1 << 16) + 17])
@dynamic_add.cases(n=[1 << 16, (1 << 16) + 17])
def _(n, make):
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    return silo.Case(args=(x, y, out, n), expected={"out": lambda: x.host + y.host}, bytes=12 * n, flops=n)


@row_sum.cases(shape=[(64, 1024), (33, 777)])
@dynamic_row_sum.cases(shape=[(64, 1024), (33, 777)])
def _(shape, make):
    x, out = make.normal(shape), make.empty(shape[0])
    return silo.Case(args=(x, out), expected={"out": lambda: x.host.astype(np.float64).sum(axis=1)})


@layer_norm.cases(shape=[(64, 1024), (33, 777)])
def _(shape, make):
    x, weight, bias = make.normal(shape), make.normal(shape[1]), make.normal(shape[1])
    out = make.empty(shape)

    def expected():
        values = x.host.astype(np.float64)
        centred = values - values.mean(axis=1, keepdims=True)
        scale = 1 / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
        return centred * scale * weight.host + bias.host

    return silo.Case(args=(x, weight, bias, out, 1e-5), expected={"out": expected})

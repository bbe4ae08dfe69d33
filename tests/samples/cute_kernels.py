"""Small CuTe DSL kernels for tests. Importing this module imports the DSL."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from types import SimpleNamespace

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

__all__ = [
    "Scaled",
    "add",
    "add_on_host",
    "apply",
    "at",
    "doubled",
    "first",
    "on_a_stream",
    "passes_a_value",
    "row_sum",
    "unstreamed",
]

OFFSET = 3


def plus_offset(value):
    return value + OFFSET


@cute.kernel
def add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, n: cutlass.Int32, BLOCK: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * BLOCK + thread
    if i < n:
        out[i] = x[i] + y[i]


@cute.kernel
def apply(x: cute.Tensor, out: cute.Tensor, op: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    out[thread] = plus_offset(op(x[thread]))


@cute.kernel
def row_sum(x: cute.Tensor, out: cute.Tensor, THREADS: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    total = cutlass.Float32(0.0)
    for i in range(cute.ceil_div(cute.size(x, mode=[1]), THREADS)):
        column = i * THREADS + thread
        if column < cute.size(x, mode=[1]):
            total += x[row, column].to(cutlass.Float32)
    total = cute.arch.warp_reduction_sum(total)
    if thread == 0:
        out[row] = total


@cute.jit
def add_on_host(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, n: cutlass.Int32, BLOCK: cutlass.Constexpr):
    add(x, y, out, n, BLOCK).launch(grid=(cute.ceil_div(n, BLOCK), 1, 1), block=(BLOCK, 1, 1))


class Scaled:
    """A kernel as an object: its constants are arguments of the constructor."""

    def __init__(self, block: int, factor: float = 2.0, dtype=cutlass.Float32):
        if block % 32:
            raise ValueError(f"a block of {block} threads is no whole warps")
        self.block = block
        self.factor = factor
        self.dtype = dtype

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor, n: cutlass.Int32):
        self.layout = cute.make_layout(self.block)
        self.body(x, out, n).launch(grid=(cute.ceil_div(n, self.block), 1, 1), block=(self.block, 1, 1))

    @cute.kernel
    def body(self, x: cute.Tensor, out: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        i = block * self.block + thread
        if i < n:
            out[i] = (x[i].to(self.dtype) * self.dtype(self.factor)).to(out.element_type)


@cute.kernel
def first(x: cute.Tensor, out: cute.Tensor, bias: cute.Tensor | None = None):
    out[0] = x[0]
    if cutlass.const_expr(bias is not None):
        out[0] = out[0] + bias[0]


@cute.kernel
def at(p: cute.Pointer, out: cute.Tensor, i, by):
    out[0] = (p + i).load() * by


@cute.kernel
def fills(x: cute.Tensor, VALUE: cutlass.Constexpr):
    x[0] = cutlass.Float32(VALUE)


@cute.jit
def passes_a_value(x: cute.Tensor, n: cutlass.Int32):
    fills(x, n).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def on_a_stream(x: cute.Tensor, out: cute.Tensor, rows: int, scale, stream: cuda.CUstream):
    scales(x, out, rows, scale).launch(grid=(rows, 1, 1), block=(32, 1, 1), stream=stream)


@cute.kernel
def scales(x: cute.Tensor, out: cute.Tensor, rows: cutlass.Int32, scale: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    if thread < rows:
        out[thread] = x[thread] * scale


@cute.jit
def doubled(x: cute.Tensor, out: cute.Tensor, rows: int, scale: cutlass.Float32, stream: cuda.CUstream):
    # the host function computes it, but a launch by the driver does not run the host function
    held = SimpleNamespace(scale=scale * 2)
    scales(x, out, rows, held.scale).launch(grid=(rows, 1, 1), block=(32, 1, 1), stream=stream)


@cute.jit
def unstreamed(x: cute.Tensor, out: cute.Tensor, rows: int, scale: cutlass.Float32):
    scales(x, out, rows, scale * 2).launch(grid=(rows, 1, 1), block=(32, 1, 1))

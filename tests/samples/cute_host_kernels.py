"""A kernel that the CuTe DSL's own host code launches, with cases: what is built, bundled and called. Needs the DSL."""
# pyright: reportMissingImports=false

import cutlass
from cutlass import cute

import silo


@cute.kernel
def scaled_add(
    a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, factor: cutlass.Float32, n: cutlass.Int32, BLOCK: cutlass.Constexpr
):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    i = bx * BLOCK + tx
    if i < n:
        c[i] = a[i] + b[i] * factor


add = silo.cute(
    scaled_add,
    signature="a: in *fp32, b: in *fp32, c: out *fp32, factor: fp32, n: i32, BLOCK: constexpr",
    space={"BLOCK": [128]},
    block="BLOCK",
    host="dsl",
    grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
    name="add",
)


@add.cases(n=[1000])
def _(n, make):
    a, b, c = make.normal(n), make.normal(n), make.empty(n)
    return silo.Case(args=(a, b, c, 2.0, n), expected={"c": lambda: a.host + 2 * b.host})

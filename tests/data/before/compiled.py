"""A kernel that was compiled already, for the bundle of GPUs."""

from pathlib import Path

import silo

saxpy = silo.binary(
    Path(__file__).with_name("saxpy.ptx"),
    signature="x: in *fp32, y: inout *fp32, n: i32, alpha: fp32",
    threads=256,
    grid=lambda a: (silo.cdiv(a.n, 256),),
)


@saxpy.cases(n=[1000])
def _(n, make):
    x, y = make.normal(n), make.normal(n)
    return silo.Case(args=(x, y, n, 2.0), expected={"y": lambda: 2 * x.host + y.host})

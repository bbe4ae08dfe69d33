"""Kernels of the stack machine, with cases: what is built, bundled, tuned, launched and explained."""
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

import silo

scale = silo.rpn(
    "scale",
    "x: array, out: array, a: float, n: int",
    "x a * 1 + out!",
    space={"rpn_lanes": [64, 4096]},
    key=["n"],
)


@scale.cases(n=[1000, 20_000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, 2.0, n), expected={"out": lambda: 2 * x.host + 1})


in_python = silo.rpn(
    "in_python",
    "x: array, out: array, n: int",
    "x x * out!",
    space={"rpn_python": [True]},
)


@in_python.cases(n=[100])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * x.host})

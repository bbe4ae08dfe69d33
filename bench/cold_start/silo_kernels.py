"""The kernels of ``kernels.py`` as Silo kernels, with a grid and a case each, so that they can be bundled."""

import silo
from bench.cold_start import kernels as cold_kernels

SIZE = 1 << 16
BLOCK = 1024
COUNT = 10


def _wrap(index: int):
    kernel = silo.kernel(
        space={"BLOCK": [BLOCK], "num_warps": [4]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),)
    )(getattr(cold_kernels, f"add_{index}"))

    @kernel.cases(n=[SIZE])
    def _(n, make):
        x, y, out = make.normal(n), make.normal(n), make.empty(n)
        return silo.Case(args=(x, y, out, n), expected={"out": lambda: x.host + (index + 1) * y.host})

    return kernel


add_0, add_1, add_2, add_3, add_4, add_5, add_6, add_7, add_8, add_9 = (_wrap(index) for index in range(COUNT))

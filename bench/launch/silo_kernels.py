"""The kernels of ``nop_kernels`` as Silo kernels, with a grid and one case each, so that they can be bundled."""

from collections.abc import Callable
from typing import Any

import silo
from bench.launch import nop_kernels
from bench.launch.cases import BLOCK, CASES, ELEMENTS, GRID, Case


def _declared(case: Case) -> Callable[[Any], object] | tuple[int, ...]:
    if case.integers:
        return lambda a: (silo.cdiv(a.n0, BLOCK),)
    return GRID[:1]


def _wrap(case: Case, *, release_gil: bool = True):
    kernel = silo.kernel(grid=_declared(case), release_gil=release_gil)(getattr(nop_kernels, case.kernel))

    @kernel.cases(size=[ELEMENTS])
    def _(size, make):
        arrays = [make.empty(size) for _ in case.pointer_names]
        constants = case.constexpr_values()
        return silo.Case(args=(*arrays, *case.integer_values().values(), *constants.values()), expected={})

    return kernel


nop_0, nop_1, nop_8, nop_20, nop_58 = (_wrap(case) for case in CASES if not case.keyword)

# In a list, so that `silo build` does not find two kernels of one name.
HELD = [{case.kernel: _wrap(case, release_gil=False) for case in CASES if not case.keyword}]

"""Writes a nest's loops with its body twice: for the leading part in which every mask is true, and for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from silo.kinds.triton.cpu.loop_ir import For, Statement
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.lower.nest_loops import limited

__all__ = ["Body", "leading_loops"]


@dataclass(frozen=True, slots=True)
class Body:
    """The code of one iteration of the innermost loop, and whether its iterations may be vectorised."""

    statements: list[Statement]
    simd: bool


def leading_loops(
    scope: LoweringScope,
    shape: tuple[int, ...],
    body: Callable[[Nest], Body],
    reductions: tuple[tuple[str, str], ...] = (),
) -> list[Statement]:
    """The loops over ``shape``.

    ``body`` receives the nest and returns the code of one element, which is put after the statements of the nest's
    innermost level.
    """

    def written(nest: Nest, *, fast: bool) -> Body:
        nest.begin_body(fast=fast)
        nest_body = body(nest)
        return Body([*nest.levels[nest.depth], *nest_body.statements], nest_body.simd)

    nest = Nest(scope, shape)
    fast = written(nest, fast=True)
    if nest.wants_runs:
        nest = Nest(scope, shape, in_runs=True)
        fast = written(nest, fast=True)
    limits, extent = nest.limit_statements()
    slow = written(nest, fast=False) if limits else None

    def loop(first: str, last: str, part: Body) -> For:
        return For(nest.inner, first, last, part.statements, simd=part.simd, reductions=reductions if part.simd else ())

    limit = scope.name("limit")
    inner = limited(limit, str(extent), limits)
    if nest.runs is not None:
        once = nest.levels[nest.depth - 1]
        runs = None if fast.statements or not fast.simd else nest.runs.by_quotients(limit, once, reductions)
        inner += runs or nest.runs.loop(limit, once, lambda first, last: loop(first, last, fast))
    else:
        inner.append(loop("0", limit, fast))
    if slow is not None:
        inner.append(loop(limit, str(extent), slow))
    return nest.outer_loops(inner)

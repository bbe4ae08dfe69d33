"""Reductions of short rows: the lanes (partial results) of several rows are combined together.

The lanes of one row are combined by halves, in several steps that each wait for the step before. Here each step works
on two rows at once: one vector takes a half of the lanes of each row, a second vector takes the other halves, and both
vectors are combined. After the last step, each lane holds the result of one row. The lanes of a row are combined in the
same order as without other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, LoopCall, Statement
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.lower.reduction import (
    OPERATOR_NAMES,
    VECTOR_CTYPES,
    Accumulation,
    combined,
    joined_with_start,
    lanes_of,
)

__all__ = ["RowOfNest", "fold_rows", "rows_to_fold"]

_MOST_VECTORS = 4  # the most vectors of a row: in longer rows, combining the lanes takes a small part of the time
_FEWEST_ROWS = 4
_VECTOR_BITS = (
    # the fewest bits of a vector: shorter vectors have no masks, so they cannot accumulate the elements after a row's
    # last full vector
    512
)


@dataclass(frozen=True, slots=True)
class RowOfNest:
    """The statements of one row: ``before`` and ``loops`` accumulate elements; ``after`` uses the accumulators."""

    before: list[Statement]
    loops: list[Statement]
    after: list[Statement]


def rows_to_fold(
    scope: LoweringScope, nest: Nest, row: RowOfNest, accumulators: Sequence[tuple[str, str, Accumulation]]
) -> int:
    """The number of rows whose lanes (partial results) are combined together; 0 if each row is combined by itself."""
    lanes, loop = lanes_of(scope.options.vector_bits), row.loops[0]
    if (
        scope.options.vector_bits < _VECTOR_BITS
        or len(nest.axes) < 2
        or nest.flat is not None
        or nest.runs is not None
        or not accumulators
    ):
        return 0
    if (
        len(row.loops) != 1
        or not isinstance(loop, For)
        or not loop.simd
        or not lanes <= loop.most <= _MOST_VECTORS * lanes
    ):
        return 0
    changed = {statement.target for statement in loop.body if isinstance(statement, Assign)}
    if changed != {name for name, _, _ in accumulators}:
        return 0
    if any(how.flag or how.ctype not in VECTOR_CTYPES for _, _, how in accumulators):
        return 0
    plain = all(isinstance(statement, Define | Assign) for statement in loop.body)
    if not plain or not all(isinstance(statement, Define) for statement in nest.levels[nest.depth - 1]):
        return 0
    extent = nest.shape[nest.axes[-2]]
    count = min(extent, lanes)
    return count if count >= _FEWEST_ROWS and extent % count == 0 and count & (count - 1) == 0 else 0


def fold_rows(
    scope: LoweringScope,
    nest: Nest,
    row: RowOfNest,
    accumulators: Sequence[tuple[str, str, Accumulation]],
    count: int,
    ahead: list[Statement],
) -> list[Statement]:
    """The loop over the rows, ``count`` at a time."""
    lanes = lanes_of(scope.options.vector_bits)
    index, extent = nest.index[nest.axes[-2]], nest.shape[nest.axes[-2]]
    block, loop = scope.name("rows"), row.loops[0]
    assert isinstance(loop, For)
    start: list[Statement] = []
    kept: list[tuple[str, str]] = []
    folds: list[Statement] = []
    results: list[Statement] = []
    for name, _, how in accumulators:
        all_lanes, folded = scope.name("lanes_of_rows"), scope.name("folded")
        start.append(
            Define(how.ctype, f"{all_lanes}[{count * lanes}] __attribute__((aligned(64)))", None, mutable=True)
        )
        start.append(Define(how.ctype, f"{folded}[{count}]", None, mutable=True))
        kept.append((name, f"{all_lanes} + ({index} - {block}) * {lanes}"))
        function, text = _function(how.ctype, how.clause, lanes, count)
        if text not in scope.constants:
            scope.constants.append(text)
        folds.append(LoopCall(f"{function}({folded}, {all_lanes})"))
        results.append(Assign(name, joined_with_start(how.clause, name, f"{folded}[{index} - {block}]")))
    kept_loop = replace(loop, kept=tuple(kept))
    once = nest.levels[nest.depth - 1]

    def each(body: list[Statement]) -> For:
        return For(index, block, f"{block} + {count}", [*once, *body], ctype=nest.ctype)

    body: list[Statement] = [
        *start,
        each([*ahead, *row.before, kept_loop]),
        *folds,
        each([*row.before, *results, *row.after]),
    ]
    return [For(block, "0", str(extent), body, step=str(count), ctype=nest.ctype)]


def _function(ctype: str, operator: str, lanes: int, rows: int) -> tuple[str, str]:
    """The name and the text of a C function that combines the lanes of each row.

    The function takes ``rows`` rows of ``lanes`` lanes each, and at most as many rows as lanes.
    """
    name = f"silo_fold_{rows}_rows_{OPERATOR_NAMES[operator]}_{ctype}"
    vector, both = f"{name}_vector", f"{name}_both"
    pair = combined(operator, "((T *)&a)[i]", "((T *)&b)[i]").replace("T", ctype)
    lines = [
        f"typedef {ctype} {vector} __attribute__((vector_size({lanes} * sizeof({ctype})), may_alias));",
        f"SILO_INLINE {vector} {both}({vector} a, {vector} b) {{",
        f"  {vector} c;",
        f"#pragma omp simd\n  for (int32_t i = 0; i < {lanes}; i++)\n    (({ctype} *)&c)[i] = {pair};",
        "  return c;",
        "}",
        f"SILO_INLINE void {name}({ctype} *to, {ctype} const *lanes) {{",
        f"  {vector} const *const rows = ({vector} const *)lanes;",
    ]
    names = [f"rows[{row}]" for row in range(rows)]
    size = lanes  # the number of consecutive lanes of a vector that belong to one row
    step = 0
    while size > 1:
        step += 1
        half = len(names) // 2
        pairs = list(zip(names[:half], names[half:], strict=True)) if half else [(names[0], names[0])]
        for number, (first, second) in enumerate(pairs):
            parts = [_halves(lanes, size, upper, alone=not half) for upper in (False, True)]
            texts = [f"__builtin_shufflevector({first}, {second}, {places})" for places in parts]
            lines.append(f"  {vector} const v{step}_{number} = {both}({', '.join(texts)});")
        names = [f"v{step}_{number}" for number in range(len(pairs))]
        size //= 2
    lines += [f"  __builtin_memcpy(to, &{names[0]}, {rows} * sizeof({ctype}));", "}"]
    return name, "\n".join(lines)


def _halves(lanes: int, size: int, upper: bool, *, alone: bool) -> str:  # noqa: FBT001
    """The numbers of the lanes that a shuffle of two vectors takes: a half of each run of ``size`` lanes.

    The half is the upper or the lower one, and runs of the first and the second vector alternate. If both are the same
    vector (``alone``), each half is taken once, and lanes are repeated until the result is full.
    """
    first = size // 2 if upper else 0
    runs = [range(start + first, start + first + size // 2) for start in range(0, lanes, size)]
    if alone:
        places = [place for run in runs for place in run]
        places = (places * 2)[:lanes]
    else:
        places = [place for run in runs for shift in (0, lanes) for place in (at + shift for at in run)]
    return ", ".join(map(str, places))

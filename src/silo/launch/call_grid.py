"""The grid of one call, for kernels whose code is made for one grid: computed in Python before the launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from silo.core.expressions import Bindings, Node, evaluate
from silo.core.values import Value
from silo.errors import ArgumentError
from silo.launch.arguments import SeenCall, ValueKind

__all__ = ["call_grid"]

_SCALARS = (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)


def call_grid(
    call: SeenCall, declared: Sequence[Node] | None, config: Mapping[str, Value], facts: Mapping[str, int]
) -> tuple[int, int, int]:
    """The grid that a call gives, or the declared one for it and one config.

    The launcher holds the extents that the declared grid reads, and has read the call's own grid.

    Raises:
        ArgumentError: neither the call nor the declaration gives a grid.
        ExpressionError: the declared grid cannot be computed from these arguments.
    """
    if call.grid is not None:
        return cast("tuple[int, int, int]", call.grid)
    if declared is None:
        raise ArgumentError(
            f"{call.kernel} has no declared grid: call it as {call.kernel}[grid](...), or declare "
            "silo.kernel(grid=...), which cases need"
        )
    arrays = [one for one in call.arguments if one.shape is not None]
    bindings = Bindings(
        values={**{one.name: one.number for one in call.arguments if one.kind in _SCALARS}, **config},
        shapes={one.name: one.shape or () for one in arrays},
        strides={one.name: one.strides or () for one in arrays},
        itemsizes={one.name: one.dtype.itemsize for one in call.arguments if one.dtype is not None},
        config=config,
        facts=facts,
    )
    first, second, third = (*(evaluate(axis, bindings) for axis in declared), 1, 1)[:3]
    return first, second, third

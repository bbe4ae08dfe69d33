"""The grid of one call, for kernels whose code is made for one: known before the launch, in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from silo.core.extents import shape_text
from silo.core.nodes import Bindings, Node, evaluate
from silo.core.values import Value
from silo.core.variant import Variant
from silo.errors import ArgumentError, ExpressionError
from silo.launch.arguments import Call, ValueKind

__all__ = ["call_grid", "grid_problem"]

_SCALARS = (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)


def call_grid(
    call: Call, declared: Sequence[Node] | None, config: Mapping[str, Value], facts: Mapping[str, int]
) -> tuple[int, int, int]:
    """The grid that a call gives, or the declared one for it and one config.

    The launcher holds the extents that the declared one reads, and has read what a call gives.

    Raises:
        ArgumentError: the call gives none and none is declared.
        ExpressionError: the declared one has no value for these arguments.
    """
    if call.grid is not None:
        return cast("tuple[int, int, int]", call.grid)
    if declared is None:
        raise ArgumentError(f"{call.kernel} has no declared grid: call it as {call.kernel}[grid](...) or with grid=")
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


def grid_problem(variant: Variant, call: Call, declared: Sequence[Node] | None, facts: Mapping[str, int]) -> str | None:
    """Why a call's grid is not the one that a variant was built for; None where it is, or where any does."""
    wanted = variant.specialization.grid
    if wanted is None:
        return None
    config = {**variant.config.as_dict(), **variant.specialization.constant_values}
    try:
        given = call_grid(call, declared, config, facts)
    except (ArgumentError, ExpressionError) as error:
        return str(error)
    if given == wanted:
        return None
    return f"the grid is {shape_text(given)}, and this variant was built for {shape_text(wanted)}"

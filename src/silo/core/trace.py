"""Tracing: a Python function of one namespace becomes an expression.

The function runs once, with stand-ins for arguments, config values and device facts. ``silo.cdiv``, its like in
libraries that kernels are written with, ``min``, ``max``, ``math.ceil`` and
``math.floor`` are replaced while it runs: a copy of the function gets globals and a closure in which those objects are
ours. Their own bodies never run and their libraries are never imported, so every version leads to the same expression.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from silo.core.function_copies import Copier
from silo.core.nodes import Argument, Node
from silo.core.traced import Integer, Traced, as_node, cdiv, maximum, minimum, next_pow2, select
from silo.core.tracers import Namespace
from silo.errors import ExpressionError, TraceError

__all__ = [
    "Integer",
    "Traced",
    "cdiv",
    "maximum",
    "minimum",
    "next_pow2",
    "select",
    "trace_grid",
    "trace_indices",
    "trace_value",
]


def trace_grid(
    function: Callable[[Any], object] | Sequence[object], arguments: Sequence[str], config: Sequence[str]
) -> tuple[Node, ...]:
    """The expressions, one an axis, of a grid: a function of one namespace, or a tuple of 1 to 3 integers.

    ``arguments`` and ``config`` are the names the function may read; compile options such as ``num_warps`` are always
    known. ``TraceError`` names the operation that cannot be traced, and the cure.

    >>> [str(axis) for axis in trace_grid(lambda a: (cdiv(a.n, a.BLOCK), 1), ["n"], ["BLOCK"])]
    ['cdiv(n, BLOCK)', '1']
    """
    result = _run(function, [Namespace(arguments, config)]) if callable(function) else function
    axes = tuple(cast("Iterable[object]", result)) if isinstance(result, tuple | list) else (result,)
    if not 1 <= len(axes) <= 3:
        raise TraceError(f"a grid has 1 to 3 axes, and {_place(function)} gives {len(axes)}")
    return tuple(as_node(axis) for axis in axes)


def trace_value(function: Callable[[Any], object], arguments: Sequence[str], config: Sequence[str] = ()) -> Node:
    """The expression of one value, as :func:`trace_grid` does."""
    return as_node(_run(function, [Namespace(arguments, config)]))


def trace_indices(function: Callable[..., object], names: Sequence[str]) -> Node:
    """The expression of one value of as many integers as there are names, given to the function by place.

    >>> str(trace_indices(lambda i, j: i * 8 + j % 3, ["i", "j"]))
    '((i * 8) + (j % 3))'
    """
    return as_node(_run(function, [Traced(Argument(name)) for name in names]))


def _run(function: Callable[..., object], given: Sequence[object]) -> object:
    try:
        return Copier().callable(function)(*given)
    except (TraceError, ExpressionError) as error:
        raise TraceError(f"{_place(function)} cannot become an expression: {error}") from None
    except Exception as error:  # whatever the user's function raised is reported with its place
        raise TraceError(f"{_place(function)} failed while it was traced: {type(error).__name__}: {error}") from error


def _place(function: object) -> str:
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType):
        return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
    return repr(function)

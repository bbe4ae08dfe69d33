"""Writes every elementwise operation as a C expression over scalars.

The record of an operation holds its expression (:mod:`silo.kinds.triton.front.operations`); the modules of
``operations.cpu`` and ``operations.nvidia`` define the cases that MLIR leaves undefined.
"""

from __future__ import annotations

from collections.abc import Sequence

from silo.errors import UnsupportedError
from silo.kinds.triton.front.operations.cpu.c_types import (
    RefusedError,
    ScalarCall,
    c_type,
    element_bytes,
    has_c_type,
    literal,
    zero,
)
from silo.kinds.triton.front.operations.operation_table import OPERATIONS
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = [
    "c_type",
    "element_bytes",
    "has_c_type",
    "is_cheap",
    "literal",
    "refusal",
    "runtime_pieces",
    "scalar_expression",
    "zero",
]


def scalar_expression(op: Operation, operands: Sequence[str], operand_types: Sequence[Type], result_type: Type) -> str:
    """The C expression of one element of ``op``'s result.

    Each operand is used at most once, so an operand may be any expression without side effects. Values have the C types
    of ``c_types.C_TYPES``. For tensor types, the element type counts.

    Raises:
        UnsupportedError: the operation has no expression; the message holds the reason.
    """
    return _render(op, operands, operand_types, result_type)[0]


def runtime_pieces(op: Operation) -> set[str]:
    """Returns the names of the pieces of the C runtime that the expression of ``op`` calls."""
    placeholders = [f"x{index}" for index in range(len(op.operands))]
    return _render(op, placeholders, [value.type for value in op.operands], op.result.type)[1]


def refusal(op: Operation) -> str:
    """The reason why ``op`` has no expression; "" if it has one."""
    if len(op.results) != 1:
        return f"it gives {len(op.results)} values; only operations that give one are known"
    try:
        runtime_pieces(op)
    except UnsupportedError as error:
        return str(error).removeprefix(f"{op.name}: ")
    return ""


def is_cheap(name: str) -> bool:
    """Whether computing the operation again costs at most as much as storing and loading its result.

    >>> is_cheap("arith.addi"), is_cheap("math.exp")
    (True, False)
    """
    record = OPERATIONS.get(name)
    return record is not None and record.cheap


def _render(op: Operation, operands: Sequence[str], types: Sequence[Type], result: Type) -> tuple[str, set[str]]:
    record = OPERATIONS.get(op.name)
    renderer = None if record is None else record.render
    if renderer is None:
        raise UnsupportedError(f"{op.name}: not an elementwise operation that the CPU knows")
    call = ScalarCall(op, operands, types, result)
    try:
        text = renderer(call)
    except RefusedError as refused:
        raise UnsupportedError(f"{op.name}: {refused}") from None
    except IndexError:
        raise UnsupportedError(f"{op.name}: it needs more than {len(operands)} operands") from None
    return text, call.pieces

"""What evaluating a value again costs, so that the scheduler can weigh it against storing the value once."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.affine import unit_axis
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar, load_parts, scalar_source
from silo.kinds.triton.cpu.analysis.value_walks import fold, remembered
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.operation_table import OPAQUE, VIEWS, own_cost
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = ["arithmetic_cost", "is_repeated_load", "recompute_cost", "row_axis"]

_COST_LIMIT = 2.0**40
# More than any threshold of the scheduler: what costs so much is looked into no further.
_ENOUGH = 64.0
# Of a load whose element serves a whole run of an innermost loop.
_REPEATED_LOAD_COST = 4.0
_SHORTEST_RUN = 16
# Of a load that reads successive places, whose addresses and bounds leave the innermost loop: as much as loading the
# value from a buffer and some more, as the store into that buffer is saved.
_ROW_LOAD_COST = 2.0


def recompute_cost(value: Value, known: dict[tuple[Value, bool], float], *, rows: bool = True) -> float:
    """About how many cheap operations evaluating one element of ``value`` costs, from buffers and scalars.

    What several operations use counts once. ``known`` memoises over one function. A value that reads memory costs more
    than any threshold, unless its loads are as quick as those from a buffer; successive places are where ``rows`` says
    that the loop which wants them is one over rows.
    """
    found = known.get((value, rows))
    if found is None:
        found = known[value, rows] = min(_sum_of_costs(value, rows=rows), _COST_LIMIT)
    return found


def _sum_of_costs(root: Value, *, rows: bool) -> float:
    reads, arithmetic = 0.0, 0.0
    seen, pending = {root}, [root]
    while pending and arithmetic <= _ENOUGH:
        value = pending.pop()
        operation = value.owner
        if operation is None or not value.type.tensor or operation.name in OPAQUE:
            continue
        operands = operation.operands
        if is_repeated_load(operation):
            arithmetic += _REPEATED_LOAD_COST
        elif rows and row_axis(operation) is not None:
            arithmetic += _ROW_LOAD_COST
            operands = []
        else:
            own = own_cost(operation)
            reads += own if own >= tt.LOAD_COST else 0.0
            arithmetic += own if own < tt.LOAD_COST else 0.0
        for operand in operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return reads + arithmetic


def arithmetic_cost(cost: float) -> float:
    """The part of a ``recompute_cost`` that is not reading memory."""
    return cost if cost >= _COST_LIMIT else cost % tt.LOAD_COST


def row_axis(operation: Operation) -> int | None:
    """The axis along which a ``tt.load`` reads successive places, with a mask that is made of indices and scalars.

    None where it is no such load. Along that axis reading an element again costs no more than reading it from a buffer.
    """
    if operation.name != tt.LOAD:
        return None
    pointer, mask, other = load_parts(operation)
    return unit_axis(pointer) if _reads_only_there(mask, other) else None


def is_repeated_load(operation: Operation) -> bool:
    """Whether a ``tt.load`` reads one element again and again: at ``base + i // d`` for a constant ``d``.

    Its mask, if it has one, reads no memory.
    """
    if operation.name != tt.LOAD:
        return False
    pointer, mask, other = load_parts(operation)
    made = pointer.owner
    if (
        made is None
        or made.name != tt.ADDPTR
        or scalar_source(made.operands[0]) is None
        or not _is_quotient(made.operands[1])
    ):
        return False
    return _reads_only_there(mask, other)


def _reads_only_there(mask: Value | None, other: Value | None) -> bool:
    """Whether a load's mask reads no memory, and what stands for masked elements is one scalar."""
    return _reads_nothing(mask) and (other is None or scalar_source(other) is not None)


def _is_quotient(value: Value) -> bool:
    operation = value.owner
    while operation is not None and operation.name == arith.EXTSI:
        operation = operation.operands[0].owner
    if operation is None or operation.name != arith.DIVSI:
        return False
    divisor = constant_scalar(operation.operands[1])
    return isinstance(divisor, int) and divisor >= _SHORTEST_RUN and _reads_nothing(operation.operands[0])


def _reads_nothing(value: Value | None) -> bool:
    """Whether a value is made of scalars, ranges and arithmetic of integers alone."""

    def nothing(inner: Value, parts: list[bool]) -> bool:
        return _arithmetic_parts(inner) is not None and all(parts)

    return value is None or fold(value, lambda v: _arithmetic_parts(v) or [], nothing, remembered("reads nothing"))


def _arithmetic_parts(value: Value) -> list[Value] | None:
    if not value.type.tensor:
        return []
    operation = value.owner
    if operation is None or operation.regions:
        return None
    if operation.name not in VIEWS and operation.name != tt.MAKE_RANGE and not operation.name.startswith("arith."):
        return None
    return operation.operands

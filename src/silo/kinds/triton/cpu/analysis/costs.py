"""Estimates the cost of evaluating a value again instead of storing it, and the time of one program of a kernel."""

from __future__ import annotations

from typing import Final, cast

from silo.kinds.triton.cpu.analysis.affine import unit_axis
from silo.kinds.triton.cpu.analysis.ssa_rewriting import callees_first
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar, fold, load_parts, remembered, scalar_source
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.operation_table import OPAQUE, VIEWS, own_cost
from silo.kinds.triton.front.ssa import Block, Module, Operation, Type, Value

__all__ = ["arithmetic_cost", "is_repeated_load", "program_nanoseconds", "recompute_cost", "row_axis"]

# ---- The cost of evaluating a value again, which the scheduler compares with the cost of storing the value once ----

_COST_LIMIT = 2.0**40
# The cost at which adding up a value's costs stops: it is above every threshold of the scheduler.
_ENOUGH = 64.0
# The cost of a load that reads only one element for many successive iterations of an innermost loop.
_REPEATED_LOAD_COST = 4.0
_SHORTEST_RUN = 16
# The cost of a load from successive addresses, when addresses and bounds are computed outside of the innermost loop.
# Evaluating the load again takes a little longer than reading a buffer, but saves the store into the buffer.
_ROW_LOAD_COST = 2.0
# The cost of a load of f16 from successive addresses. It is high because every evaluation converts f16 to f32, in
# blocks; if the value is stored in a buffer of f32 instead, it is converted only once.
_HALF_ROW_LOAD_COST = 12.0


def recompute_cost(value: Value, memo: dict[tuple[Value, bool], float], *, rows: bool = True) -> float:
    """Returns about how many cheap operations it takes to evaluate one element of ``value`` from buffers and scalars.

    A value that several operations use is counted once. ``memo`` keeps the costs of one function's values. A value that
    reads memory costs more than any threshold, unless its loads are as quick as loads from a buffer. With ``rows``, the
    loop that uses the value runs along rows, so that loads of successive elements of a row are quick.
    """
    cost = memo.get((value, rows))
    if cost is None:
        cost = memo[value, rows] = min(_sum_of_costs(value, rows=rows), _COST_LIMIT)
    return cost


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
            arithmetic += _HALF_ROW_LOAD_COST if value.type.element == "f16" else _ROW_LOAD_COST
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
    """The part of a ``recompute_cost`` that is arithmetic, without the cost of reading memory."""
    return cost if cost >= _COST_LIMIT else cost % tt.LOAD_COST


def row_axis(operation: Operation) -> int | None:
    """The axis along which a ``tt.load`` reads successive addresses, if its mask is made of indices and scalars.

    None for other loads. Along that axis, loading an element again is as cheap as reading it from a buffer.
    """
    if operation.name != tt.LOAD:
        return None
    pointer, mask, other = load_parts(operation)
    return unit_axis(pointer) if _reads_only_there(mask, other) else None


def is_repeated_load(operation: Operation) -> bool:
    """Whether neighbouring elements of a ``tt.load`` read one address, ``base + i // d`` for a constant ``d``.

    The load's mask, if it has one, must read no memory.
    """
    if operation.name != tt.LOAD:
        return False
    pointer, mask, other = load_parts(operation)
    producer = pointer.owner
    if (
        producer is None
        or producer.name != tt.ADDPTR
        or scalar_source(producer.operands[0]) is None
        or not _is_quotient(producer.operands[1])
    ):
        return False
    return _reads_only_there(mask, other)


def _reads_only_there(mask: Value | None, other: Value | None) -> bool:
    """Whether a load's mask reads no memory, and all masked-off elements get one scalar value."""
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
    """Whether ``value`` is made only of scalars, ranges and integer arithmetic."""

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


# ---- The time of one program, estimated from its operations and the bytes they move ----

# Nanoseconds on one thread of a current server, with 512-bit vectors and arrays in its caches. On another machine the
# estimate may be wrong by a small factor; measured launches correct it.
_STEP_NS: Final = 0.02  # one cheap operation on one element of a tensor
_BYTE_NS: Final = 0.015  # one byte of contiguous memory that is loaded or stored
_PLACE_NS: Final = 0.4  # one element at an arbitrary address, or one atomic update
_PRODUCT_NS: Final = 0.02  # one multiply-add of a dot
_SCALAR_NS: Final = 0.3
_PROGRAM_NS: Final = 20.0
_MOST_NS: Final = 1 << 30
_ATOMICS: Final = frozenset({tt.ATOMIC_RMW, tt.ATOMIC_CAS})
# Loops and jumps whose iteration count the kernel's text does not give.
_OPEN: Final = frozenset({flow.WHILE, flow.BR, flow.COND_BR})
_BYTES: Final = {"i1": 1, "i8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8, "index": 8}


class _UnknownError(Exception):
    """Raised for a loop whose iteration count is known only when the kernel is called, and for a recursive function."""


def program_nanoseconds(module: Module) -> int:
    """The estimated nanoseconds of one program of the kernel; 0 if the iteration count of a loop is unknown."""
    memo: dict[str, float] = {}
    try:
        for symbol in callees_first(module):
            blocks = [block for region in module.functions[symbol].regions for block in region.blocks]
            memo[symbol] = sum(_block(block, memo) for block in blocks)
    except _UnknownError:
        return 0
    return max(1, min(round(_PROGRAM_NS + memo[module.kernel]), _MOST_NS))


def _block(block: Block, memo: dict[str, float]) -> float:
    return min(sum(_operation(operation, memo) for operation in block.operations), float(_MOST_NS))


def _operation(operation: Operation, memo: dict[str, float]) -> float:
    name = operation.name
    if name in _OPEN:
        raise _UnknownError
    if name == tt.CALL:
        if operation.callee not in memo:  # a recursive function calls itself before its time is known
            raise _UnknownError
        return memo[operation.callee]
    inside = sum(_block(block, memo) for region in operation.regions for block in region.blocks)
    if name == flow.FOR:
        return _turns(operation) * inside
    if name == flow.IF:
        return inside
    if name in (tt.DOT, tt.DOT_SCALED):
        left, result = operation.operands[0].type, operation.results[0].type
        return _PRODUCT_NS * result.elements * left.shape[-1]
    if name in (tt.LOAD, tt.STORE) or name in _ATOMICS:
        return _access(operation)
    types = [value.type for value in (*operation.results, *operation.operands[:1])]
    elements = max((type_.elements for type_ in types if type_.tensor), default=0)
    if operation.regions:  # a reduction or a scan: its region is scalar code for each element
        return elements * (_STEP_NS + inside * _STEP_NS / _SCALAR_NS)
    if not any(value.type.tensor for value in operation.results):
        return _SCALAR_NS if own_cost(operation) else 0.0
    if any(value.type.pointer for value in operation.results) or _is_index(operation.results[0]):
        return 0.0  # addresses are mostly computed outside of the innermost loop
    return _STEP_NS * elements * own_cost(operation)


def _access(operation: Operation) -> float:
    pointer = operation.operands[0].type
    if operation.name in _ATOMICS or not pointer.tensor:
        return _PLACE_NS * max(1, pointer.elements)
    return _BYTE_NS * pointer.elements * _bytes(pointer)


def _bytes(pointer: Type) -> int:
    return _BYTES.get(pointer.element, 1)


def _is_index(value: Value) -> bool:
    """Whether a tensor's elements are 32-bit integers or flags, as used in addresses and masks."""
    return value.type.element in ("i1", "i32", "i64")


def _turns(loop: Operation) -> float:
    bounds = [constant_scalar(value) for value in loop.operands[:3]]
    if any(type(bound) is not int for bound in bounds):
        raise _UnknownError
    first, last, step = cast("list[int]", bounds)
    return max(0, -((first - last) // step)) if step > 0 else 0

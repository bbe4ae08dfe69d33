"""About how long one program runs, from its operations and the bytes they move: known before any launch has told."""

from __future__ import annotations

from typing import Final, cast

from silo.kinds.triton.cpu.analysis.calls import callees_first
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar
from silo.kinds.triton.front.operations import flow, tt
from silo.kinds.triton.front.operations.operation_table import own_cost
from silo.kinds.triton.front.ssa import Block, Module, Operation, Type, Value

__all__ = ["program_nanoseconds"]

# Nanoseconds on one thread of a server of today, with vectors of 512 bits and arrays in its caches. What a program
# takes on another machine differs by some times; launches correct it.
_STEP_NS: Final = 0.02  # one cheap operation on one element of a tensor
_BYTE_NS: Final = 0.015  # one byte that is loaded or stored, lying beside others
_PLACE_NS: Final = 0.4  # one element that lies anywhere, or is changed atomically
_PRODUCT_NS: Final = 0.02  # one multiplication and addition of a dot
_SCALAR_NS: Final = 0.3
_PROGRAM_NS: Final = 20.0
_MOST_NS: Final = 1 << 30
_ATOMICS: Final = frozenset({tt.ATOMIC_RMW, tt.ATOMIC_CAS})
# Loops of which the text does not say how often they turn.
_OPEN: Final = frozenset({flow.WHILE, flow.BR, flow.COND_BR})
_BYTES: Final = {"i1": 1, "i8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8, "index": 8}


class _UnknownError(Exception):
    """A loop whose turns are known at the call alone."""


def program_nanoseconds(module: Module) -> int:
    """About how many nanoseconds one program of the kernel takes; 0 where its loops do not say how often they turn."""
    known: dict[str, float] = {}
    try:
        for symbol in callees_first(module):
            blocks = [block for region in module.functions[symbol].regions for block in region.blocks]
            known[symbol] = sum(_block(block, known) for block in blocks)
    except _UnknownError:
        return 0
    return max(1, min(round(_PROGRAM_NS + known[module.kernel]), _MOST_NS))


def _block(block: Block, known: dict[str, float]) -> float:
    return min(sum(_operation(operation, known) for operation in block.operations), float(_MOST_NS))


def _operation(operation: Operation, known: dict[str, float]) -> float:
    name = operation.name
    if name in _OPEN:
        raise _UnknownError
    if name == tt.CALL:
        if operation.callee not in known:  # it calls itself
            raise _UnknownError
        return known[operation.callee]
    inside = sum(_block(block, known) for region in operation.regions for block in region.blocks)
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
    elements = max((one.elements for one in types if one.tensor), default=0)
    if operation.regions:  # a reduction or a scan: its region is scalar code for each element
        return elements * (_STEP_NS + inside * _STEP_NS / _SCALAR_NS)
    if not any(value.type.tensor for value in operation.results):
        return _SCALAR_NS if own_cost(operation) else 0.0
    if any(value.type.pointer for value in operation.results) or _is_index(operation.results[0]):
        return 0.0  # addresses mostly leave the innermost loop
    return _STEP_NS * elements * own_cost(operation)


def _access(operation: Operation) -> float:
    pointer = operation.operands[0].type
    if operation.name in _ATOMICS or not pointer.tensor:
        return _PLACE_NS * max(1, pointer.elements)
    return _BYTE_NS * pointer.elements * _bytes(pointer)


def _bytes(pointer: Type) -> int:
    return _BYTES.get(pointer.element, 1)


def _is_index(value: Value) -> bool:
    """Whether a tensor is of numbers that address, or compare, places: 32-bit integers and what masks are made of."""
    return value.type.element in ("i1", "i32", "i64")


def _turns(loop: Operation) -> float:
    bounds = [constant_scalar(value) for value in loop.operands[:3]]
    if any(type(bound) is not int for bound in bounds):
        raise _UnknownError
    first, last, step = cast("list[int]", bounds)
    return max(0, -((first - last) // step)) if step > 0 else 0

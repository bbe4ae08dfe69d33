"""The analysis of affine values: functions of the tile's indices, found from the structure alone."""

from __future__ import annotations

from silo.backends.cpu.analysis.values import is_unit_reshape, scalar_source
from silo.backends.cpu.operations import arith, tt
from silo.backends.cpu.operations.table import DOTS, VIEWS
from silo.sources.triton.ssa import Value

__all__ = ["is_index_only", "is_range_mask", "is_structurally_affine", "unit_axis"]

_SUMS = frozenset({arith.ADDI, arith.SUBI, tt.ADDPTR})


def is_structurally_affine(value: Value, offsets: frozenset[Value] = frozenset(), *, wrapped: bool = False) -> bool:
    """Whether ``value`` is uniform base + sum of uniform coefficient x index.

    ``offsets`` are carried values known to be affine themselves (a start plus a uniform offset). With ``wrapped``,
    ``x % n`` counts as ``x``: the code that uses that must check at run time that x does not reach n.
    """
    if not value.type.tensor or value in offsets or scalar_source(value) is not None:
        return True
    operation = value.owner
    if operation is None:
        return False
    if operation.name == tt.MAKE_RANGE:
        return True
    if operation.name in VIEWS:
        if operation.name == tt.RESHAPE and not is_unit_reshape(operation):
            return False
        return is_structurally_affine(operation.operands[0], offsets, wrapped=wrapped)
    if operation.name in _SUMS or operation.name == arith.EXTSI:
        return all(is_structurally_affine(operand, offsets, wrapped=wrapped) for operand in operation.operands)
    if operation.name == arith.REMSI and wrapped:
        value, modulus = operation.operands
        return scalar_source(modulus) is not None and is_structurally_affine(value, offsets, wrapped=True)
    if operation.name == arith.MULI:
        uniform = any(scalar_source(operand) is not None for operand in operation.operands)
        return uniform and all(
            is_structurally_affine(operand, offsets, wrapped=wrapped) for operand in operation.operands
        )
    return False


def unit_axis(pointer: Value) -> int | None:
    """The one axis along which successive elements of ``pointer`` are successive in memory; None where none is known.

    Axes of extent 1 do not count.
    """
    steps = _steps(pointer)
    found = [axis for axis, extent in enumerate(pointer.type.shape) if steps[axis] == 1 and extent != 1]
    return found[0] if len(found) == 1 else None


def _steps(value: Value) -> tuple[int | None, ...]:
    """By how much ``value`` goes up along each axis; None where that is not known."""
    shape = value.type.shape
    unknown = (None,) * len(shape)
    if scalar_source(value) is not None:
        return (0,) * len(shape)
    operation = value.owner
    if operation is None:
        return unknown
    match operation.name:
        case arith.EXTSI:
            return _steps(operation.operands[0])
        case tt.MAKE_RANGE:
            return (1,)
        case tt.EXPAND_DIMS:
            axis, inner = operation.attributes["axis"], _steps(operation.operands[0])
            assert isinstance(axis, int)
            return (*inner[:axis], 0, *inner[axis:])
        case tt.BROADCAST:
            before = operation.operands[0].type.shape
            inner = _steps(operation.operands[0])
            return tuple(step if same == now else 0 for step, same, now in zip(inner, before, shape, strict=True))
        case tt.TRANS:
            order, inner = operation.attributes["order"], _steps(operation.operands[0])
            assert isinstance(order, tuple)
            return tuple(inner[axis] if isinstance(axis, int) else None for axis in order)
        case arith.ADDI | arith.SUBI | tt.ADDPTR:
            sign = -1 if operation.name == arith.SUBI else 1
            left, right = (_steps(operand) for operand in operation.operands)
            pairs = zip(left, right, strict=True)
            return tuple(None if a is None or b is None else a + sign * b for a, b in pairs)
        case arith.MULI:
            left, right = (_steps(operand) for operand in operation.operands)
            return tuple(0 if a == b == 0 else None for a, b in zip(left, right, strict=True))
        case _:
            return unknown


def is_range_mask(mask: Value | None, offsets: frozenset[Value] = frozenset()) -> bool:
    """Whether ``mask`` is a conjunction of signed comparisons of affine values, so that one test can show it holds."""
    if mask is None or scalar_source(mask) is not None:
        return True
    operation = mask.owner
    if operation is None:
        return False
    if operation.name in VIEWS or operation.name == arith.ANDI:
        return all(is_range_mask(operand, offsets) for operand in operation.operands)
    if operation.name != arith.CMPI or operation.attributes["predicate"] not in {2, 3, 4, 5}:
        return False
    return all(is_structurally_affine(operand, offsets) for operand in operation.operands)


def is_index_only(value: Value | None) -> bool:
    """Whether evaluating ``value`` reads no memory: only scalars, ranges and arithmetic on them."""
    seen: set[Value] = set()
    pending = [] if value is None else [value]
    while pending:
        visited = pending.pop()
        if visited in seen or not visited.type.tensor:
            continue
        seen.add(visited)
        operation = visited.owner
        if operation is None or operation.regions or operation.name in DOTS | {tt.LOAD}:
            return False
        pending.extend(operation.operands)
    return True

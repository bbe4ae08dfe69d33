"""The analysis of affine values: functions of the tile's indices, found from the structure alone."""

from __future__ import annotations

from silo.backends.cpu.analysis.values import is_unit_reshape, scalar_source
from silo.backends.cpu.operations import arith, tt
from silo.backends.cpu.operations.table import DOTS, VIEWS
from silo.sources.triton.ssa import Value

__all__ = ["is_index_only", "is_range_mask", "is_structurally_affine"]

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

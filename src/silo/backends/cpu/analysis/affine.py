"""Whether a value is an affine function of the tile's indices, decided from the structure alone."""

from __future__ import annotations

from silo.backends.cpu.analysis.values import VIEWS, is_unit_reshape, scalar_source
from silo.sources.triton.ssa import Value

__all__ = ["is_index_only", "is_structurally_affine"]

_SUMS = frozenset({"arith.addi", "arith.subi", "tt.addptr"})


def is_structurally_affine(value: Value, offsets: frozenset[Value] = frozenset()) -> bool:
    """Whether ``value`` is uniform base + sum of uniform coefficient x index.

    ``offsets`` are carried values known to be affine themselves (a start plus a uniform offset).
    """
    if not value.type.tensor or value in offsets or scalar_source(value) is not None:
        return True
    operation = value.owner
    if operation is None:
        return False
    if operation.name == "tt.make_range":
        return True
    if operation.name in VIEWS:
        if operation.name == "tt.reshape" and not is_unit_reshape(operation):
            return False
        return is_structurally_affine(operation.operands[0], offsets)
    if operation.name in _SUMS or operation.name == "arith.extsi":
        return all(is_structurally_affine(operand, offsets) for operand in operation.operands)
    if operation.name == "arith.muli":
        left, right = operation.operands
        uniform = scalar_source(left) is not None or scalar_source(right) is not None
        return uniform and is_structurally_affine(left, offsets) and is_structurally_affine(right, offsets)
    return False


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
        if operation is None or operation.regions or operation.name in {"tt.load", "tt.dot"}:
            return False
        pending.extend(operation.operands)
    return True

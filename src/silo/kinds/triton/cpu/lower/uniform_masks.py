"""Merges the conditions of a mask that are the same for a whole row into a comparison that varies along the row.

gcc needs about 30 scalar instructions to copy a bool that is the same for all lanes into a vector. So such a condition
becomes part of the comparison's bound: ``(i < n) & same`` becomes ``i < bound``. If ``same`` is true, ``bound`` is
``n``. If ``same`` is false, ``bound`` is the least 32-bit integer, and no ``i`` is below it.
"""

from __future__ import annotations

from collections.abc import Callable

from silo.kinds.triton.cpu.lower.index import Index
from silo.kinds.triton.cpu.lower.nest_loops import NestLoops, conjunction
from silo.kinds.triton.front.operations import arith
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = ["joined_mask"]

# Predicates of arith.cmpi, as MLIR numbers them; and the bounds that no 32-bit integer is below or above.
_LESS, _GREATER, _AT_LEAST = 2, 4, 5
_NEVER_LESS, _NEVER_GREATER = "(-2147483647 - 1)", "2147483647"
_MOST = 32  # a mask of more conditions stays as it is


def joined_mask(
    nest: NestLoops, value_of: Callable[[Value, Index], str], operation: Operation, index: Index
) -> str | None:
    """The C text of a mask whose uniform conditions are merged into one of its comparisons.

    ``operation`` is the mask, an arith.andi of masks at ``index``. A condition is uniform if it is the same for the
    whole innermost loop. Returns None if no condition is uniform, if no other condition is a comparison that
    :func:`_bounded` supports, or if the mask has more than ``_MOST`` conditions.
    """
    conditions = _conditions(nest, operation, index)
    if len(conditions) > _MOST:
        return None
    names = [value_of(value, at) for value, at in conditions]
    uniform = [name for name in dict.fromkeys(names) if nest.level(name) < nest.depth]
    varying = [place for place, name in zip(conditions, names, strict=True) if nest.level(name) == nest.depth]
    if not uniform or not varying:
        return None
    for place in varying:
        if (bounded := _bounded(nest, value_of, place, uniform)) is not None:
            others = [value_of(value, at) for value, at in varying if (value, at) != place]
            return " & ".join([f"({bounded})", *(f"({name})" for name in dict.fromkeys(others))])
    return None


def _conditions(nest: NestLoops, operation: Operation, index: Index) -> list[tuple[Value, Index]]:
    """The conditions of a conjunction, each with its index; nested conjunctions are split, and views are followed."""
    found: list[tuple[Value, Index]] = []
    pending = [(operand, index) for operand in reversed(operation.operands)]
    while pending:
        value, at = pending.pop()
        value = nest.scope.resolve(value)
        parts = conjunction(value, at) if nest.scope.buffer(value) is None else []
        pending.extend(reversed(parts))
        if not parts:
            found.append((value, at))
    return found


def _bounded(
    nest: NestLoops, value_of: Callable[[Value, Index], str], place: tuple[Value, Index], uniform: list[str]
) -> str | None:
    """The C text of a condition: the comparison ``place`` (a value and its index) and all of ``uniform`` are true.

    None unless ``place`` is ``i < bound``, ``i > bound`` or ``i >= 0``: ``i`` is a 32-bit integer that varies along the
    innermost loop, and ``bound`` does not vary.
    """
    value, at = place
    compare = value.owner
    if compare is None or compare.name != arith.CMPI or compare.operands[0].type.element != "i32":
        return None
    left, right = (value_of(operand, at) for operand in compare.operands)
    predicate = compare.attributes["predicate"]
    if nest.level(left) < nest.depth:
        left, right = right, left
        predicate = {_LESS: _GREATER, _GREATER: _LESS}.get(predicate) if isinstance(predicate, int) else None
    if nest.level(left) < nest.depth or nest.level(right) == nest.depth:
        return None
    if predicate == _AT_LEAST and right == "((int32_t)0)":
        predicate, right = _GREATER, "-1"
    if predicate not in {_LESS, _GREATER}:
        return None
    never, sign = (_NEVER_LESS, "<") if predicate == _LESS else (_NEVER_GREATER, ">")
    bound = nest.put("int32_t", f"{' & '.join(uniform)} ? {right} : {never}", nest.level(*uniform, right))
    return f"{left} {sign} {bound}"

"""Finds which elements of a matrix product are used, from the masks of the stores of its accumulator."""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.cpu.analysis.affine import is_range_mask
from silo.kinds.triton.cpu.analysis.value_properties import store_parts
from silo.kinds.triton.front.operations import flow, tt
from silo.kinds.triton.front.operations.operation_table import RENDERED
from silo.kinds.triton.front.ssa import Block, Operation, Value

__all__ = ["seen_masks"]


@dataclass(frozen=True, slots=True)
class _Reached:
    """Where the elements of a value end up: the masks of the stores that write them, and the loops that carry them."""

    masks: tuple[Value, ...]
    loops: frozenset[Operation]


def seen_masks(sums: Value, loop: Operation) -> tuple[Value, ...]:
    """Returns masks such that every used element of ``sums`` has at least one true mask.

    ``sums`` are the results of a dot in ``loop``. The masks are conjunctions of comparisons whose scalars are computed
    before the loop begins, and have the same values at the stores. The result is () if all elements may be used, or if
    the masks are unknown.
    """
    reached = _reached(sums)
    if reached is None or not all(is_range_mask(mask) for mask in reached.masks):
        return ()
    scalars = {scalar for mask in reached.masks for scalar in _scalars(mask)}
    if not all(_is_there(scalar, loop) and not _is_in(scalar, reached.loops) for scalar in scalars):
        return ()
    return reached.masks


def _reached(sums: Value) -> _Reached | None:
    """The stores that the elements of ``sums`` reach at their own index.

    None if an element may be used in any other way.
    """
    masks: list[Value] = []
    loops: set[Operation] = set()
    seen: set[Value] = set()
    pending = [sums]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for user in value.uses:
            places = [index for index, operand in enumerate(user.operands) if operand is value]
            following = _following(user, value, places, masks, loops)
            if following is None:
                return None
            pending += following
    return _Reached(tuple(dict.fromkeys(masks)), frozenset(loops))


def _following(
    user: Operation, value: Value, axes: list[int], masks: list[Value], loops: set[Operation]
) -> list[Value] | None:
    """The values that ``user`` computes element by element from ``value``; None for any other use of ``value``.

    A store adds its mask to ``masks``, and the end of a loop's body adds the loop to ``loops``.
    """
    if user.name == tt.STORE:
        _, _, mask = store_parts(user)
        if axes != [1] or mask is None:
            return None
        masks.append(mask)
        return []
    if user.name == tt.DOT:
        return [user.result] if axes == [2] else None
    if user.name in RENDERED:
        same = all(result.type.shape == value.type.shape for result in user.results)
        return list(user.results) if same else None
    if user.name == flow.FOR:
        if min(axes) < 3:
            return None
        arguments = user.regions[0].blocks[0].arguments
        return [alias for position in axes for alias in (user.results[position - 3], arguments[position - 2])]
    if user.name != flow.YIELD or user.block is None or user.block.region is None:
        return None
    owner = user.block.region.owner
    if owner is None or owner.name not in {flow.FOR, flow.IF}:
        return None
    values = [owner.results[position] for position in axes]
    if owner.name == flow.FOR:
        loops.add(owner)
        values += [owner.regions[0].blocks[0].arguments[position + 1] for position in axes]
    return values


def _scalars(mask: Value) -> set[Value]:
    """The scalars from which ``mask`` is computed."""
    scalars: set[Value] = set()
    seen: set[Value] = set()
    pending = [mask]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if not value.type.tensor:
            scalars.add(value)
        elif value.owner is not None:
            pending += value.owner.operands
    return scalars


def _is_there(value: Value, operation: Operation) -> bool:
    """Whether ``value`` is computed before every run of ``operation``."""
    block = value.owner.block if value.owner is not None else value.block
    inner: Operation | None = operation
    while inner is not None and inner.block is not None:
        if inner.block is block:
            operations = inner.block.operations
            return value.owner is None or operations.index(value.owner) < operations.index(inner)
        inner = inner.block.region.owner if inner.block.region is not None else None
    return False


def _is_in(value: Value, loops: frozenset[Operation]) -> bool:
    """Whether ``value`` is computed inside one of ``loops``."""
    block: Block | None = value.owner.block if value.owner is not None else value.block
    while block is not None and block.region is not None and block.region.owner is not None:
        if block.region.owner in loops:
            return True
        block = block.region.owner.block
    return False

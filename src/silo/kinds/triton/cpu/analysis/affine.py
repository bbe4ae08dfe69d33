"""Finds values that are affine functions of a tile's indices, from the operations that compute the values."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.value_properties import fold, is_unit_reshape, remembered, scalar_source
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.operation_table import DOTS, VIEWS
from silo.kinds.triton.front.ssa import Value

__all__ = ["is_index_only", "is_range_mask", "is_structurally_affine", "unit_axis"]

_SUMS = frozenset({arith.ADDI, arith.SUBI, tt.ADDPTR})
# Operations for which the increments of the operands along each axis determine the increments of the result.
_STEPPING = _SUMS | {arith.EXTSI, arith.MULI, tt.EXPAND_DIMS, tt.BROADCAST, tt.TRANS}
# The most terms of an affine value: a C compiler may refuse more than 256 nested parentheses, and every two terms need
# one pair.
_MOST_TERMS = 400


def is_structurally_affine(value: Value, offsets: frozenset[Value] = frozenset(), *, wrapped: bool = False) -> bool:
    """Returns whether ``value`` is a base plus a sum of indices, each multiplied by a coefficient.

    The base and the coefficients must be uniform (the same for all elements of the tile). ``offsets`` are loop-carried
    values that are known to be affine (a start plus a uniform offset). With ``wrapped``, ``x % n`` counts as ``x``:
    code that relies on this must check at run time that x does not reach n. A value of more than ``_MOST_TERMS`` terms
    does not count as affine, because its text would be too long.
    """

    def parts(inner: Value) -> list[Value]:
        return _affine_parts(inner, offsets, wrapped=wrapped) or []

    def terms(inner: Value, counts: list[int]) -> int:
        if _affine_parts(inner, offsets, wrapped=wrapped) is None:
            return _MOST_TERMS + 1
        return min(1 + sum(counts), _MOST_TERMS + 1)

    return fold(value, parts, terms, remembered(("terms", offsets, wrapped))) <= _MOST_TERMS


def _affine_parts(value: Value, offsets: frozenset[Value], *, wrapped: bool) -> list[Value] | None:
    """The operands of ``value`` that must be affine for ``value`` to be affine; None if ``value`` cannot be affine."""
    if not value.type.tensor or value in offsets or scalar_source(value) is not None:
        return []
    operation = value.owner
    if operation is None:
        return None
    operands = operation.operands
    if operation.name == tt.MAKE_RANGE:
        return []
    if operation.name in VIEWS:
        return None if operation.name == tt.RESHAPE and not is_unit_reshape(operation) else operands[:1]
    if operation.name in _SUMS or operation.name == arith.EXTSI:
        return operands
    if operation.name == arith.REMSI and wrapped:
        return operands[:1] if scalar_source(operands[1]) is not None else None
    if operation.name == arith.MULI:
        return operands if any(scalar_source(operand) is not None for operand in operands) else None
    return None


def unit_axis(pointer: Value) -> int | None:
    """The axis along which successive elements of ``pointer`` have successive addresses; None if no axis is known.

    Axes of extent 1 do not count.
    """
    steps = _steps(pointer)
    axes = [axis for axis, extent in enumerate(pointer.type.shape) if steps[axis] == 1 and extent != 1]
    return axes[0] if len(axes) == 1 else None


def _steps(root: Value) -> tuple[int | None, ...]:
    """The increment of ``root`` from one element to the next along each axis.

    None for an axis whose increment is unknown.
    """
    return fold(root, _stepping_parts, _steps_of, remembered("steps"))


def _stepping_parts(value: Value) -> list[Value]:
    operation = value.owner
    if operation is None or operation.name not in _STEPPING or scalar_source(value) is not None:
        return []
    return operation.operands


def _steps_of(value: Value, inner: list[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    shape = value.type.shape
    if scalar_source(value) is not None:
        return (0,) * len(shape)
    unknown = (None,) * len(shape)
    operation = value.owner
    if operation is None:
        return unknown
    match operation.name:
        case arith.EXTSI:
            return inner[0]
        case tt.MAKE_RANGE:
            return (1,)
        case tt.EXPAND_DIMS:
            axis = operation.attributes["axis"]
            assert isinstance(axis, int)
            return (*inner[0][:axis], 0, *inner[0][axis:])
        case tt.BROADCAST:
            before = operation.operands[0].type.shape
            return tuple(step if same == now else 0 for step, same, now in zip(inner[0], before, shape, strict=True))
        case tt.TRANS:
            order = operation.attributes["order"]
            assert isinstance(order, tuple)
            return tuple(inner[0][axis] if isinstance(axis, int) else None for axis in order)
        case arith.ADDI | arith.SUBI | tt.ADDPTR:
            sign = -1 if operation.name == arith.SUBI else 1
            pairs = zip(*inner, strict=True)
            return tuple(None if a is None or b is None else a + sign * b for a, b in pairs)
        case arith.MULI:
            return tuple(0 if a == b == 0 else None for a, b in zip(*inner, strict=True))
        case _:
            return unknown


def is_range_mask(mask: Value | None, offsets: frozenset[Value] = frozenset()) -> bool:
    """Whether ``mask`` is a conjunction of signed comparisons of affine values.

    For such a mask, one test of the extreme values can show that it is true for every element of a tile.
    """

    def holds(value: Value, parts: list[bool]) -> bool:
        if scalar_source(value) is not None or _masks_of(value):
            return all(parts)
        operation = value.owner
        if operation is None or operation.name != arith.CMPI or operation.attributes["predicate"] not in {2, 3, 4, 5}:
            return False
        return all(is_structurally_affine(operand, offsets) for operand in operation.operands)

    return mask is None or fold(mask, _masks_of, holds, remembered(("range mask", offsets)))


def _masks_of(mask: Value) -> list[Value]:
    """The operands of ``mask`` that must be range masks for ``mask`` to be a range mask."""
    operation = mask.owner
    if operation is None or scalar_source(mask) is not None:
        return []
    return operation.operands if operation.name in VIEWS or operation.name == arith.ANDI else []


def is_index_only(value: Value | None) -> bool:
    """Whether evaluating ``value`` reads no memory, because it is made only of scalars, ranges and arithmetic."""

    def reads_nothing(inner: Value, parts: list[bool]) -> bool:
        return not _reads(inner) and all(parts)

    return value is None or fold(value, _computed_of, reads_nothing, remembered("index only"))


def _computed_of(value: Value) -> list[Value]:
    operation = value.owner
    return [] if operation is None or not value.type.tensor or _reads(value) else operation.operands


def _reads(value: Value) -> bool:
    """Whether the operation that makes the tensor ``value`` reads it from memory."""
    operation = value.owner
    if not value.type.tensor:
        return False
    return operation is None or bool(operation.regions) or operation.name in DOTS | {tt.LOAD}

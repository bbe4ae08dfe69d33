"""Joins the two integer atomics that Triton emits for a minimum or maximum of floats into one atomic.

Triton's front end writes ``tl.atomic_max`` of a float as two atomics: a signed maximum of the bits of the values whose
sign is clear, and an unsigned minimum of the bits of the values whose sign is set. If the old values are unused, one
atomic can do both, by comparing bits in the order of the floats: every float with a clear sign is greater than every
float with a set sign, and of two floats with a set sign, the one with the smaller unsigned bits is greater.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.ssa_rewriting import drop
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.cpu.atomics import FLOAT_MAX, FLOAT_MIN
from silo.kinds.triton.front.ssa import Module, Operation, Value

__all__ = ["join_float_extremes"]

_EQUAL, _NOT_EQUAL = 0, 1  # predicates of arith.cmpi
# Maps Triton's numbers of a pair of integer atomics to the float operation that the pair makes; the first atomic is for
# values with a clear sign, the second for values with a set sign. A signed maximum (6) and an unsigned minimum (9) make
# a float maximum, a signed minimum (7) and an unsigned maximum (8) a float minimum.
_PAIRS: dict[tuple[object, object], int] = {(6, 9): FLOAT_MAX, (7, 8): FLOAT_MIN}
_KEPT = ("sem", "scope")
_BITS = {"i32": 31, "i64": 63}


def join_float_extremes(module: Module) -> None:
    """Joins each pair of integer atomics in ``module`` that makes a float minimum or maximum, in place."""
    joined: set[Operation] = set()
    for operation in [candidate for candidate in module.walk() if candidate.name == tt.ATOMIC_RMW]:
        partner = None if operation in joined else _partner(operation)
        if partner is not None:
            other, kind, mask = partner
            joined.add(other)
            _join(operation, other, kind, mask)


def _partner(first: Operation) -> tuple[Operation, int, Value | None] | None:
    """Finds the atomic for values with a set sign that completes ``first``, the atomic for values with a clear sign.

    Returns that atomic, the kind of the joined atomic, and the joined atomic's mask (None for no mask); or None if
    ``first`` is not half of such a pair.
    """
    block = first.block
    if block is None or first.result.uses or len(first.operands) != 3:
        return None
    position = block.operations.index(first)
    for other in block.operations[position + 1 :]:
        if other.name == tt.ATOMIC_RMW:
            break
        if other.regions or other.name in {tt.LOAD, tt.STORE, tt.CALL, tt.ATOMIC_CAS, tt.RETURN}:
            return None  # the program may observe memory between the two atomics
    else:
        return None
    kind = _PAIRS.get((first.attributes.get("atomic_rmw_op"), other.attributes.get("atomic_rmw_op")))
    if kind is None or other.result.uses or len(other.operands) != 3:
        return None
    if first.operands[:2] != other.operands[:2] or any(
        first.attributes.get(name) != other.attributes.get(name) for name in _KEPT
    ):
        return None
    sign = _sign_of(first.operands[1], other.operands[2])
    if sign is None:
        return None
    flag, mask = sign
    clear = _without(first.operands[2], mask)
    return (other, kind, mask) if clear is not None and _is_not(clear, flag) else None


def _sign_of(value: Value, mask: Value) -> tuple[Value, Value | None] | None:
    """Splits ``mask`` into the test for the sign of ``value`` and the rest; None if it contains no such test."""
    if _is_sign(mask, value):
        return mask, None
    operation = mask.owner
    if operation is None or operation.name != arith.ANDI:
        return None
    left, right = operation.operands
    if _is_sign(right, value):
        return right, left
    return (left, right) if _is_sign(left, value) else None


def _is_sign(flag: Value, value: Value) -> bool:
    test = flag.owner
    shift_bits = _BITS.get(value.type.element)
    if shift_bits is None or test is None or test.name != arith.CMPI or test.attributes["predicate"] != _NOT_EQUAL:
        return False
    shift = test.operands[0].owner
    return (
        constant_scalar(test.operands[1]) == 0
        and shift is not None
        and shift.name == arith.SHRUI
        and shift.operands[0] is value
        and constant_scalar(shift.operands[1]) == shift_bits
    )


def _without(mask: Value, remainder: Value | None) -> Value | None:
    """``mask`` without its operand ``remainder``; None if ``remainder`` is not part of ``mask``."""
    if remainder is None:
        return mask
    operation = mask.owner
    if operation is None or operation.name != arith.ANDI or remainder not in operation.operands:
        return None
    left, right = operation.operands
    return right if left is remainder else left


def _is_not(flag: Value, other: Value) -> bool:
    operation, test = flag.owner, other.owner
    if operation is None or test is None:
        return False
    if operation.name == arith.CMPI:
        return operation.attributes["predicate"] == _EQUAL and operation.operands == test.operands
    if operation.name != arith.XORI or other not in operation.operands:
        return False
    left, right = operation.operands
    return constant_scalar(right if left is other else left) in {True, -1}


def _join(first: Operation, other: Operation, kind: int, mask: Value | None) -> None:
    block = first.block
    assert block is not None
    drop(block, other)
    first.attributes = {**first.attributes, "atomic_rmw_op": kind}
    first.operands[2].uses.remove(first)
    if mask is None:
        del first.operands[2]
    else:
        first.operands[2] = mask
        mask.uses.append(first)

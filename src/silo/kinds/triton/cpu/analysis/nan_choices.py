"""Splits each select that keeps a NaN into two selects: gcc vectorises chains of selects only in the split form.

Triton code writes a maximum that keeps a NaN as ``tl.where((a > b) | (a != a), a, b)``, for example PyTorch Inductor's
``triton_helpers.maximum``. If one such select takes the result of another, gcc 12 compiles both to branches for each
element, which the CPU predicts wrongly if the data are random.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.orders import compares
from silo.kinds.triton.cpu.analysis.ssa_rewriting import insert, set_operand
from silo.kinds.triton.front.operations import arith
from silo.kinds.triton.front.ssa import Module, Operation, Value

__all__ = ["split_nan_choices"]

# Predicates of arith.cmpf, by its definition in MLIR: unequal and unordered, and all of them.
_NAN_TESTS, _ANY = {13, 14}, range(16)


def split_nan_choices(module: Module) -> None:
    """Replaces ``where((a > b) | (a != a), a, b)`` by ``where(a != a, a, where(a > b, a, b))``, in place.

    Any other comparison of ``a`` and ``b`` may stand for ``a > b``. The results are the same, bit by bit.
    """
    for select in [operation for operation in module.walk() if operation.name == arith.SELECT]:
        either, chosen, other = select.operands
        if either.owner is None or either.owner.name != arith.ORI:
            continue
        for compare, is_nan in (either.owner.operands, either.owner.operands[::-1]):
            ordering, test = compare.owner, is_nan.owner
            if test is None or not compares(test, chosen, chosen, _NAN_TESTS) or ordering is None:
                continue
            if compares(ordering, chosen, other, _ANY) or compares(ordering, other, chosen, _ANY):
                _split(select, compare, is_nan)
                break


def _split(select: Operation, compare: Value, is_nan: Value) -> None:
    _, chosen, other = select.operands
    assert select.block is not None
    result = Value(f"{select.result.name}_unless_nan", select.result.type)
    inner = Operation(arith.SELECT, [compare, chosen, other], [result], {}, location=select.location)
    insert(select.block, select.block.operations.index(select), inner)
    set_operand(select, 0, is_nan)
    set_operand(select, 2, result)

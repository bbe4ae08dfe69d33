"""Splits each select that keeps a NaN into two selects: gcc vectorises chains of selects only in the split form.

Triton code writes a maximum that keeps a NaN as ``tl.where((a > b) | (a != a), a, b)``, for example PyTorch Inductor's
``triton_helpers.maximum``. If one such select takes the result of another, gcc 12 compiles both to branches for each
element, which the CPU predicts wrongly if the data are random.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.ssa_rewriting import insert
from silo.kinds.triton.front.operations import arith
from silo.kinds.triton.front.ssa import Module, Operation, Value

__all__ = ["split_nan_choices"]

_UNEQUAL, _UNORDERED = 13, 14  # predicates of arith.cmpf, by its definition in MLIR


def split_nan_choices(module: Module) -> None:
    """Replaces ``where((a > b) | (a != a), a, b)`` by ``where(a != a, a, where(a > b, a, b))``, in place.

    Any other comparison of ``a`` and ``b`` may stand for ``a > b``. The results are the same, bit by bit.
    """
    for select in [operation for operation in module.walk() if operation.name == arith.SELECT]:
        either = select.operands[0].owner
        if either is None or either.name != arith.ORI:
            continue
        _, chosen, other = select.operands
        for compare, is_nan in (either.operands, either.operands[::-1]):
            if _compares(is_nan, chosen, chosen, {_UNEQUAL, _UNORDERED}) and (
                _compares(compare, chosen, other) or _compares(compare, other, chosen)
            ):
                _split(select, compare, is_nan)
                break


def _compares(value: Value, left: Value, right: Value, predicates: set[int] | None = None) -> bool:
    """Whether ``value`` compares the floats ``left`` and ``right`` in this order, by one of ``predicates`` if given."""
    compare = value.owner
    return (
        compare is not None
        and compare.name == arith.CMPF
        and (compare.operands[0] is left and compare.operands[1] is right)
        and (predicates is None or compare.attributes["predicate"] in predicates)
    )


def _split(select: Operation, compare: Value, is_nan: Value) -> None:
    either, chosen, other = select.operands
    assert select.block is not None
    result = Value(f"{select.result.name}_unless_nan", select.result.type)
    inner = Operation(arith.SELECT, [compare, chosen, other], [result], {}, location=select.location)
    insert(select.block, select.block.operations.index(select), inner)
    for position, (old, new) in enumerate(((either, is_nan), (chosen, chosen), (other, result))):
        if new is not old:
            old.uses.remove(select)
            select.operands[position] = new
            new.uses.append(select)

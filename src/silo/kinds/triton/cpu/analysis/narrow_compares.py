"""Replaces comparisons of integers that were widened from 32 bits by comparisons of the 32-bit integers.

A vector holds twice as many integers of 32 bits as of 64 bits.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.ssa_rewriting import insert, set_operand
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar, scalar_source
from silo.kinds.triton.front.operations import arith
from silo.kinds.triton.front.ssa import Attribute, Dense, Module, Operation, Type, Value

__all__ = ["narrow_compares"]

_SIGNED = range(6)  # the predicates of arith.cmpi that compare equality or signed order, by its definition in MLIR
_NARROW = "i32"
_LEAST, _MOST = -(2**31), 2**31 - 1


def narrow_compares(module: Module) -> None:
    """Replaces, in place, each comparison of widened 32-bit integers with a constant of 32 bits or with each other.

    The results are the same, because a sign extension keeps the order. PyTorch Inductor, for example, converts indices
    to 64 bits before it compares them in the mask of a padding.
    """
    for compare in [operation for operation in module.walk() if operation.name == arith.CMPI]:
        if compare.attributes["predicate"] not in _SIGNED:
            continue
        sources = [_widened(operand) for operand in compare.operands]
        numbers = [_narrow_constant(operand) for operand in compare.operands]
        if not any(sources) or any(
            source is None and number is None for source, number in zip(sources, numbers, strict=True)
        ):
            continue
        for position, (source, number) in enumerate(zip(sources, numbers, strict=True)):
            new = source if source is not None or number is None else _constant(compare, position, number)
            assert new is not None
            set_operand(compare, position, new)


def _widened(value: Value) -> Value | None:
    """The 32-bit integer that ``value`` is the sign extension of; None for other values."""
    widening = value.owner
    if widening is None or widening.name != arith.EXTSI or widening.operands[0].type.element != _NARROW:
        return None
    return widening.operands[0]


def _narrow_constant(value: Value) -> int | None:
    """The constant that every element of ``value`` equals, if it fits in 32 bits; else None."""
    source = scalar_source(value)
    number = constant_scalar(source) if source is not None else None
    return number if isinstance(number, int) and _LEAST <= number <= _MOST else None


def _constant(compare: Operation, position: int, number: int) -> Value:
    """Returns a 32-bit constant, inserted before ``compare``, with the shape of the operand at ``position``."""
    old = compare.operands[position].type
    type_ = Type(_NARROW, old.shape, tensor=old.tensor, layout=old.layout)
    attribute: Attribute = Dense((number,), type_) if type_.tensor else number
    result = Value(f"{compare.result.name}_narrow{position}", type_)
    constant = Operation(arith.CONSTANT, [], [result], {"value": attribute}, location=compare.location)
    assert compare.block is not None
    insert(compare.block, compare.block.operations.index(compare), constant)
    return result

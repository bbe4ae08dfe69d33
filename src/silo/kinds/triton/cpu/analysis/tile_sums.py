"""Rewrites loops that accumulate tiles of which only a sum is used: each iteration adds the sum of its tile instead.

``total += tile`` in a loop and ``tl.sum(total, 1)`` after it become ``total += tl.sum(tile, 1)``; minima and maxima are
treated in the same way. A sum may be computed in any order, and an accumulator tile is memory that each iteration would
read and write.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.ssa_rewriting import insert, replace, set_operand
from silo.kinds.triton.cpu.analysis.value_properties import combining_operation, constant_scalar
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.operation_table import DOTS
from silo.kinds.triton.front.ssa import Attribute, Dense, Module, Operation, Value

__all__ = ["sum_tiles_first"]

_SUMS = frozenset({arith.ADDF, arith.ADDI})
_EXTREMES = frozenset(
    {
        arith.MAXNUMF,
        arith.MINNUMF,
        arith.MAXIMUMF,
        arith.MINIMUMF,
        arith.MAXSI,
        arith.MINSI,
        arith.MAXUI,
        arith.MINUI,
    }
)
_ELEMENTS = frozenset({"f32", "f64", "i32", "i64"})
# the fewest elements of a row: adding a shorter row to an accumulator tile costs less than summing the row
_LEAST_ROW = 64
# the texts of zero; -0.0 is left out, because the rewritten loop could then return a zero of the other sign
_ZEROS = frozenset({"0", "0.0"})


def sum_tiles_first(module: Module) -> None:
    """Moves reductions of accumulator tiles into the loops that accumulate the tiles, in place, if that is allowed."""
    for loop in list(module.walk()):
        if loop.name == flow.FOR:
            for index in range(len(loop.results)):
                _rewrite(loop, index)


def _rewrite(loop: Operation, index: int) -> None:
    initial, result = loop.operands[3 + index], loop.results[index]
    body = loop.regions[0].blocks[0]
    end = body.operations[-1]
    argument, yielded = body.arguments[1 + index], end.operands[index]
    adding, tile = yielded.owner, _added(argument, yielded)
    reduce = result.uses[0] if len(result.uses) == 1 else None
    if adding is None or tile is None or reduce is None or reduce.block is not loop.block or reduce.block is None:
        return
    start = constant_scalar(initial)
    if tile.owner is not None and tile.owner.name in DOTS:  # a dot adds to its accumulator in place
        return
    if adding.block is not body or yielded.uses != [end] or not _reduces(reduce, adding) or start is None:
        return
    if adding.name in _SUMS and str(start) not in _ZEROS:
        return
    # The reduction moves into the loop, and the loop carries the reduction's result instead of the tile.
    type_ = reduce.result.type
    total = reduce.result
    reduce.block.operations.remove(reduce)
    result.uses.clear()
    result.type = type_
    replace(total, result)
    first = Value(f"{initial.name}_sum", type_)
    attribute: Attribute = Dense((start,), type_) if type_.tensor else start
    assert loop.block is not None
    place_of_loop = loop.block.operations.index(loop)
    insert(loop.block, place_of_loop, Operation(arith.CONSTANT, [], [first], {"value": attribute}))
    set_operand(loop, 3 + index, first)
    before = body.operations.index(adding)
    reduce.operands[0] = tile
    partial = Value(f"{total.name}_part", type_)
    reduce.results[0] = partial
    insert(body, before, reduce)
    tile.uses.remove(adding)
    adding.operands = [argument, partial]
    partial.uses.append(adding)
    argument.type = yielded.type = type_


def _added(argument: Value, yielded: Value) -> Value | None:
    """The tile that an iteration combines with the carried tile ``argument``, if nothing else uses the carried tile."""
    adding = yielded.owner
    if adding is None or adding.name not in _SUMS | _EXTREMES or argument.uses != [adding]:
        return None
    others = [operand for operand in adding.operands if operand is not argument]
    return others[0] if len(others) == 1 and len(adding.operands) == 2 else None


def _reduces(reduce: Operation, adding: Operation) -> bool:
    """Whether ``reduce`` combines by the operation of ``adding``, along an axis that is worth summing in the loop."""
    if reduce.name != tt.REDUCE:
        return False
    combining, type_ = combining_operation(reduce), adding.result.type
    axis = reduce.attributes["axis"]
    if combining is None or combining.name != adding.name or type_.element not in _ELEMENTS or not type_.tensor:
        return False
    assert isinstance(axis, int)
    return len(type_.shape) <= 2 and (axis != len(type_.shape) - 1 or type_.shape[axis] >= _LEAST_ROW)

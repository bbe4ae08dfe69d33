"""Makes reductions and scans say the same whatever order their elements are combined in, as far as their types allow.

Both rewritings are of what Triton writes itself: its order of combining is free, and differs from one GPU to another.

- A running sum or product of a narrow type is carried in f32, and each result is rounded once, as sums of reductions
  are. Rounded at every element it would drift away with the length of the row.
- The place of an extreme (``tl.argmax``, ``tl.max(..., return_indices=True)``) ignores NaNs, as extremes alone do.
  Triton's own function takes the second of two elements unless the first is greater: a NaN then loses to what comes
  after it, and wins over all that came before.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.combining import combining_operation
from silo.kinds.triton.cpu.analysis.ssa_rewriting import cast, insert, replace
from silo.kinds.triton.cpu.analysis.value_walks import any_of
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.ssa import Block, Module, Operation, Type, Value

__all__ = ["free_orders"]

_NARROW = frozenset({"f16", "bf16"})
_SUMS = frozenset({arith.ADDF, arith.MULF})
_GREATER, _LESS, _UNORDERED = 2, 4, 14  # predicates of arith.cmpf; the last asks whether one of two is a NaN


def free_orders(module: Module) -> None:
    """Rewrite ``module`` in place."""
    for operation in list(module.walk()):
        if operation.name == tt.SCAN:
            _widen(operation)
        elif operation.name == tt.REDUCE:
            _ignore_nan(operation)


def _widen(scan: Operation) -> None:
    combining, block = combining_operation(scan), scan.block
    if combining is None or combining.name not in _SUMS or block is None:
        return
    source, result = scan.operands[0], scan.result
    if source.type.element not in _NARROW:
        return
    wide = Type("f32", source.type.shape, tensor=source.type.tensor)
    before = cast(block, arith.EXTF, source, wide, scan, after=False)
    source.uses.remove(scan)
    scan.operands[0] = before
    before.uses.append(scan)
    scan.results[0] = Value(f"{result.name}_wide", wide, scan)
    scalar = Type("f32")
    for value in (*scan.regions[0].blocks[0].arguments, combining.result):
        value.type = scalar
    replace(result, cast(block, arith.TRUNCF, scan.results[0], result.type, scan, after=True))


def _ignore_nan(reduce: Operation) -> None:
    """Let the first of two elements win where the second is a NaN, too."""
    block = reduce.regions[0].blocks[0]
    found = _choice(block)
    if found is None:
        return
    selects, chosen, second = found
    location = selects[0].location
    place = min(block.operations.index(select) for select in selects)
    is_nan, either = Value("nan", Type("i1")), Value("or_nan", Type("i1"))
    insert(
        block, place, Operation(arith.CMPF, [second, second], [is_nan], {"predicate": _UNORDERED}, location=location)
    )
    insert(block, place + 1, Operation(arith.ORI, [chosen, is_nan], [either], {}, location=location))
    for select in selects:
        chosen.uses.remove(select)
        select.operands[0] = either
        either.uses.append(select)


def _choice(block: Block) -> tuple[list[Operation], Value, Value] | None:
    """What a region selects by that keeps the first of two (number, place) pairs where its number is greater, or less.

    The two operations that select, their condition, and the second number; None for any other region.
    """
    if len(block.arguments) != 4 or not block.arguments[0].type.element.startswith(("f", "bf")):
        return None
    first, _, second, _ = block.arguments
    selects = [value.owner for value in block.operations[-1].operands]
    pairs = [[block.arguments[index], block.arguments[index + 2]] for index in range(2)]
    found = [
        select
        for select, pair in zip(selects, pairs, strict=True)
        if select is not None and select.name == arith.SELECT and select.block is block and select.operands[1:] == pair
    ]
    if len(found) != len(pairs) or found[0].operands[0] is not found[1].operands[0]:
        return None
    chosen = found[0].operands[0]
    return (found, chosen, second) if _is_greater(chosen, first, second, block) else None


def _is_greater(value: Value, first: Value, second: Value, block: Block) -> bool:
    """Whether ``value`` holds where the first number is greater (less), and elsewhere only where both are equal."""
    while (operation := value.owner) is not None and operation.block is block:
        if operation.name != arith.ORI:
            return _compares(operation, first, second, {_GREATER, _LESS})
        value, other = operation.operands
        if _is_tie(value, first, second, block):
            value, other = other, value
        if not _is_tie(other, first, second, block):
            return False
    return False


def _is_tie(root: Value, first: Value, second: Value, block: Block) -> bool:
    """Whether ``root`` holds only where both numbers are equal."""

    def parts(value: Value) -> list[Value] | None:
        operation = value.owner
        if operation is None or operation.block is not block:
            return []
        if operation.name == arith.ANDI:
            return operation.operands
        return None if _compares(operation, first, second, {1}) else []

    return any_of(root, parts)


def _compares(operation: Operation, first: Value, second: Value, predicates: set[int]) -> bool:
    return (
        operation.name == arith.CMPF
        and operation.attributes.get("predicate") in predicates
        and operation.operands == [first, second]
    )

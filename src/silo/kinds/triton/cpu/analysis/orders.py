"""Prepares operations whose order matters: reductions become independent of the order, memory accesses get fences."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from silo.kinds.triton.cpu.analysis.ssa_rewriting import cast, insert, replace, set_operand
from silo.kinds.triton.cpu.analysis.value_properties import any_of, combining_operation
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.further_dialects import FENCE, VOLATILE_LOAD
from silo.kinds.triton.front.operations.operation_table import ATOMICS, BARRIERS
from silo.kinds.triton.front.ssa import Block, Module, Operation, Type, Value

__all__ = ["compares", "free_orders", "jump_may_wait", "may_wait", "order_memory"]

# ---- Changes reductions and scans so that their results do not depend on the order of combining ----

_NARROW = frozenset({"f16", "bf16"})
_SUMS = frozenset({arith.ADDF, arith.MULF})
_GREATER, _LESS, _UNORDERED = 2, 4, 14  # predicates of arith.cmpf; _UNORDERED is true if an operand is a NaN


def free_orders(module: Module) -> None:
    """Widens scans of narrow floats, and lets reductions that select an element ignore NaNs, in place."""
    for operation in module.walk():
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
    set_operand(scan, 0, before)
    scan.results[0] = Value(f"{result.name}_wide", wide, scan)
    scalar = Type("f32")
    for value in (*scan.regions[0].blocks[0].arguments, combining.result):
        value.type = scalar
    replace(result, cast(block, arith.TRUNCF, scan.results[0], result.type, scan, after=True))


def _ignore_nan(reduce: Operation) -> None:
    """Changes the region of ``reduce`` so that the first of two elements also wins if the second is a NaN.

    Without this change, the result would depend on the order in which elements are combined.
    """
    block = reduce.regions[0].blocks[0]
    choice = _choice(block)
    if choice is None:
        return
    selects, chosen, second = choice
    location = selects[0].location
    position = min(block.operations.index(select) for select in selects)
    is_nan, either = Value("nan", Type("i1")), Value("or_nan", Type("i1"))
    insert(
        block, position, Operation(arith.CMPF, [second, second], [is_nan], {"predicate": _UNORDERED}, location=location)
    )
    insert(block, position + 1, Operation(arith.ORI, [chosen, is_nan], [either], {}, location=location))
    for select in selects:
        set_operand(select, 0, either)


def _choice(block: Block) -> tuple[list[Operation], Value, Value] | None:
    """Recognises a region that keeps that one of two (number, index) pairs whose number is greater (or less).

    Returns the two operations that select, their condition, and the second number; None for any other region.
    """
    if len(block.arguments) != 4 or not block.arguments[0].type.element.startswith(("f", "bf")):
        return None
    first, _, second, _ = block.arguments
    selects = [value.owner for value in block.operations[-1].operands]
    pairs = [[block.arguments[index], block.arguments[index + 2]] for index in range(2)]
    matching = [
        select
        for select, pair in zip(selects, pairs, strict=True)
        if select is not None and select.name == arith.SELECT and select.block is block and select.operands[1:] == pair
    ]
    if len(matching) != len(pairs) or matching[0].operands[0] is not matching[1].operands[0]:
        return None
    chosen = matching[0].operands[0]
    return (matching, chosen, second) if _is_greater(chosen, first, second, block) else None


def _is_greater(value: Value, first: Value, second: Value, block: Block) -> bool:
    """Whether ``value`` orders the two numbers of a region that keeps the greater (or the less) one.

    That is: ``value`` is true if ``first`` is greater (or less), and false if ``second`` is. For equal numbers
    ``value`` may be either.
    """
    while (operation := value.owner) is not None and operation.block is block:
        if operation.name != arith.ORI:
            return compares(operation, first, second, {_GREATER, _LESS})
        value, other = operation.operands
        if _is_tie(value, first, second, block):
            value, other = other, value
        if not _is_tie(other, first, second, block):
            return False
    return False


def _is_tie(root: Value, first: Value, second: Value, block: Block) -> bool:
    """Whether ``root`` is true only if both numbers are equal."""

    def parts(value: Value) -> list[Value] | None:
        operation = value.owner
        if operation is None or operation.block is not block:
            return []
        if operation.name == arith.ANDI:
            return operation.operands
        return None if compares(operation, first, second, {1}) else []

    return any_of(root, parts)


def compares(operation: Operation, first: Value, second: Value, predicates: Container[object]) -> bool:
    """Whether ``operation`` compares the floats ``first`` and ``second``, in this order, by one of ``predicates``."""
    return (
        operation.name == arith.CMPF
        and operation.attributes.get("predicate") in predicates
        and operation.operands == [first, second]
    )


# ---- Adds fences to memory accesses in kernels whose programs may wait for each other ----

_WATCHES = frozenset({VOLATILE_LOAD, tt.CALL, *ATOMICS})
# Operations that never occur in a loop that waits for another program.
_WORK = frozenset({tt.STORE, tt.DOT})


def order_memory(module: Module) -> None:
    """Renames volatile loads and adds fences, in place.

    A module stays unchanged if its programs cannot wait for each other, or if it already has fences.
    """
    if any(op.name in {FENCE, VOLATILE_LOAD} for op in module.walk()):
        return
    renamed = False
    for operation in module.walk():
        is_volatile = operation.name == tt.LOAD and operation.attributes.get("isVolatile")
        if is_volatile or operation.name == tt.ATOMIC_LOAD:
            operation.name, renamed = VOLATILE_LOAD, True
        elif operation.name == tt.ATOMIC_STORE:
            operation.name, renamed = tt.STORE, True
    if not renamed and not any(op.name in ATOMICS and _is_repeated(op) for op in module.walk()):
        return
    for block in _blocks(module):
        ordered: list[Operation] = []
        for operation in block.operations:
            if operation.name == tt.STORE or operation.name in BARRIERS:
                ordered.append(Operation(FENCE, [], [], {}, block=block, location=operation.location))
            if operation.name not in BARRIERS:
                ordered.append(operation)
        block.operations = ordered


def _blocks(module: Module) -> Iterator[Block]:
    pending = list(module.functions.values())
    while pending:
        operation = pending.pop()
        for region in operation.regions:
            yield from region.blocks
            pending.extend(op for block in region.blocks for op in block.operations)


def may_wait(loop: Operation) -> bool:
    """Whether an ``scf.while`` may wait for another program."""
    return _reads_and_waits(op for region in loop.regions for block in region.blocks for op in block.operations)


def jump_may_wait(block: Block, blocks: Sequence[Block]) -> bool:
    """Whether the jump at the end of ``block`` may close a loop in which a program waits for another program.

    ``blocks`` are the blocks of the function, in order.
    """
    order = {ordered: number for number, ordered in enumerate(blocks)}
    targets = [order[successor] for successor in block.operations[-1].successors if order[successor] <= order[block]]
    return any(
        _reads_and_waits(op for looped in blocks[target : order[block] + 1] for op in looped.operations)
        for target in targets
    )


def _reads_and_waits(operations: Iterable[Operation]) -> bool:
    waits = False
    pending = list(operations)
    while pending:
        operation = pending.pop()
        if operation.name in _WORK:
            return False
        waits = waits or operation.name in _WATCHES
        pending.extend(op for region in operation.regions for block in region.blocks for op in block.operations)
    return waits


def _is_repeated(operation: Operation) -> bool:
    """Whether ``operation`` is inside a loop that runs until a condition holds (``scf.while``)."""
    block = operation.block
    while block is not None and block.region is not None and block.region.owner is not None:
        owner = block.region.owner
        if owner.name == flow.WHILE:
            return True
        block = owner.block
    return False

"""Rewrites of the SSA form before it is scheduled (branches, inline assembly, polls), and the order of functions."""

from __future__ import annotations

from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.further_dialects import CLOCK
from silo.kinds.triton.front.operations.nvidia.ptx import inline_parts
from silo.kinds.triton.front.ssa import Attribute, Block, Module, Operation, Region, Type, Value

__all__ = [
    "callees_first",
    "cast",
    "drop",
    "insert",
    "join_edges",
    "replace",
    "set_operand",
    "spell_out_polls",
    "split_inline",
]

# ---- Small changes of the SSA form, which keep the lists of uses up to date ----


def insert(block: Block, index: int, operation: Operation) -> None:
    """Inserts a new operation into ``block`` at the index ``index``."""
    operation.block = block
    for result in operation.results:
        result.owner = operation
    for operand in operation.operands:
        operand.uses.append(operation)
    block.operations.insert(index, operation)


def replace(old: Value, new: Value) -> None:
    """Makes every user of ``old`` use ``new``."""
    for user in dict.fromkeys(old.uses):
        for position, operand in enumerate(user.operands):
            if operand is old:
                user.operands[position] = new
                new.uses.append(user)
    old.uses.clear()


def set_operand(operation: Operation, position: int, value: Value) -> None:
    """Makes ``value`` the operand of ``operation`` at ``position``."""
    operation.operands[position].uses.remove(operation)
    operation.operands[position] = value
    value.uses.append(operation)


def drop(block: Block, operation: Operation) -> None:
    """Removes an operation whose results are unused from ``block``."""
    for operand in operation.operands:
        operand.uses.remove(operation)
    block.operations.remove(operation)


def cast(block: Block, name: str, value: Value, type_: Type, neighbor: Operation, *, after: bool) -> Value:
    """Inserts the conversion ``name`` of ``value`` to ``type_`` before or after ``neighbor``; returns its result."""
    result = Value(f"{value.name}_{type_.element}", type_)
    operation = Operation(name, [value], [result], {}, location=neighbor.location)
    insert(block, block.operations.index(neighbor) + after, operation)
    return result


# ---- Replaces inline assembly with several results by one operation for each result ----


def split_inline(module: Module) -> None:
    """Replaces inline assembly with several results by one operation for each result, in place.

    Each new operation computes its own result from all operands.
    """
    for operation in module.walk():
        if operation.name == tt.ELEMENTWISE_INLINE_ASM and len(operation.results) > 1:
            assert operation.block is not None
            parts = inline_parts(operation)
            for operand in dict.fromkeys(operation.operands):
                times = operand.uses.count(operation)
                operand.uses[:] = [use for use in operand.uses if use is not operation]
                operand.uses += [part for part in parts for _ in range(times)]
            for part, result in zip(parts, operation.results, strict=True):
                result.owner, result.index = part, 0
            position = operation.block.operations.index(operation)
            operation.block.operations[position : position + 1] = parts


# ---- Lowering of ``tl.atomic_poll`` to a loop ----

_FLAG = Type("i1")
_EQUAL, _NOT_EQUAL, _BELOW = 0, 1, 6  # predicates of arith.cmpi; _BELOW is unsigned


def spell_out_polls(module: Module) -> None:
    """Replaces every ``tl.atomic_poll`` of ``module`` by a loop, in place."""
    for operation in module.walk():
        if operation.name == tt.ATOMIC_POLL:
            _spell_out(operation)


class _Building:
    """Appends new operations to ``block``."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.made: list[Operation] = []

    def add(self, name: str, operands: list[Value], result: Type | None, **attributes: Attribute) -> Operation:
        operation = Operation(name, operands, [], dict(attributes), block=self.block)
        for operand in operands:
            operand.uses.append(operation)
        if result is not None:
            operation.results.append(Value(f"poll{len(self.made)}", result, operation))
        self.made.append(operation)
        return operation

    def value(self, name: str, operands: list[Value], result: Type, **attributes: Attribute) -> Value:
        return self.add(name, operands, result, **attributes).result


def _inside(owner: Operation, *arguments: Type) -> Block:
    """Adds a region with one block to ``owner``, and returns the block."""
    block = Block(region=Region(owner=owner))
    assert block.region is not None
    block.region.blocks.append(block)
    block.arguments = [Value(f"poll_{n}", type_, block=block, index=n) for n, type_ in enumerate(arguments)]
    owner.regions.append(block.region)
    return block


def _spell_out(poll: Operation) -> None:
    block = poll.block
    assert block is not None
    pointer, expected, *timeout = poll.operands
    flags = poll.result.type
    for operand in poll.operands:
        operand.uses.remove(poll)
    before = _Building(block)
    start = [before.value(CLOCK, [], Type("i64")) for _ in timeout]
    loop = before.add(flow.WHILE, [], expected.type)
    body = _Building(_inside(loop))
    loaded = body.value(tt.ATOMIC_LOAD, [pointer], expected.type, sem=poll.attributes.get("sem", 2))
    waits = _any(body, body.value(arith.CMPI, [loaded, expected], flags, predicate=_NOT_EQUAL))
    for limit, since in zip(timeout, start, strict=True):
        now = body.value(CLOCK, [], Type("i64"))
        spent = body.value(arith.SUBI, [now, since], Type("i64"))
        waits = body.value(arith.ANDI, [waits, body.value(arith.CMPI, [spent, limit], _FLAG, predicate=_BELOW)], _FLAG)
    body.add(flow.CONDITION, [waits, loaded], None)
    body.block.operations = body.made
    again = _Building(_inside(loop, expected.type))
    again.add(flow.YIELD, [], None)
    again.block.operations = again.made
    # The poll itself becomes the final comparison, so that the operations that use its result need no change.
    poll.name, poll.operands, poll.attributes = arith.CMPI, [loop.result, expected], {"predicate": _EQUAL}
    for operand in poll.operands:
        operand.uses.append(poll)
    position = block.operations.index(poll)
    block.operations[position:position] = before.made


def _any(building: _Building, flags: Value) -> Value:
    """Returns a scalar that is true if any of ``flags`` is set, and appends the operations that compute it."""
    while flags.type.tensor:
        shape = flags.type.shape[1:]
        reduce = building.add(tt.REDUCE, [flags], Type("i1", shape, tensor=bool(shape)), axis=0)
        inner = _Building(_inside(reduce, _FLAG, _FLAG))
        either = inner.value(arith.ORI, list(inner.block.arguments), _FLAG)
        inner.add(tt.REDUCE_RETURN, [either], None)
        inner.block.operations = inner.made
        flags = reduce.result
    return flags


# ---- The order of a module's functions by their calls ----


def callees_first(module: Module) -> list[str]:
    """The symbols of the functions that the kernel reaches, each after the functions that it calls.

    The kernel is the last.

    If functions call each other in a circle, which the verifier refuses, one of them comes before its callee.
    """
    order: dict[str, None] = {}
    begun: set[str] = set()
    pending = [module.kernel]
    while pending:
        symbol = pending[-1]
        if symbol in begun:
            pending.pop()
            order.setdefault(symbol)
            continue
        begun.add(symbol)
        pending.extend(callee for callee in reversed(module.callees(symbol)) if callee not in begun)
    return list(order)


# ---- Branches whose two edges lead to one block, as Triton emits for chains of ``if ...: return ...`` ----


def join_edges(module: Module) -> None:
    """Replaces each branch whose two edges lead to one block by a jump, in place.

    Selects choose the block's arguments.
    """
    for operation in module.walk():
        if operation.name == flow.COND_BR and operation.successors[0] is operation.successors[1]:
            _join(operation)


def _join(branch: Operation) -> None:
    (condition,), *edges = branch.operand_segments()
    block = branch.block
    assert block is not None
    for operand in branch.operands:
        operand.uses.remove(branch)
    pairs = zip(*edges, strict=True)
    passed = [left if left is right else _select(branch, condition, left, right) for left, right in pairs]
    branch.name, branch.operands, branch.attributes = flow.BR, passed, {}
    branch.successors = branch.successors[:1]
    for operand in passed:
        operand.uses.append(branch)


def _select(branch: Operation, condition: Value, left: Value, right: Value) -> Value:
    block = branch.block
    assert block is not None
    result = Value(f"{left.name}_or_{right.name}", left.type)
    operation = Operation(arith.SELECT, [condition, left, right], [result], {}, location=branch.location)
    insert(block, block.operations.index(branch), operation)
    return result

"""Lowering of ``tl.atomic_poll`` to a loop that loads until every element has its expected value, or time is up."""

from __future__ import annotations

from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.own import CLOCK
from silo.kinds.triton.front.ssa import Attribute, Block, Module, Operation, Region, Type, Value

__all__ = ["spell_out_polls"]

_FLAG = Type("i1")
_EQUAL, _NOT_EQUAL, _BELOW = 0, 1, 6  # predicates of arith.cmpi; the last is unsigned


def spell_out_polls(module: Module) -> None:
    """Put loops in the place of polls, in place."""
    for operation in list(module.walk()):
        if operation.name == tt.ATOMIC_POLL:
            _spell_out(operation)


class _Building:
    """Operations appended to ``block``."""

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
    """A new region of ``owner`` with one block."""
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
    found = body.value(tt.ATOMIC_LOAD, [pointer], expected.type, sem=poll.attributes.get("sem", 2))
    waits = _any(body, body.value(arith.CMPI, [found, expected], flags, predicate=_NOT_EQUAL))
    for limit, since in zip(timeout, start, strict=True):
        now = body.value(CLOCK, [], Type("i64"))
        spent = body.value(arith.SUBI, [now, since], Type("i64"))
        waits = body.value(arith.ANDI, [waits, body.value(arith.CMPI, [spent, limit], _FLAG, predicate=_BELOW)], _FLAG)
    body.add(flow.CONDITION, [waits, found], None)
    body.block.operations = body.made
    again = _Building(_inside(loop, expected.type))
    again.add(flow.YIELD, [], None)
    again.block.operations = again.made
    # The poll itself becomes the comparison, so that its users stay as they are.
    poll.name, poll.operands, poll.attributes = arith.CMPI, [loop.result, expected], {"predicate": _EQUAL}
    for operand in poll.operands:
        operand.uses.append(poll)
    place = block.operations.index(poll)
    block.operations[place:place] = before.made


def _any(building: _Building, flags: Value) -> Value:
    """Whether any flag is set."""
    while flags.type.tensor:
        shape = flags.type.shape[1:]
        reduce = building.add(tt.REDUCE, [flags], Type("i1", shape, tensor=bool(shape)), axis=0)
        inner = _Building(_inside(reduce, _FLAG, _FLAG))
        either = inner.value(arith.ORI, list(inner.block.arguments), _FLAG)
        inner.add(tt.REDUCE_RETURN, [either], None)
        inner.block.operations = inner.made
        flags = reduce.result
    return flags

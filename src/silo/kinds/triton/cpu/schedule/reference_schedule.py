"""The reference schedule: every operation has a loop nest of its own and every tensor value is stored.

It makes no decisions that could be wrong, so it is the oracle of the optimised schedule.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.value_properties import first_tensor, is_ordered
from silo.kinds.triton.cpu.schedule.block_schedule import (
    BlockSchedule,
    Branch,
    BufferFill,
    Carried,
    DotStep,
    Jump,
    Loop,
    NestGroup,
    OrderedSink,
    ReduceSink,
    ScalarStep,
    Sink,
    Step,
    StoreSink,
    WhileLoop,
    WholeStep,
)
from silo.kinds.triton.cpu.schedule.loop_values import jump_arguments
from silo.kinds.triton.front.operations import flow, tt
from silo.kinds.triton.front.operations.operation_table import DOTS, JUMPS, NO_EFFECT, REGION_RETURNS, WHOLE, YIELDS
from silo.kinds.triton.front.ssa import Block, Operation, Region, Value

__all__ = ["plan_block"]


def plan_block(block: Block) -> BlockSchedule:
    """Plans ``block`` operation by operation, in program order."""
    steps: list[Step] = []
    for operation in block.operations:
        steps.extend(_steps(operation, block))
    return BlockSchedule(steps, [])


def _steps(operation: Operation, block: Block) -> list[Step]:
    name = operation.name
    if name in NO_EFFECT:
        return []
    if name in REGION_RETURNS:
        return [Jump(operation)]
    if name in WHOLE:
        return [WholeStep(operation)]
    if is_ordered(operation):
        return [_nest(OrderedSink(operation), first_tensor(operation))]
    if name == tt.STORE and operation.operands[0].type.tensor:
        return [_nest(StoreSink(operation), operation.operands[0])]
    if name == tt.REDUCE:
        return [_nest(ReduceSink(operation), operation.operands[0])]
    if name in DOTS:
        fill = BufferFill(operation.operands[2], operation.result)
        return [_nest(fill, operation.result), DotStep(operation, operation.result, fill)]
    if name == flow.FOR:
        return _for(operation)
    if name == flow.IF:
        plans = [_region(region) for region in operation.regions]
        return [Branch(operation, plans[0], plans[1] if len(plans) > 1 else BlockSchedule([], []))]
    if name == flow.WHILE:
        before, after = operation.regions
        inits = zip(operation.operands, before.blocks[0].arguments, strict=True)
        return [*_fills(list(inits)), WhileLoop(operation, _region(before), _region(after))]
    if name in YIELDS:
        return _yield(operation, block)
    if name in JUMPS:
        return [*_fills(jump_arguments(operation)), Jump(operation)]
    if operation.results and operation.results[0].type.tensor:
        return [_nest(BufferFill(value, value), value) for value in operation.results]
    return [ScalarStep(operation)]


def _nest(sink: Sink, like: Value) -> NestGroup:
    return NestGroup(like.type.shape, [sink])


def _fills(pairs: list[tuple[Value, Value]], *, staged: bool = False) -> list[Step]:
    return [_nest(BufferFill(value, target, staged=staged), target) for value, target in pairs if target.type.tensor]


def _region(region: Region) -> BlockSchedule:
    return plan_block(region.blocks[0]) if region.blocks else BlockSchedule([], [])


def _for(operation: Operation) -> list[Step]:
    body = operation.regions[0].blocks[0]
    arguments = body.arguments[1:]
    entries = [
        Carried(argument, initial, value, result, "buffer" if argument.type.tensor else "scalar")
        for argument, initial, value, result in zip(
            arguments, operation.operands[3:], body.operations[-1].operands, operation.results, strict=True
        )
    ]
    pairs = [(entry.initial, entry.argument) for entry in entries]
    return [*_fills(pairs), Loop(operation, entries, plan_block(body))]


def _yield(operation: Operation, block: Block) -> list[Step]:
    owner = block.region.owner if block.region is not None else None
    assert owner is not None
    if operation.name == flow.CONDITION:
        return _fills(list(zip(operation.operands[1:], owner.results, strict=True)))
    if owner.name == flow.FOR:
        return _fills(list(zip(operation.operands, block.arguments[1:], strict=True)), staged=True)
    if owner.name == flow.WHILE:
        targets = owner.regions[0].blocks[0].arguments
        return _fills(list(zip(operation.operands, targets, strict=True)), staged=True)
    return _fills(list(zip(operation.operands, owner.results, strict=True)))

"""Lowers operations that need whole tensors: calls, functions mapped over elements, sorting networks, running sums."""

from __future__ import annotations

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.networks import steps_of
from silo.kinds.triton.cpu.loop_ir import Copy, Define, For, LoopBuffer, LoopCall
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.c_types import C_TYPES
from silo.kinds.triton.front.operations.further_dialects import NETWORK
from silo.kinds.triton.front.operations.operation_table import OPAQUE
from silo.kinds.triton.front.ssa import Module, Operation

__all__ = ["function_name", "lower_whole"]


def function_name(module: Module, symbol: str) -> str:
    """The C name of one of the module's functions.

    It contains the function's number, because a symbol may be any text.
    """
    return f"silo_function{list(module.functions).index(symbol)}"


def lower_whole(scope: LoweringScope, operation: Operation) -> None:
    """Emits the operation; its operands must be in memory."""
    if operation.name == tt.CALL:
        _call(scope, operation)
    elif operation.name == NETWORK:
        _network(scope, operation)
    elif operation.name == tt.SCAN:
        _running_sum(scope, operation)
    else:
        _map(scope, operation)


def _call(scope: LoweringScope, operation: Operation) -> None:
    arguments: list[str] = []
    for operand in operation.operands:
        buffer = scope.buffer(operand) if operand.type.tensor else None
        if buffer is not None:
            scope.lifetimes.touch(buffer)
        arguments.append(scope.scalar(operand) if buffer is None else buffer.name)
    for result in operation.results:
        if result.type.tensor:
            buffer = scope.buffer_for(result)
            scope.lifetimes.touch(buffer)
            arguments.append(buffer.name)
        else:
            name = scope.name("s")
            scope.emit(Define(ops.c_type(result.type), name, "0", mutable=True))
            scope.bind(result, name)
            arguments.append(f"&{name}")
    for statement in scope.checked_call(function_name(scope.module, operation.callee), arguments):
        scope.emit(statement)


def _map(scope: LoweringScope, operation: Operation) -> None:
    """Lowers ``tt.map_elementwise``, whose function takes ``pack`` consecutive elements of each operand."""
    pack = operation.attributes.get("pack", 1)
    assert isinstance(pack, int)
    index = scope.name("i")
    sources = [scope.buffer(operand) for operand in operation.operands]
    targets = [scope.buffer_for(result) for result in operation.results]
    elements: list[str] = []
    places: list[str] = []
    for buffer in sources:
        assert buffer is not None
        scope.lifetimes.touch(buffer)
        elements.extend(f"{buffer.name}[{index} + {item}]" for item in range(pack))
    for buffer in targets:
        scope.lifetimes.touch(buffer)
        places.extend(f"&{buffer.name}[{index} + {item}]" for item in range(pack))
    count = operation.results[0].type.elements
    body = scope.apply(operation, elements, places)
    scope.emit(For(index, "0", str(count), body, step=str(pack), simd=scope.vectorizes(operation)))


def _in_place(scope: LoweringScope, operation: Operation) -> LoopBuffer:
    """A buffer for the result that already holds the operand: the operand's own if nothing else reads it, or a copy."""
    operand, result = operation.operands[0], operation.result
    source = scope.buffer(operand)
    assert source is not None
    scope.lifetimes.touch(source)
    maker = operand.owner
    if maker is not None and maker.block is operation.block and maker.name not in OPAQUE and len(operand.uses) == 1:
        scope.hold(result, source)
        return source
    target = scope.buffer_for(result)
    scope.lifetimes.touch(target)
    scope.emit(Copy(target, source))
    return target


def _network(scope: LoweringScope, operation: Operation) -> None:
    steps, element = steps_of(operation)
    scope.pieces.add(f"swap_{element}")
    buffer = _in_place(scope, operation)
    sign = f"({C_TYPES[f'i{element[1:]}'].replace('int', 'uint')} *)" if element.startswith("u") else ""
    arguments = f"{sign}{buffer.name}, {operation.result.type.elements}"
    for step in steps:
        scope.emit(LoopCall(f"silo_swap_step_{element}({arguments}, {step.bit}, {step.flip}, {int(step.down)})"))


def _running_sum(scope: LoweringScope, operation: Operation) -> None:
    type_ = operation.result.type
    axis = operation.attributes["axis"]
    assert isinstance(axis, int)
    extent = type_.shape[axis]
    scope.pieces.add(f"sums_{type_.element}")
    reverse = "_reverse" if operation.attributes.get("reverse") else ""
    cast = {"i32": "(uint32_t *)", "i64": "(uint64_t *)"}.get(type_.element, "")
    arguments = f"{cast}({_in_place(scope, operation).name}"
    row = scope.name("i")
    call = LoopCall(f"silo_running_sum{reverse}_{type_.element}({arguments} + {row}), {extent})")
    scope.emit(For(row, "0", str(type_.elements), [call], step=str(extent)))

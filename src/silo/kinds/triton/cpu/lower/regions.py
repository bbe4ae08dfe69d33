"""The functions that reductions, scans and maps apply to elements, as C functions of their own."""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar
from silo.kinds.triton.cpu.loop_ir import LoopFunction, LoopParameter
from silo.kinds.triton.cpu.lower.control_lowering import FunctionLowering
from silo.kinds.triton.cpu.lower.lowering_scope import ElementFunction, LoweringScope
from silo.kinds.triton.cpu.schedule.function import plan_region
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.operation_table import MESSAGES, REGION_RETURNS
from silo.kinds.triton.front.ssa import Module, Operation, Region, Value

__all__ = ["element_functions", "needs_function"]


# They name the program that they run for, or may end it.
_NEEDS_SURROUNDINGS = MESSAGES | {tt.CALL}


def needs_function(operation: Operation) -> bool:
    """Whether the region of ``operation`` is applied to elements by a C function."""
    ends = (block.operations[-1].name for region in operation.regions for block in region.blocks if block.operations)
    return any(name in REGION_RETURNS for name in ends)


def element_functions(scope: LoweringScope, module: Module) -> list[LoopFunction]:
    """One function for each region that is applied to elements; ``scope.elementwise`` tells how to call it."""
    return [_outlined(scope, operation) for operation in module.walk() if needs_function(operation)]


@dataclass(frozen=True, slots=True)
class _Free:
    """Values from outside of a region: constants are written where they are used, the others are passed."""

    constants: tuple[Value, ...]
    passed: tuple[Value, ...]


def _outlined(scope: LoweringScope, operation: Operation) -> LoopFunction:
    region = operation.regions[0]
    entry = region.blocks[0]
    free = _free_values(region)
    name = scope.name("apply")
    parameters: list[LoopParameter] = []
    for value in (*free.passed, *entry.arguments):
        parameter = scope.name("e")
        scope.bind(value, parameter)
        parameters.append(LoopParameter(ops.c_type(value.type), parameter))
    for value in free.constants:
        single = constant_scalar(value)
        assert single is not None
        scope.bind(value, ops.literal(single, value.type.element))
    returned = _returned(region)
    targets = [scope.name("to") for _ in returned]
    for target, value in zip(targets, returned, strict=True):
        parameters.append(LoopParameter(f"{ops.c_type(value.type)} *", target))
    calls = any(inner.name in _NEEDS_SURROUNDINGS for inner in Module({"": operation}, "").walk())
    scope.frame = "0"  # the memory that it is given is for what it calls
    with scope.collecting() as body:
        FunctionLowering(scope, region.blocks, targets=targets, status="0" if calls else "").function(
            plan_region(region, scope.options)
        )
    scope.elementwise[operation] = ElementFunction(name, free.passed, calls)
    return LoopFunction(name, parameters, [], body, inline=True, surroundings=calls)


def _returned(region: Region) -> list[Value]:
    ends = (block.operations[-1] for block in region.blocks)
    return next(end.operands for end in ends if end.name in REGION_RETURNS)


def _free_values(region: Region) -> _Free:
    """The values a region uses and does not define, in order of use."""
    defined: set[Value] = set()
    used: dict[Value, None] = {}
    pending = list(region.blocks)
    while pending:
        visited = pending.pop()
        defined.update(visited.arguments)
        for operation in visited.operations:
            defined.update(operation.results)
            used.update(dict.fromkeys(operation.operands))
            pending.extend(inner for region in operation.regions for inner in region.blocks)
    outside = [value for value in used if value not in defined]
    constants = tuple(value for value in outside if constant_scalar(value) is not None)
    return _Free(constants, tuple(value for value in outside if value not in constants))

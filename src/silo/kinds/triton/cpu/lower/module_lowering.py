"""Lowers a module to its loop program: the kernel, the functions it calls, and the functions applied to elements."""

from __future__ import annotations

import re
from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.ssa_rewriting import callees_first
from silo.kinds.triton.cpu.analysis.streams import streamable_stores
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.loop_ir import LoopBuffer, LoopFunction, LoopParameter, LoopProgram
from silo.kinds.triton.cpu.lower.atomic import ALONE, LOCKING
from silo.kinds.triton.cpu.lower.control_lowering import FunctionLowering
from silo.kinds.triton.cpu.lower.lowering_scope import ElementFunction, LoweringScope
from silo.kinds.triton.cpu.lower.materialized import function_name
from silo.kinds.triton.cpu.lower.messages import split_prints
from silo.kinds.triton.cpu.lower.overlap import check_sharing
from silo.kinds.triton.cpu.schedule.function import plan_function, plan_region
from silo.kinds.triton.cpu.schedule.loop_values import declare_results
from silo.kinds.triton.cpu.schedule.scratch_layout import Lifetimes
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.further_dialects import FENCE, VOLATILE_LOAD
from silo.kinds.triton.front.operations.operation_table import ATOMICS, MESSAGES, REGION_RETURNS
from silo.kinds.triton.front.ssa import Module, Operation, Region, Value

__all__ = ["element_functions", "frame_name", "lower_kernel", "needs_function"]

# ---- The functions that reductions, scans and maps apply to elements, as C functions of their own ----

# Operations that need the kernel's context: a message names the running program, and a call may fail and so end the
# kernel.
_NEEDS_SURROUNDINGS = MESSAGES | {tt.CALL}


def needs_function(operation: Operation) -> bool:
    """Whether a C function of its own applies the region of ``operation`` to elements."""
    ends = (block.operations[-1].name for region in operation.regions for block in region.blocks if block.operations)
    return any(name in REGION_RETURNS for name in ends)


def element_functions(scope: LoweringScope, module: Module) -> list[LoopFunction]:
    """Returns one function for each region that is applied to elements.

    Records in ``scope.elementwise`` how each function is called.
    """
    return [_outlined(scope, operation) for operation in module.walk() if needs_function(operation)]


@dataclass(frozen=True, slots=True)
class _Free:
    """Values that a region uses from outside: constants are written out at each use, others are passed as arguments."""

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
    scope.frame = "0"  # the function uses no scratch memory itself and passes all of it on to its callees
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
    """The values that a region uses but does not define, in order of use."""
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


# ---- Lowers a module to its loop program: the kernel, the functions it calls, and the functions applied to elements
# ----

_LONGEST_NAME = 128  # the most characters of a kernel's name that its C function's name contains


def frame_name(function: str) -> str:
    """The name of the C constant that holds the size of a function's own scratch memory."""
    return f"{function}_frame"


def lower_kernel(module: Module, options: CpuOptions, entry: str = "") -> tuple[LoopProgram, frozenset[str]]:
    """The loop program of the kernel of ``module``, and the names of the runtime pieces that it calls.

    ``entry`` is the C name of the kernel; "" derives one.
    """
    split_prints(module)
    scope = LoweringScope(options, module)
    applied = element_functions(scope, module)
    called = [_function(scope, module, symbol) for symbol in callees_first(module)[:-1]]
    entry = entry or "silo_kernel_" + re.sub(r"[^A-Za-z0-9_]", "_", module.kernel[:_LONGEST_NAME])
    arguments = module.entry.regions[0].blocks[0].arguments
    parameters: list[LoopParameter] = []
    for argument in arguments:
        name = f"a{argument.index}"
        scope.bind(argument, name)
        parameters.append(LoopParameter(ops.c_type(argument.type), name))
    scope.streamable = frozenset() if scope.reference else streamable_stores(module.entry)
    scratch = _lower(scope, module.entry, entry, kernel=True)
    program = LoopProgram(
        entry=entry,
        parameters=parameters,
        buffers=_buffers(scope),
        constants=scope.constants,
        body=scope.out,
        functions=[*applied, *called],
        finish=scope.finish,
        scratch_bytes=scratch,
        locals=scope.locals,
        turns=_turns(scope, module),
    )
    program.total_bytes = _total_bytes(module, {function.name: function.scratch_bytes for function in called}, scratch)
    return program, frozenset(scope.pieces)


# Operations by which programs of different launches may communicate through memory.
_MEETS = ATOMICS | {FENCE}


def _turns(scope: LoweringScope, module: Module) -> int:
    """The kernel's argument of ``turns->enter`` (``runtime/turns.h``); -1 for a kernel without atomics and fences.

    While one kernel runs alone or holds a lock, other kernels wait for it. If that kernel waited for another kernel (in
    a loop, or for a reader of its messages), both could wait forever, so such a kernel requests neither mode.
    """
    names = {operation.name for operation in module.walk()}
    if scope.options.launch_atomics or not names & _MEETS:
        return -1
    scope.pieces.add("turns")
    if "wait" in scope.pieces or names & {tt.PRINT, VOLATILE_LOAD}:
        return 0
    locks = FENCE not in names and all(op in scope.locking for op in module.walk() if op.name in ATOMICS)
    return (ALONE if scope.wants_alone else 0) | (LOCKING if locks else 0)


def _lower(scope: LoweringScope, function: Operation, name: str, *, kernel: bool) -> int:
    """Emits the body of ``function``; returns the bytes of scratch memory that it needs itself."""
    scope.lifetimes = Lifetimes()
    scope.frame = frame_name(name)
    scope.in_kernel = kernel
    blocks = function.regions[0].blocks
    FunctionLowering(scope, blocks, kernel=kernel).function(plan_function(function, scope.options))
    size = scope.lifetimes.assign(shared=len(blocks) == 1)
    check_sharing(name, _buffers(scope), scope.out)
    return size


def _buffers(scope: LoweringScope) -> list[LoopBuffer]:
    return sorted(scope.lifetimes.spans, key=lambda buffer: int(buffer.name[1:]))


def _function(scope: LoweringScope, module: Module, symbol: str) -> LoopFunction:
    name, function = function_name(module, symbol), module.functions[symbol]
    declare_results(function)
    parameters = [_parameter(scope, argument) for argument in function.regions[0].blocks[0].arguments]
    parameters += [_parameter(scope, result, result=True) for result in function.results]
    with scope.collecting() as body:
        scratch = _lower(scope, function, name, kernel=False)
    return LoopFunction(name, parameters, _buffers(scope), body, inline=False, surroundings=True, scratch_bytes=scratch)


def _parameter(scope: LoweringScope, value: Value, *, result: bool = False) -> LoopParameter:
    """The C parameter for a value: a scalar by value, a tensor by its address, a result by a pointer to write it to."""
    name = scope.name("p")
    ctype = ops.c_type(value.type)
    if value.type.tensor:
        buffer = scope.new_buffer(value.type)
        scope.hold(value, LoopBuffer(name, buffer.ctype, buffer.elements, buffer.item_bytes, external=True))
        return LoopParameter(f"{ctype} *", name)
    scope.bind(value, f"*{name}" if result else name)
    return LoopParameter(f"{ctype} *" if result else ctype, name)


def _total_bytes(module: Module, scratch_bytes: dict[str, int], kernel: int) -> int:
    """The bytes of scratch memory of the kernel together with the deepest chain of calls."""
    deepest: dict[str, int] = {}
    for symbol in callees_first(module):
        below = (scratch_bytes[function_name(module, name)] + deepest[name] for name in module.callees(symbol))
        deepest[symbol] = max(below, default=0)
    return kernel + deepest[module.kernel]

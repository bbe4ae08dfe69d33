"""The stores that may bypass the caches, because the kernel touches their memory once.

A launch that writes more than a cache holds gains by not reading every line before it is written over. How much a
launch writes shows when it runs; that nothing else in the kernel needs these lines shows here.
"""

from __future__ import annotations

from silo.backends.cpu.analysis.values import load_parts, store_parts
from silo.backends.cpu.operations import arith, flow, tt
from silo.backends.cpu.operations.table import WRITES
from silo.sources.triton.ssa import Block, Operation, Value

__all__ = ["enclosing_loops", "streamable_stores"]


def streamable_stores(kernel: Operation) -> frozenset[Operation]:
    """Stores of tensors to arguments that the kernel never reads, to other places in every iteration of a loop.

    None where other threads may wait for what was written before (atomics), or memory is reached in ways that do not
    show (calls, addresses that were loaded); and none beside products of matrices, which memory does not hold up.
    """
    operations = _operations(kernel)
    if any(operation.name == tt.DOT for operation in operations):
        return frozenset()
    accesses = [operation for operation in operations if operation.name in {tt.LOAD, tt.STORE}]
    if any(operation.name in WRITES - {tt.STORE} for operation in operations):
        return frozenset()
    read: set[Value] = set()
    for access in accesses:
        origins = _origins(_pointer(access))
        if origins is None:
            return frozenset()
        if access.name == tt.LOAD:
            read |= origins
    found: list[Operation] = []
    for store in accesses:
        pointer = _pointer(store)
        if store.name != tt.STORE or not pointer.type.tensor:
            continue
        origins = _origins(pointer)
        loops = enclosing_loops(store)
        if origins and not origins & read and all(loop is not None and _varies(pointer, loop) for loop in loops):
            found.append(store)
    return frozenset(found)


def enclosing_loops(operation: Operation) -> list[Operation | None]:
    """The ``scf.for`` loops round an operation, innermost first; None for a loop of another kind."""
    found: list[Operation | None] = []
    owner = _owner(operation.block)
    while owner is not None and owner.name != tt.FUNC:
        if owner.name != flow.IF:
            found.append(owner if owner.name == flow.FOR else None)
        owner = _owner(owner.block)
    return found


def _owner(block: Block | None) -> Operation | None:
    return block.region.owner if block is not None and block.region is not None else None


def _operations(kernel: Operation) -> list[Operation]:
    found: list[Operation] = []
    pending = [kernel]
    while pending:
        operation = pending.pop()
        found.append(operation)
        pending.extend(op for region in operation.regions for block in region.blocks for op in block.operations)
    return found


def _pointer(access: Operation) -> Value:
    return load_parts(access)[0] if access.name == tt.LOAD else store_parts(access)[0]


def _sources(value: Value) -> list[Value]:
    """The values that ``value`` is made of, one step back; a carried value's start and what it becomes."""
    operation = value.owner
    if operation is not None:
        inner = [block.operations[-1] for region in operation.regions for block in region.blocks if block.operations]
        return [*operation.operands, *(operand for end in inner for operand in end.operands)]
    owner = _owner(value.block)
    if owner is None or owner.name == tt.FUNC:
        return []
    ends = [block.operations[-1] for region in owner.regions for block in region.blocks if block.operations]
    return [*owner.operands, *(operand for end in ends for operand in end.operands)]


def _slice(value: Value) -> set[Value]:
    seen: set[Value] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if one not in seen:
            seen.add(one)
            pending.extend(_sources(one))
    return seen


def _origins(pointer: Value) -> set[Value] | None:
    """The pointer arguments of the kernel that ``pointer`` may come from; None where that does not show."""
    origins: set[Value] = set()
    for value in _slice(pointer):
        if value.owner is None:
            owner = _owner(value.block)
            if not value.type.pointer or owner is None or owner.name != tt.FUNC:
                continue
            if value.block is not owner.regions[0].blocks[0]:
                return None
            origins.add(value)
        elif value.type.pointer and value.owner.name not in _KEEPS_ORIGIN:
            return None
    return origins


_KEEPS_ORIGIN = frozenset(
    {tt.ADDPTR, tt.SPLAT, tt.BROADCAST, tt.EXPAND_DIMS, tt.RESHAPE, tt.TRANS, arith.SELECT}
    | {flow.FOR, flow.IF, flow.WHILE}
)


def _varies(pointer: Value, loop: Operation) -> bool:
    """Whether ``pointer`` has to do with what changes from one iteration of ``loop`` to the next."""
    return any(value.owner is None and _owner(value.block) is loop for value in _slice(pointer))

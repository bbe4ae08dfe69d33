"""Finds stores that may bypass the caches, and atomic adds that may reach memory after their program has ended."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.value_properties import every_operation, load_parts, may_precede, store_parts
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.cpu.atomics import ATOMIC_KINDS
from silo.kinds.triton.front.operations.operation_table import CHECKS, EFFECTS, WRITES
from silo.kinds.triton.front.ssa import Block, Module, Operation, Value

__all__ = ["enclosing_loops", "is_plain_add", "may_come_later", "streamable_stores"]

# ---- The stores that may bypass the caches, because the kernel touches their memory once ----


def streamable_stores(kernel: Operation) -> frozenset[Operation]:
    """Returns the stores of tensors that may bypass the caches.

    Such a store writes to an argument that the kernel never reads, at different addresses in every iteration of a loop.
    The result is empty if other threads may wait for earlier writes (atomics), if memory is reached in unknown ways
    (calls, loaded addresses), or if the kernel multiplies matrices, because arithmetic limits the speed of such a
    kernel.
    """
    operations = _operations(kernel)
    if any(operation.name == tt.DOT for operation in operations):
        return frozenset()
    accesses = [operation for operation in operations if operation.name in {tt.LOAD, tt.STORE}]
    if any(operation.name in WRITES - {tt.STORE} for operation in operations):
        return frozenset()
    unknown = _reached(_unknown(operations))
    if any(_pointer(access) in unknown for access in accesses):
        return frozenset()
    arguments = [value for value in kernel.regions[0].blocks[0].arguments if value.type.pointer]
    reached = {argument: _reached([argument]) for argument in arguments}

    def origins_of(access: Operation) -> set[Value]:
        return {argument for argument in arguments if _pointer(access) in reached[argument]}

    read = {origin for access in accesses if access.name == tt.LOAD for origin in origins_of(access)}
    varying: dict[Operation, set[Value]] = {}

    def varies(pointer: Value, loop: Operation) -> bool:
        """Whether ``pointer`` depends on values that change from one iteration of ``loop`` to the next."""
        if loop not in varying:
            varying[loop] = _reached([value for block in loop.regions[0].blocks for value in block.arguments])
        return pointer in varying[loop]

    stores: list[Operation] = []
    for store in accesses:
        pointer = _pointer(store)
        if store.name != tt.STORE or not pointer.type.tensor:
            continue
        origins = origins_of(store)
        loops = enclosing_loops(store)
        if origins and not origins & read and all(loop is not None and varies(pointer, loop) for loop in loops):
            stores.append(store)
    return frozenset(stores)


def enclosing_loops(operation: Operation) -> list[Operation | None]:
    """The loops around an operation, innermost first: an ``scf.for``, or None in place of a loop of another kind."""
    loops: list[Operation | None] = []
    owner = _owner(operation.block)
    while owner is not None and owner.name != tt.FUNC:
        if owner.name != flow.IF:
            loops.append(owner if owner.name == flow.FOR else None)
        owner = _owner(owner.block)
    return loops


def _owner(block: Block | None) -> Operation | None:
    return block.region.owner if block is not None and block.region is not None else None


def _operations(kernel: Operation) -> list[Operation]:
    operations: list[Operation] = []
    pending = [kernel]
    while pending:
        operation = pending.pop()
        operations.append(operation)
        pending.extend(op for region in operation.regions for block in region.blocks for op in block.operations)
    return operations


def _pointer(access: Operation) -> Value:
    return load_parts(access)[0] if access.name == tt.LOAD else store_parts(access)[0]


def _unknown(operations: list[Operation]) -> list[Value]:
    """The pointers whose origin is unknown."""
    values = [value for operation in operations if operation.name not in _KEEPS_ORIGIN for value in operation.results]
    function = operations[0]
    values += [value for block in function.regions[0].blocks[1:] for value in block.arguments]
    return [value for value in values if value.type.pointer]


def _reached(starts: list[Value]) -> set[Value]:
    """The values that depend on ``starts``.

    These are results of operations on them, and results of loops and branches around such operations.
    """
    reached: set[Value] = set()
    visited: set[Operation] = set()
    pending = list(starts)
    while pending:
        value = pending.pop()
        if value in reached:
            continue
        reached.add(value)
        for user in value.uses:
            block = user.block
            ended = _owner(block) if block is not None and block.operations[-1] is user else None
            for operation in (user, ended):
                if operation is None or operation in visited or operation.name == tt.FUNC:
                    continue
                visited.add(operation)
                pending += operation.results
                pending += [
                    value for region in operation.regions for block in region.blocks for value in block.arguments
                ]
    return reached


_KEEPS_ORIGIN = frozenset(
    {tt.ADDPTR, tt.SPLAT, tt.BROADCAST, tt.EXPAND_DIMS, tt.RESHAPE, tt.TRANS, arith.SELECT}
    | {flow.FOR, flow.IF, flow.WHILE}
)


# ---- Atomic adds that may reach memory after their program has ended, together with the adds of later programs ----


def is_plain_add(operation: Operation) -> bool:
    """Whether ``operation`` is an atomic add of integers whose old values are unused."""
    if operation.name != tt.ATOMIC_RMW or operation.result.uses:
        return False
    kind = ATOMIC_KINDS.get(operation.attributes.get("atomic_rmw_op"))
    return kind == "add" and operation.result.type.element in {"i32", "i64"}


def may_come_later(module: Module, operation: Operation) -> bool:
    """Whether no program of a launch can observe when the adds of ``operation`` reach memory.

    Programs are unordered, and a program can wait for another program's add only by an atomic or volatile access, a
    fence or a call. A program can observe the order of its own accesses if it reads or stores anything after the add,
    through any argument, because two arguments may share memory. Printing also makes the order visible.
    """
    for other in every_operation(module.entry):
        name = other.name
        if name in {tt.LOAD, tt.STORE}:
            if may_precede(operation, other):
                return False
        elif name in CHECKS or (name in EFFECTS and not is_plain_add(other)):
            return False
    return True

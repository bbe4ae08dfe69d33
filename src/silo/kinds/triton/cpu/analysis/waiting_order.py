"""Makes the order of memory accesses explicit where programs may wait for each other.

A program waits by reading a place again and again: with volatile or atomic loads, or with other atomics in a loop that
runs until they give what is waited for. What it waits for is written by a program on another thread, so in such a
kernel

- volatile and atomic loads are operations of their own (``silo.volatile_load``), which are done each time, once, in
  their place, and acquire: what follows them reads what was written before what they read;
- every store, atomic or not, has a fence (``silo.fence``) before it, and barriers are fences: a flag that is stored,
  by whatever operation, is seen after what was stored before it. A GPU needs more from the kernel; here it costs next
  to nothing.

A loop that may wait does nothing but read and use atomics: one that stores is at work. In each of its turns the kernel
lets other programs run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from silo.kinds.triton.front.operations import flow, tt
from silo.kinds.triton.front.operations.operation_table import ATOMICS, BARRIERS
from silo.kinds.triton.front.operations.own import FENCE, VOLATILE_LOAD
from silo.kinds.triton.front.ssa import Block, Module, Operation

__all__ = ["jump_may_wait", "may_wait", "order_memory"]

_WATCHES = frozenset({VOLATILE_LOAD, tt.CALL, *ATOMICS})
# What a program does that is not waiting.
_WORK = frozenset({tt.STORE, tt.DOT})


def order_memory(module: Module) -> None:
    """Give volatile loads their own name and add the fences, in place; nothing changes where no program may wait.

    A module that was ordered before stays as it is.
    """
    if any(op.name in {FENCE, VOLATILE_LOAD} for op in module.walk()):
        return
    named = False
    for operation in module.walk():
        is_volatile = operation.name == tt.LOAD and operation.attributes.get("isVolatile")
        if is_volatile or operation.name == tt.ATOMIC_LOAD:
            operation.name, named = VOLATILE_LOAD, True
        elif operation.name == tt.ATOMIC_STORE:
            operation.name, named = tt.STORE, True
    if not named and not any(op.name in ATOMICS and _is_repeated(op) for op in module.walk()):
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
    """Whether the jump at the end of ``block`` may close a loop, over ``blocks`` of one function, that waits."""
    order = {one: number for number, one in enumerate(blocks)}
    targets = [order[one] for one in block.operations[-1].successors if order[one] <= order[block]]
    return any(
        _reads_and_waits(op for one in blocks[target : order[block] + 1] for op in one.operations) for target in targets
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
    """Whether it is in a loop that runs until a condition holds."""
    block = operation.block
    while block is not None and block.region is not None and block.region.owner is not None:
        owner = block.region.owner
        if owner.name == flow.WHILE:
            return True
        block = owner.block
    return False

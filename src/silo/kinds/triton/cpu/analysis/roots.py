"""The arguments that a pointer may be derived from, and the order of a program's operations."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.value_properties import load_parts
from silo.kinds.triton.front.operations import flow, tt
from silo.kinds.triton.front.operations.operation_table import WRITES
from silo.kinds.triton.front.operations.own import FENCE
from silo.kinds.triton.front.ssa import Module, Operation, Value

__all__ = ["every_operation", "keeps_unchanged", "may_precede", "pointer_roots"]

_STEPS = frozenset({tt.ADDPTR, tt.SPLAT, tt.BROADCAST, tt.EXPAND_DIMS, tt.RESHAPE, tt.TRANS, tt.BITCAST})
# What writes, or lets others write, memory of which nothing shows here.
_UNSEEN = WRITES - {FENCE, tt.STORE}


def pointer_roots(pointer: Value) -> frozenset[Value] | None:
    """The kernel's arguments that ``pointer`` may be an offset from; None where that does not show."""
    roots: set[Value] = set()
    seen: set[Value] = set()
    pending = [pointer]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        operation = value.owner
        if operation is not None:
            if operation.name not in _STEPS:
                return None
            pending.append(operation.operands[0])
            continue
        region = value.block.region if value.block is not None else None
        owner = region.owner if region is not None else None
        if owner is None or value.block is None:
            return None
        if owner.name == tt.FUNC and region is not None and value.block is region.blocks[0]:
            roots.add(value)
        elif owner.name == flow.FOR:
            place = value.block.arguments.index(value) - 1
            pending += [owner.operands[3 + place], value.block.operations[-1].operands[place]]
        else:
            return None
    return frozenset(roots)


def keeps_unchanged(module: Module, load: Operation) -> bool:
    """Whether what ``load`` reads may be taken not to change while the programs of one launch run.

    So it is where nothing is stored through an argument that its pointer derives from, and where programs have no way
    to wait for each other: then no program can tell whether another's stores came before its loads. A program's own
    stores it can tell, and two arguments may lie in one memory: so none may come before the load.
    """
    roots = pointer_roots(load_parts(load)[0])
    if roots is None:
        return False
    for operation in every_operation(module.entry):
        name = operation.name
        if name == tt.STORE:
            stored = pointer_roots(operation.operands[0])
            if stored is None or stored & roots or may_precede(operation, load):
                return False
        elif name in _UNSEEN:
            return False
    return True


def may_precede(one: Operation, other: Operation) -> bool:
    """Whether a program may run ``one`` before it runs ``other``: in its order, or in the round of a loop before."""
    paths = _path(one), _path(other)
    for mine, its in zip(*paths, strict=False):
        if mine is its:
            if mine.name in {flow.FOR, flow.WHILE}:
                return True
            continue
        assert mine.block is not None
        assert its.block is not None
        if mine.block is its.block:
            operations = mine.block.operations
            return operations.index(mine) < operations.index(its)
        # Blocks of a function come in an order that jumps follow; of two sides of a branch one alone is run.
        region = mine.block.region
        if region is None or region is not its.block.region:
            return False
        return region.blocks.index(mine.block) < region.blocks.index(its.block)
    return False


def _path(operation: Operation) -> list[Operation]:
    """The operations round ``operation``, outermost first, and itself."""
    found = [operation]
    while (block := found[0].block) is not None and block.region is not None and block.region.owner is not None:
        found.insert(0, block.region.owner)
    return found


def every_operation(operation: Operation) -> list[Operation]:
    """``operation`` and all within its regions."""
    found: list[Operation] = []
    pending = [operation]
    while pending:
        current = pending.pop()
        found.append(current)
        pending += [inner for region in current.regions for block in region.blocks for inner in block.operations]
    return found

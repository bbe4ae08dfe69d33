"""Which kernel arguments a pointer may derive from."""

from __future__ import annotations

from silo.backends.cpu.analysis.values import VIEWS
from silo.sources.triton.ssa import Operation, Value

__all__ = ["memory_objects"]

_SAME_OBJECT = VIEWS | {"tt.addptr", "tt.bitcast"}


def memory_objects(pointer: Value, entry: Operation) -> frozenset[int | None]:
    """Indices of the arguments of ``entry`` that ``pointer`` may point into; None in the set stands for anything."""
    objects: set[int | None] = set()
    seen: set[Value] = set()
    pending = [pointer]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        sources = _sources(value, entry)
        if isinstance(sources, list):
            pending.extend(sources)
        else:
            objects.add(sources)
    return frozenset(objects)


def _sources(value: Value, entry: Operation) -> list[Value] | int | None:
    """The values that ``value`` is made from, or the argument it is, or None where that is unknown."""
    operation = value.owner
    if operation is not None:
        if operation.name in _SAME_OBJECT:
            return [operation.operands[0]]
        if operation.name == "arith.select":
            return operation.operands[1:]
        if operation.name == "scf.for":
            yielded = operation.regions[0].blocks[0].operations[-1].operands[value.index]
            return [operation.operands[3 + value.index], yielded]
        if operation.name == "scf.if":
            return [region.blocks[0].operations[-1].operands[value.index] for region in operation.regions]
        return None
    region = value.block.region if value.block is not None else None
    owner = region.owner if region is not None else None
    if region is None or owner is None:
        return None
    if owner is entry and region.blocks[0] is value.block:
        return value.index
    if owner.name == "scf.for" and value.index > 0:
        yielded = region.blocks[0].operations[-1].operands[value.index - 1]
        return [owner.operands[2 + value.index], yielded]
    return None

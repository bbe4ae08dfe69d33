"""Moves casts of tensors of pointers to the scalar pointer that the tensor is an offset from.

Triton casts the pointers of a tile where they are used, for example for bytes that hold bools, or floats that are
compared as integers. The analyses of addresses start from offsets to a scalar pointer, and do not look through a cast
of a tile.
"""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.ssa_rewriting import cast, drop, insert, replace
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.ssa import Module, Operation, Type, Value

__all__ = ["cast_bases"]

_OFFSETS = frozenset({tt.ADDPTR, tt.SPLAT, tt.BROADCAST, tt.EXPAND_DIMS})
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


def cast_bases(module: Module) -> None:
    """Moves each cast of a tile of pointers to its scalar base, in place, if both element types have the same size."""
    for operation in [candidate for candidate in module.walk() if candidate.name == tt.BITCAST]:
        result = operation.result
        if result.type.pointer and result.type.tensor and operation.block is not None:
            moved = _cast_base(operation.operands[0], result.type, operation)
            if moved is not None:
                replace(result, moved)
                drop(operation.block, operation)


def _cast_base(pointer: Value, type_: Type, neighbor: Operation) -> Value | None:
    """Returns ``pointer`` rewritten as offsets from a cast of its scalar base; None if it has no scalar base.

    The result points to the elements of ``type_``. New operations are put before ``neighbor``.
    """
    steps: list[Operation] = []
    value = pointer
    while value.type.tensor:
        operation = value.owner
        if operation is None or operation.name not in _OFFSETS:
            return None
        steps.append(operation)
        value = operation.operands[0]
    block, size = neighbor.block, _BYTES.get(type_.element)
    if block is None or size is None or size != _BYTES.get(value.type.element):
        return None
    converted = cast(block, tt.BITCAST, value, Type(type_.element, pointer=True), neighbor, after=False)
    for step in reversed(steps):
        old = step.result.type
        new = Value(
            f"{step.result.name}_{type_.element}",
            Type(type_.element, old.shape, tensor=True, pointer=True, layout=old.layout),
        )
        copied = Operation(
            step.name, [converted, *step.operands[1:]], [new], dict(step.attributes), location=step.location
        )
        insert(block, block.operations.index(neighbor), copied)
        converted = new
    return converted

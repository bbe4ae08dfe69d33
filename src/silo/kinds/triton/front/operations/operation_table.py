"""The table of operations: every record of every dialect, and the sets of records that passes use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from silo.kinds.triton.front.operations import arith, flow, further_dialects, tt
from silo.kinds.triton.front.operations.operation_record import (
    NOT_SUPPORTED,
    RECORDS,
    Family,
    OperationRecord,
    OperationRole,
    SideEffect,
)
from silo.kinds.triton.front.ssa import Operation

__all__ = [
    "ASSOCIATIVE",
    "ATOMICS",
    "BARRIERS",
    "CHECKS",
    "CONTROL",
    "DOTS",
    "EFFECTS",
    "JUMPS",
    "MESSAGES",
    "NO_EFFECT",
    "OPAQUE",
    "OPERATIONS",
    "ORDERED",
    "REGION_RETURNS",
    "RENDERED",
    "SHUFFLES",
    "STRUCTURAL",
    "TERMINATORS",
    "VIEWS",
    "WHOLE",
    "WRITES",
    "YIELDS",
    "family_of",
    "foreign_reason",
    "is_arithmetic",
    "own_cost",
]

_DIALECTS = (
    arith,
    flow,
    arith,
    further_dialects,
    further_dialects,
    tt,
    further_dialects,
)  # each adds its records when it is imported
OPERATIONS: Final[Mapping[str, OperationRecord]] = MappingProxyType(RECORDS)


def _playing(*roles: OperationRole) -> frozenset[OperationRecord]:
    return frozenset(record for record in OPERATIONS.values() if record.role in roles)


def _with_effect(*effects: SideEffect) -> frozenset[OperationRecord]:
    return frozenset(record for record in OPERATIONS.values() if record.side_effect in effects)


VIEWS: Final = _playing(OperationRole.VIEW)
SHUFFLES: Final = _playing(OperationRole.SHUFFLE)
DOTS: Final = _playing(OperationRole.DOT)
WHOLE: Final = _playing(OperationRole.WHOLE)
ORDERED: Final = _playing(OperationRole.ORDERED)
CONTROL: Final = _playing(OperationRole.CONTROL)
YIELDS: Final = _playing(OperationRole.YIELD)
JUMPS: Final = _playing(OperationRole.JUMP)
REGION_RETURNS: Final = _playing(OperationRole.REGION_RETURN)
TERMINATORS: Final = YIELDS | JUMPS | REGION_RETURNS
# Operations whose results live in a buffer (or a variable) of their own.
OPAQUE: Final = _playing(
    OperationRole.REDUCTION, OperationRole.CONTROL, OperationRole.DOT, OperationRole.WHOLE, OperationRole.ORDERED
)
BARRIERS: Final = _playing(OperationRole.BARRIER)
# Hints and orderings without a meaning if one thread runs a whole program, and launches run one after the other.
NO_EFFECT: Final = _playing(OperationRole.BARRIER, OperationRole.HINT)
CHECKS: Final = _playing(OperationRole.CHECK)
WRITES: Final = _with_effect(SideEffect.WRITES)
MESSAGES: Final = _with_effect(SideEffect.TELLS)
# Operations that the world sees, in the order of the program.
EFFECTS: Final = WRITES | MESSAGES
ATOMICS: Final = frozenset({tt.ATOMIC_CAS, tt.ATOMIC_RMW})
ASSOCIATIVE: Final = frozenset(record for record in OPERATIONS.values() if record.associative)
# Operations whose every operand and result has one element per index: those with a C expression.
RENDERED: Final = frozenset(record for record in OPERATIONS.values() if record.render is not None)
# All others that a front end writes; a constant counts twice, as its elements may differ.
STRUCTURAL: Final = frozenset(one for one in OPERATIONS.values() if one.refuse is not None and one.on_cpu)

# Why families of operations, by the start of their names, mean nothing here.
_FOREIGN = (
    ("ttng.", "it is for NVIDIA GPUs alone; write it with Triton's own operations"),
    ("nvws.", "it is for NVIDIA GPUs alone; write it with Triton's own operations"),
    ("nvvm.", "it is for NVIDIA GPUs alone; write it with Triton's own operations"),
    ("amdg.", "it is for AMD GPUs alone; write it with Triton's own operations"),
    ("amdgpu.", "it is for AMD GPUs alone; write it with Triton's own operations"),
    ("rocdl.", "it is for AMD GPUs alone; write it with Triton's own operations"),
    ("ttg.", "it names a GPU's memory or layout; a CPU kernel starts from plain Triton, not from Gluon"),
)


def foreign_reason(name: str) -> str:
    """Why an operation without a record means nothing on a CPU."""
    return next((reason for prefix, reason in _FOREIGN if name.startswith(prefix)), NOT_SUPPORTED)


def family_of(operation: Operation) -> Family | None:
    """The family that a kernel's traits count an operation with, if any."""
    record = OPERATIONS.get(operation.name)
    return None if record is None else record.family


def is_arithmetic(name: str) -> bool:
    """Whether the operation is of the ``arith`` dialect."""
    return name.startswith("arith.")


def own_cost(operation: Operation) -> float:
    """About how many cheap operations evaluating one element takes, without its operands."""
    record = OPERATIONS.get(operation.name)
    if record is not None and record.cost is not None:
        return record.cost
    element = operation.results[0].type.element if operation.results else ""
    return 1.0 if element.startswith(("f", "bf")) else 0.5

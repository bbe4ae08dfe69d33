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
)  # each module adds its records when it is imported
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
# Operations whose results are always stored in a buffer (or a variable) of their own.
OPAQUE: Final = _playing(
    OperationRole.REDUCTION, OperationRole.CONTROL, OperationRole.DOT, OperationRole.WHOLE, OperationRole.ORDERED
)
BARRIERS: Final = _playing(OperationRole.BARRIER)
# Hints and ordering operations that have no effect when one thread runs a whole program and launches run one after
# another.
NO_EFFECT: Final = _playing(OperationRole.BARRIER, OperationRole.HINT)
CHECKS: Final = _playing(OperationRole.CHECK)
WRITES: Final = _with_effect(SideEffect.WRITES)
MESSAGES: Final = _with_effect(SideEffect.TELLS)
# Operations whose effects are visible outside of the program, so that their order matters.
EFFECTS: Final = WRITES | MESSAGES
ATOMICS: Final = frozenset({tt.ATOMIC_CAS, tt.ATOMIC_RMW})
ASSOCIATIVE: Final = frozenset(record for record in OPERATIONS.values() if record.associative)
# Operations with a C expression: every operand and result has one element for each index.
RENDERED: Final = frozenset(record for record in OPERATIONS.values() if record.render is not None)
# Operations of front ends that the CPU compiler supports in general, while ``refuse`` may reject a single instance. A
# constant is also in RENDERED; it is refused if its elements differ.
STRUCTURAL: Final = frozenset(one for one in OPERATIONS.values() if one.refuse is not None and one.on_cpu)

# The reasons why families of operations, by the prefix of their names, have no meaning on a CPU.
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
    """The reason why an operation without a record is not supported on a CPU, from the prefix of its name."""
    return next((reason for prefix, reason in _FOREIGN if name.startswith(prefix)), NOT_SUPPORTED)


def family_of(operation: Operation) -> Family | None:
    """The family with which a kernel's traits count an operation, if it has one."""
    record = OPERATIONS.get(operation.name)
    return None if record is None else record.family


def is_arithmetic(name: str) -> bool:
    """Whether the operation is of the ``arith`` dialect."""
    return name.startswith("arith.")


def own_cost(operation: Operation) -> float:
    """About how many cheap operations it takes to evaluate one element, not counting the operands."""
    record = OPERATIONS.get(operation.name)
    if record is not None and record.cost is not None:
        return record.cost
    element = operation.results[0].type.element if operation.results else ""
    return 1.0 if element.startswith(("f", "bf")) else 0.5

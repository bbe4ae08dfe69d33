"""The atomic operations that the C runtime has, and the reasons why other atomic operations are refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from silo.kinds.triton.front.operations.cpu.c_types import FLOATS, INTEGERS
from silo.kinds.triton.front.ssa import Operation

__all__ = [
    "ATOMIC_BITS",
    "ATOMIC_KINDS",
    "FLOAT_MAX",
    "FLOAT_MIN",
    "MEMORY_ORDERS",
    "atomic_kind",
    "cas_refusal",
    "rmw_refusal",
]

# The C names for Triton's RMWOp and, below, for MemSemantic.
ATOMIC_KINDS: Mapping[object, str] = MappingProxyType(
    {
        1: "and",
        2: "or",
        3: "xor",
        4: "add",
        5: "fadd",
        6: "max",
        7: "min",
        8: "umax",
        9: "umin",
        10: "exchange",
    }
)
# Numbers of Silo's own operations in ``atomic_rmw_op``: the maximum and minimum of floats that are passed as integers
# of the same bits. A module's text that Silo reads must not contain these numbers.
FLOAT_MAX, FLOAT_MIN = 101, 102
_OWN_KINDS: Mapping[object, str] = MappingProxyType({FLOAT_MAX: "float_max", FLOAT_MIN: "float_min"})
MEMORY_ORDERS: Mapping[object, str] = MappingProxyType(
    {1: "__ATOMIC_RELAXED", 2: "__ATOMIC_ACQUIRE", 3: "__ATOMIC_RELEASE", 4: "__ATOMIC_ACQ_REL"}
)
# For each element type, the suffix of the runtime's functions that exchange and compare-and-swap. These functions work
# on bits.
ATOMIC_BITS: Mapping[str, str] = MappingProxyType(
    {
        "i8": "i8",
        "i16": "i16",
        "i32": "i32",
        "i64": "i64",
        "f16": "u16",
        "bf16": "u16",
        "f32": "f32",
        "f64": "f64",
    }
)


def atomic_kind(operation: Operation) -> str:
    """The runtime's name for the operation of a ``tt.atomic_rmw``."""
    kind = operation.attributes["atomic_rmw_op"]
    return _OWN_KINDS.get(kind) or ATOMIC_KINDS[kind]


def cas_refusal(operation: Operation) -> str:
    """The reason why the CPU compiler does not support this compare-and-swap, or ""."""
    element = operation.result.type.element
    return _refusal(operation) or ("" if element in ATOMIC_BITS else f"atomics on {element}")


def rmw_refusal(operation: Operation) -> str:
    """The reason why the CPU compiler does not support this read-modify-write, or ""."""
    if reason := _refusal(operation):
        return reason
    element = operation.result.type.element
    kind = ATOMIC_KINDS.get(operation.attributes.get("atomic_rmw_op"))
    if kind is None:
        return f"atomic operation {operation.attributes.get('atomic_rmw_op')}"
    supported = FLOATS if kind == "fadd" else ATOMIC_BITS if kind == "exchange" else set(INTEGERS) - {"i1", "index"}
    return "" if element in supported else f"atomic {kind} on {element}"


def _refusal(operation: Operation) -> str:
    if operation.result.type.pointer:
        return "atomics on pointers"
    if operation.attributes.get("sem") not in MEMORY_ORDERS:
        return f"memory order {operation.attributes.get('sem')}"
    return ""

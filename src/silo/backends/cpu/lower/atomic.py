"""Atomic read-modify-write operations and compare-and-swap as calls of the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from silo.backends.cpu.analysis.affine import is_structurally_affine
from silo.backends.cpu.loop_ir import Call, Define
from silo.backends.cpu.lower.scope import Scope
from silo.backends.cpu.ops_types import FLOATS, INTEGERS
from silo.sources.triton.ssa import Operation, Value

__all__ = ["ATOMICS", "Combined", "atomic_call", "atomic_mask", "atomic_refusal", "combined"]

ATOMICS = frozenset({"tt.atomic_cas", "tt.atomic_rmw"})
# Triton's RMWOp and MemSemantic.
_KINDS: Mapping[object, str] = MappingProxyType(
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
_ORDERS: Mapping[object, str] = MappingProxyType(
    {1: "__ATOMIC_RELAXED", 2: "__ATOMIC_ACQUIRE", 3: "__ATOMIC_RELEASE", 4: "__ATOMIC_ACQ_REL"}
)

_COMBINE_FROM = 256  # elements of a tile


def atomic_refusal(operation: Operation) -> str:
    """Why the CPU cannot do this atomic, or ""."""
    element = operation.result.type.element
    if operation.result.type.pointer:
        return "atomics on pointers"
    if operation.attributes.get("sem") not in _ORDERS:
        return f"memory order {operation.attributes.get('sem')}"
    if operation.name == "tt.atomic_cas":
        return "" if element in _BITS else f"atomics on {element}"
    kind = _KINDS.get(operation.attributes.get("atomic_rmw_op"))
    if kind is None:
        return f"atomic operation {operation.attributes.get('atomic_rmw_op')}"
    known = FLOATS if kind == "fadd" else _BITS if kind == "exchange" else set(INTEGERS) - {"i1", "index"}
    return "" if element in known else f"atomic {kind} on {element}"


def atomic_mask(operation: Operation) -> Value | None:
    """The mask of a masked ``tt.atomic_rmw``."""
    masked = operation.name == "tt.atomic_rmw" and len(operation.operands) > 2
    return operation.operands[2] if masked else None


def atomic_call(scope: Scope, operation: Operation, operands: list[str]) -> str:
    """The C expression that does the atomic and is its old value. Masks are the caller's."""
    scope.pieces.add("atomic")
    element = operation.result.type.element
    order = _ORDERS[operation.attributes["sem"]]
    if operation.name == "tt.atomic_cas":
        pointer, compare, value = operands
        return f"silo_atomic_cas_{_BITS[element]}({pointer}, {compare}, {value}, {order})"
    pointer, value = operands[:2]
    kind = _KINDS[operation.attributes["atomic_rmw_op"]]
    if kind == "fadd":
        return f"silo_atomic_fadd_{element}({pointer}, {value}, {order})"
    suffix = _BITS[element] if kind == "exchange" else element
    return f"silo_atomic_{kind}_{suffix}({pointer}, {value}, {order})"


@dataclass(frozen=True, slots=True)
class Combined:
    """The C texts of atomic adds that are summed by place first: before, for each element, and after."""

    table: Define
    start: Call
    add: str
    end: Call


def combined(scope: Scope, operation: Operation, operands: list[str]) -> Combined | None:
    """How the adds of a tile are summed by place before they reach memory; None where that may not or need not be.

    Nobody may have asked for the old values. Addresses that form a line do not meet, and few elements are as quick
    one by one.
    """
    kind = _KINDS.get(operation.attributes.get("atomic_rmw_op"))
    element = operation.result.type.element
    if scope.reference or operation.result.uses or kind != "add" or element not in {"i32", "i64"}:
        return None
    if operation.result.type.elements < _COMBINE_FROM or is_structurally_affine(operation.operands[0]):
        return None
    scope.pieces.add(f"combine_{element}")
    table, order = scope.name("table"), _ORDERS[operation.attributes["sem"]]
    return Combined(
        Define(f"silo_combine_{element}", table, None, mutable=True),
        Call(f"silo_combine_start_{element}(&{table})"),
        f"silo_combine_add_{element}(&{table}, {operands[0]}, {operands[1]}, {order})",
        Call(f"silo_combine_end_{element}(&{table}, {order})"),
    )


# What is exchanged and compared are bits: the runtime's function for each element type.
_BITS: Mapping[str, str] = MappingProxyType(
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

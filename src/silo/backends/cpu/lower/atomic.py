"""Atomics and volatile loads as calls of the runtime."""

from __future__ import annotations

from dataclasses import dataclass

from silo.backends.cpu import ops
from silo.backends.cpu.analysis.affine import is_structurally_affine
from silo.backends.cpu.loop_ir import Call, Define
from silo.backends.cpu.lower.scope import Scope
from silo.backends.cpu.operations import tt
from silo.backends.cpu.ops_atomic import ATOMIC_BITS, ATOMIC_KINDS, MEMORY_ORDERS
from silo.sources.triton.ssa import Operation, Type, Value

__all__ = ["Combined", "atomic_call", "atomic_mask", "combined", "volatile_load"]

_COMBINE_FROM = 256  # elements of a tile
_VOLATILE_SUFFIX = {
    "int8_t": "i8",
    "uint8_t": "u8",
    "int16_t": "i16",
    "uint16_t": "u16",
    "int32_t": "i32",
    "int64_t": "i64",
    "float": "f32",
    "double": "f64",
}


def atomic_mask(operation: Operation) -> Value | None:
    """The mask of a masked ``tt.atomic_rmw``."""
    masked = operation.name == tt.ATOMIC_RMW and len(operation.operands) > 2
    return operation.operands[2] if masked else None


def atomic_call(scope: Scope, operation: Operation, operands: list[str]) -> str:
    """The C expression that does the atomic and is its old value. Masks are the caller's."""
    scope.pieces.add("atomic")
    element = operation.result.type.element
    order = MEMORY_ORDERS[operation.attributes["sem"]]
    if operation.name == tt.ATOMIC_CAS:
        pointer, compare, value = operands
        return f"silo_atomic_cas_{ATOMIC_BITS[element]}({pointer}, {compare}, {value}, {order})"
    pointer, value = operands[:2]
    kind = ATOMIC_KINDS[operation.attributes["atomic_rmw_op"]]
    if kind == "fadd":
        return f"silo_atomic_fadd_{element}({pointer}, {value}, {order})"
    suffix = ATOMIC_BITS[element] if kind == "exchange" else element
    return f"silo_atomic_{kind}_{suffix}({pointer}, {value}, {order})"


def volatile_load(scope: Scope, type_: Type, pointer: str, mask: str, other: str) -> str:
    """The C expression of one element of a volatile load; ``mask`` and ``other`` are "" where it has none."""
    scope.pieces.add("volatile")
    text = f"silo_volatile_load_{_VOLATILE_SUFFIX.get(ops.c_type(type_), 'pointer')}({pointer})"
    return f"{mask} ? {text} : {other or ops.zero(type_)}" if mask else text


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
    kind = ATOMIC_KINDS.get(operation.attributes.get("atomic_rmw_op"))
    element = operation.result.type.element
    if scope.reference or operation.result.uses or kind != "add" or element not in {"i32", "i64"}:
        return None
    if operation.result.type.elements < _COMBINE_FROM or is_structurally_affine(operation.operands[0]):
        return None
    scope.pieces.add(f"combine_{element}")
    table, order = scope.name("table"), MEMORY_ORDERS[operation.attributes["sem"]]
    return Combined(
        Define(f"silo_combine_{element}", table, None, mutable=True),
        Call(f"silo_combine_start_{element}(&{table})"),
        f"silo_combine_add_{element}(&{table}, {operands[0]}, {operands[1]}, {order})",
        Call(f"silo_combine_end_{element}(&{table}, {order})"),
    )

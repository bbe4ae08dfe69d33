"""Atomics and volatile loads as calls of the runtime."""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.affine import is_structurally_affine
from silo.kinds.triton.cpu.analysis.deferred_adds import is_plain_add, may_come_later
from silo.kinds.triton.cpu.loop_ir import Define, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.atomics import ATOMIC_BITS, ATOMIC_KINDS, MEMORY_ORDERS
from silo.kinds.triton.front.ssa import Operation, Type, Value

__all__ = ["Combined", "atomic_call", "atomic_mask", "combined", "volatile_load"]

_COMBINE_FROM = 256  # elements of a tile whose sums end with it
_COMBINE_LATER_FROM = 16
# The table of sums that last (`runtime/combine.h`): a quarter of a second-level cache.
_MOST_SLOTS = 4096
_LINE_BYTES = 64
_ADDS_OF_A_SLOT = 32
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


def atomic_call(scope: LoweringScope, operation: Operation, operands: list[str]) -> str:
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


def volatile_load(scope: LoweringScope, type_: Type, pointer: str, mask: str, other: str) -> str:
    """The C expression of one element of a volatile load; ``mask`` and ``other`` are "" where it has none."""
    scope.pieces.add("volatile")
    text = f"silo_volatile_load_{_VOLATILE_SUFFIX.get(ops.c_type(type_), 'pointer')}({pointer})"
    return f"{mask} ? {text} : {other or ops.zero(type_)}" if mask else text


@dataclass(frozen=True, slots=True)
class Combined:
    """Atomic adds that are summed by place first: C texts of one add, and what comes before and after a tile.

    Where ``direct`` holds, sums are not worth it, and each element is to be added by itself.
    """

    before: tuple[Statement, ...]
    direct: str
    add: str
    after: tuple[Statement, ...]


def combined(scope: LoweringScope, operation: Operation, operands: list[str]) -> Combined | None:
    """How the adds of a tile are summed by place before they reach memory; None where that may not or need not be.

    Nobody may have asked for the old values. Addresses that form a line do not meet, and few elements are as quick
    one by one. Sums outlast their program where nothing can tell (:func:`may_come_later`).
    """
    element = operation.result.type.element
    if scope.reference or not is_plain_add(operation) or is_structurally_affine(operation.operands[0]):
        return None
    extent = operation.result.type.elements
    lasting = scope.in_kernel and may_come_later(scope.module, operation)
    if extent < (_COMBINE_LATER_FROM if lasting else _COMBINE_FROM):
        return None
    scope.pieces.add(f"combine_{element}")
    slots = _MOST_SLOTS if lasting else min(_MOST_SLOTS, 1 << (extent // _ADDS_OF_A_SLOT).bit_length())
    buffers = [
        LoopBuffer(scope.name("b"), ctype, slots * count, size)
        for ctype, count, size in (
            ("uintptr_t", 1, 8),
            (
                f"u{ops.c_type(operation.result.type)}",
                _LINE_BYTES // ops.element_bytes(element),
                ops.element_bytes(element),
            ),
            ("uint16_t", 1, 2),
        )
    ]
    lines, sums, used = (buffer.name for buffer in buffers)
    table, last, order = scope.name("table"), scope.name("last"), MEMORY_ORDERS[operation.attributes["sem"]]
    adds = f"(end - begin) * {extent}" if lasting else str(extent)
    start = LoopCall(f"silo_combine_start_{element}(&{table}, {lines}, {sums}, {used}, {slots}, {adds}, {extent})")
    end = LoopCall(f"silo_combine_end_{element}(&{table}, {order})")
    tile = LoopCall(f"silo_combine_tile_{element}(&{table})")
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = (tile, end)
    if scope.in_kernel:  # what one program found out of the table's worth serves the next
        for buffer in buffers:
            scope.lifetimes.keep(buffer)
        scope.locals += [
            f"silo_combine_{element} {table};",
            f"{start.text};",
            f"uint64_t const {last} = {table}.slots - 1;",
        ]
        if lasting:
            scope.finish.append(end)
            after = (tile,)
    else:
        for buffer in buffers:
            scope.lifetimes.touch(buffer)
        defined = Define(f"silo_combine_{element}", table, None, mutable=True)
        before = (defined, start, Define("uint64_t", last, f"{table}.slots - 1"))
    add = f"silo_combine_add_{element}(&{table}, {lines}, {sums}, {last}, {operands[0]}, {operands[1]}, {order})"
    return Combined(before, f"{table}.direct", add, after)

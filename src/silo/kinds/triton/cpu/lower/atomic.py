"""Lowers atomics and volatile loads: to calls of the C runtime, to sums by address, or to updates by a lone thread."""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.affine import is_structurally_affine
from silo.kinds.triton.cpu.analysis.streams import is_plain_add, may_come_later
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.index import linear_index
from silo.kinds.triton.cpu.lower.leading import Body, leading_loops
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.lower.nest_loops import limited
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.atomics import ATOMIC_BITS, MEMORY_ORDERS, atomic_kind
from silo.kinds.triton.front.ssa import Operation, Type, Value

__all__ = [
    "ALONE",
    "LOCKING",
    "Combined",
    "atomic_call",
    "atomic_mask",
    "atomic_runs",
    "combined",
    "plain_updates",
    "volatile_load",
]

# ---- Atomics and volatile loads as calls of the C runtime ----

# the fewest elements of a tile whose adds are summed by address, if the sums reach memory when the tile ends
_COMBINE_FROM = 256
_COMBINE_LATER_FROM = 16
# The most slots of a table of sums that outlasts its program (`runtime/combine.h`): such a table takes a quarter of a
# second-level cache.
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
    """The mask of a ``tt.atomic_rmw``; None for an atomic without a mask, and for any other operation."""
    masked = operation.name == tt.ATOMIC_RMW and len(operation.operands) > 2
    return operation.operands[2] if masked else None


def atomic_call(scope: LoweringScope, operation: Operation, operands: list[str]) -> str:
    """The C expression that does the atomic operation and returns the old value. Masks are left to the caller."""
    scope.pieces.add("atomic")
    element = operation.result.type.element
    order = MEMORY_ORDERS[operation.attributes["sem"]]
    if operation.name == tt.ATOMIC_CAS:
        pointer, compare, value = operands
        return f"silo_atomic_cas_{ATOMIC_BITS[element]}({pointer}, {compare}, {value}, {order})"
    pointer, value = operands[:2]
    kind = atomic_kind(operation)
    if kind == "fadd":
        return f"silo_atomic_fadd_{element}({pointer}, {value}, {order})"
    suffix = ATOMIC_BITS[element] if kind == "exchange" else element
    return f"silo_atomic_{kind}_{suffix}({pointer}, {value}, {order})"


def volatile_load(scope: LoweringScope, type_: Type, pointer: str, mask: str, other: str) -> str:
    """The C expression of one element of a volatile load; ``mask`` and ``other`` are "" without a mask."""
    scope.pieces.add("volatile")
    text = f"silo_volatile_load_{_VOLATILE_SUFFIX.get(ops.c_type(type_), 'pointer')}({pointer})"
    return f"{mask} ? {text} : {other or ops.zero(type_)}" if mask else text


@dataclass(frozen=True, slots=True)
class Combined:
    """Atomic adds that are summed by address first.

    ``add`` is the C text that adds one element; the statements ``before`` and ``after`` surround the loops over the
    tile.

    At run time, if the C expression ``direct`` is true, summing is not worth it, and each element is added by its own
    atomic.
    """

    before: tuple[Statement, ...]
    direct: str
    add: str
    after: tuple[Statement, ...]


def combined(scope: LoweringScope, operation: Operation, operands: list[str]) -> Combined | None:
    """Code that sums the adds of a tile by address before they reach memory; None if that is not allowed or not useful.

    The old values must be unused. Consecutive addresses never coincide, so summing them gains nothing; nor does summing
    few elements. If no program can observe when the adds reach memory (:func:`may_come_later`), the table of sums is
    kept after the program has ended, and later programs add to it.
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
    if scope.in_kernel:  # the table remembers from one program to the next whether summing is worth it
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


# ---- Atomics with unused old values at consecutive addresses: many elements in one step ----

_RUN = 256  # the most elements of a run: their values are computed into an array before the run's atomics access memory
_LEAST_RUN = 4


def _updates(operation: Operation) -> str:
    """The kind (such as ``add``) of an atomic whose old values are unused; "" for exchanges and other operations."""
    if operation.name != tt.ATOMIC_RMW or operation.result.uses:
        return ""
    kind = atomic_kind(operation)
    return "" if kind == "exchange" else kind


def atomic_runs(scope: LoweringScope, operation: Operation) -> list[Statement]:
    """The loops of an atomic whose addresses are consecutive along the innermost axis.

    [] if they are not consecutive.
    """
    shape, element = operation.result.type.shape, operation.result.type.element
    kind = _updates(operation)
    if scope.reference or not kind or ops.element_bytes(element) == 1:
        return []
    nest = Nest(scope, shape)
    nest.begin_body(fast=True)
    condition = nest.mask(atomic_mask(operation), nest.index)
    start = nest.row_start(operation.operands[0], nest.index)
    value = nest.value(operation.operands[1], nest.index)
    if start is None or nest.wants_runs:
        return []
    limits, extent = nest.limit_statements()
    if extent < _LEAST_RUN:
        return []
    scope.pieces.add("atomic_runs")
    length = min(_RUN, extent)
    first, last, limit, run, on = (scope.name(stem) for stem in ("first", "last", "limit", "run", "on"))
    chosen: list[Statement] = [Assign(f"{on}[{nest.inner} - {first}]", condition)] if condition else []
    fill = [*nest.levels[nest.depth], Assign(f"{run}[{nest.inner} - {first}]", value), *chosen]
    order = MEMORY_ORDERS[operation.attributes["sem"]]
    locks = scope.in_kernel and not scope.options.launch_atomics and operation.attributes.get("scope") != _SYSTEM
    if locks:
        scope.locking.add(operation)
    some = f"{run}, {on if condition else 0}, {last} - {first}"
    by_cells: Statement = LoopCall(f"silo_{kind}_run_{element}({start} + {first}, {some}, {order})")
    locked = LoopCall(f"silo_{kind}_locked_{element}(turns, {start} + {first}, {some})")
    ends = f"{limit} - {first} < {length} ? {limit} : {first} + {length}"
    chunk: list[Statement] = [
        Define("int64_t", last, ends),
        For(nest.inner, first, last, fill, simd=True),
        If(f"alone == {LOCKING}", [locked], [by_cells]) if locks else by_cells,
    ]
    row: list[Statement] = [
        Define(ops.c_type(operation.result.type), f"{run}[{length}]", None, mutable=True),
        *([Define("uint8_t", f"{on}[{length}]", None, mutable=True)] if condition else []),
        *limited(limit, str(extent), limits),
        For(first, "0", limit, chunk, step=str(length)),
    ]
    if limits:
        nest.begin_body(fast=False)
        operands = [nest.value(operand, nest.index) for operand in operation.operands]
        statement: Statement = LoopCall(atomic_call(scope, operation, operands[:2]))
        if locks:
            value = f"&({ops.c_type(operation.result.type)}){{{operands[1]}}}"
            locked = LoopCall(f"silo_{kind}_locked_{element}(turns, {operands[0]}, {value}, 0, 1)")
            statement = If(f"alone == {LOCKING}", [locked], [statement])
        row.append(For(nest.inner, limit, str(extent), [*nest.levels[nest.depth], If(operands[2], [statement])]))
    return nest.outer_loops(row)


# ---- Plain updates by a thread that runs alone: vectorised where addresses are consecutive ----

# Reads the field `alone` of the launch's context (`struct silo_context` of the native module); 0 if the context is too
# short to have this field, because an older native module made it.
_ALONE = (
    "uint32_t const alone = context && *(uint32_t const *)context >= 1048"
    " ? *(uint32_t const *)(void *)((char *)context + 1040) : 0;"
)
# Bits for `turns->enter` (`runtime/turns.h`): its argument has a bit for each mode in which the kernel can run, its
# result has the bit of the granted mode, or is 0. ALONE: no other kernel with atomics runs, so atomics may be plain
# updates. LOCKING: all running kernels with atomics lock each block of memory while they change it.
ALONE, LOCKING = 1, 2
_SYSTEM = 3  # Triton's MemSyncScope "system": other devices and processes may access the memory, too


def plain_updates(
    scope: LoweringScope, nest: Nest, operation: Operation, names: list[str], mask: str
) -> list[Statement]:
    """The code of an atomic for a launch in which the C variable ``alone`` is set: plain updates, in order.

    The order is that of the elements. Returns [] if the operation has to stay atomic. ``names`` are the pointer and the
    value of one element in ``nest``; ``mask`` is the C condition under which the element is updated ("" for always).
    """
    kind = _updates(operation)
    if scope.reference or not scope.in_kernel or not kind:
        return []
    scope.pieces.add("plain_updates")
    if scope.options.launch_atomics:
        if _ALONE not in scope.locals:
            scope.locals.append(_ALONE)
    elif operation.attributes.get("scope") == _SYSTEM:
        return []
    else:
        scope.wants_alone = True
    update = f"silo_{'add' if kind == 'fadd' else kind}_plain_{operation.result.type.element}"
    places, values = (scope.buffer(operand) for operand in operation.operands[:2])
    if places is not None and values is not None and kind in {"add", "fadd"}:
        tile = _by_tiles(scope, nest.shape, operation, places, values)
        if tile:
            return tile
    if places is None:
        return _where_they_are(scope, nest.shape, operation, update)
    call = LoopCall(f"{update}({names[0]}, {names[1]})")
    return nest.loops([*nest.levels[nest.depth], If(mask, [call]) if mask else call])


def _by_tiles(
    scope: LoweringScope, shape: tuple[int, ...], operation: Operation, offsets: LoopBuffer, values: LoopBuffer
) -> list[Statement]:
    """Adds the values in the buffer ``values`` to the memory at the addresses in the buffer ``offsets``, row by row.

    The leading elements of a row for which the mask is certainly true are added by vectors, later ones singly.

    Returns [] if the number of these leading elements is unknown before the row begins.
    """
    nest = Nest(scope, shape)
    nest.begin_body(fast=True)
    condition = atomic_mask(operation)
    if nest.mask(condition, nest.index):
        return []
    limits, extent = nest.limit_statements()
    limit, element = scope.name("limit"), operation.result.type.element
    start = linear_index(tuple("0" if name == nest.inner else name for name in nest.index), shape)
    row = limited(limit, str(extent), limits)
    row.append(LoopCall(f"silo_add_tile_{element}({offsets.name} + {start}, {values.name} + {start}, {limit})"))
    if limits:
        assert condition is not None
        nest.begin_body(fast=False)
        inside = nest.value(condition, nest.index)
        at = linear_index(nest.index, shape)
        add = LoopCall(f"silo_add_plain_{element}({offsets.name}[{at}], {values.name}[{at}])")
        row.append(For(nest.inner, limit, str(extent), [*nest.levels[nest.depth], If(inside, [add])]))
    return nest.outer_loops(row)


def _where_they_are(scope: LoweringScope, shape: tuple[int, ...], operation: Operation, update: str) -> list[Statement]:
    """The loops of plain updates whose addresses are computed where they are used, not read from a buffer.

    The loop over consecutive addresses is vectorised. That needs each update to leave the operands of all later updates
    unchanged. It does: an operand was loaded before the loops, or ``CpuOptions.elements_apart`` promises that its load
    reads no other element's address.
    """
    pointer, value = operation.operands[:2]

    def body(nest: Nest) -> Body:
        condition = nest.mask(atomic_mask(operation), nest.index)
        address, _ = nest.place(pointer, nest.index)
        call = LoopCall(f"{update}(&{address}, {nest.value(value, nest.index)})")
        return Body([If(condition, [call]) if condition else call], simd=address.endswith(f"[{nest.inner}]"))

    return leading_loops(scope, shape, body)

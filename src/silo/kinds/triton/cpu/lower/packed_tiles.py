"""Packed panels of a matrix product's operand that later products use again, in the same program or the next one.

A panel is a part of the operand, copied into the order in which the product reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.cpu.analysis.streams import enclosing_loops
from silo.kinds.triton.cpu.analysis.value_properties import keeps_unchanged, loaded_by
from silo.kinds.triton.cpu.loop_ir import Assign, Define, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.runtime import DOT_DEPTH_BYTES
from silo.kinds.triton.front.ssa import Operation, Type, Value

__all__ = ["Panels", "keep_panels", "slots_of"]

# The most bytes of a right operand's panels that are kept from program to program: part of a second-level cache.
_KEPT_BYTES = 1 << 20
# The most bytes of panels that one product in a loop keeps: half of ``_KEPT_BYTES``, because the loop of attention has
# two products.
_SLOTS_BYTES = 1 << 19
_MOST_SLOTS = 64
_LEAST_SLOTS = 4
# the depth of a product is filled up with zeros to a multiple of this many words, the depth of a matrix tile
_TILE_WORDS = 16


@dataclass(frozen=True, slots=True)
class Panels:
    """Where panels are kept, as C texts: ``kept`` identifies the operand (``0``: unused), ``place`` is their address.

    ``room`` is the number of values that fit. If the panels of either operand may be kept, ``pair`` is the address of a
    variable that holds the last product's operands; else it is "".
    """

    kept: str
    place: str
    room: int
    buffer: LoopBuffer
    pair: str = ""


def keep_panels(scope: LoweringScope, left: Value, right: Value, result: Type) -> Panels | None:
    """Reserves memory for the packed panels of an operand that programs cannot change; None if they may change it.

    The operand is ``right``. If the accumulator consists of whole vectors along both axes, the panels of ``left`` may
    be kept instead.
    """
    if not _keeps_unchanged(scope, right):
        return None
    item = 8 if right.type.element == "f64" else 4
    lanes = scope.options.vector_bits // 8 // item
    either = item == 4 and not any(extent % lanes for extent in result.shape) and _keeps_unchanged(scope, left)
    minimum = max(*result.shape, lanes) * DOT_DEPTH_BYTES * 2  # f16 may take two words where other types take one
    panels = _buffer(scope, max(_KEPT_BYTES, minimum), item)
    variable, pair = scope.name("kept"), scope.name("pair") if either else ""
    scope.locals.append(f"silo_kept {variable} = {{0, 0, 0, 0, 0}};")
    if either:
        scope.locals.append(f"silo_pair {pair} = {{0, 0, -1}};")
        _make_last(scope, variable, pair)
    return Panels(f"&{variable}", panels.name, panels.elements, panels, f"&{pair}" if either else "")


def _make_last(scope: LoweringScope, panels: str, pair: str) -> None:
    """Keeps the panels that a call has packed for the kernel's first product, so that the next call can use them.

    The panels stay in scratch memory; their description is copied to the launch's context at the end of a call, and
    back at the start of the next.
    """
    if "lasting" in scope.pieces:
        return
    scope.pieces.add("lasting")
    scope.locals.append("struct silo_lasting *const lasting = silo_lasting_of(context);")
    memory = (("lasting->memory", panels), ("lasting->memory + 5", pair))
    read = " ".join(f"__builtin_memcpy(&{name}, {address}, sizeof {name});" for address, name in memory)
    scope.locals.append(f"if (lasting && lasting->held) {{ {read} }}")
    written: list[Statement] = [
        LoopCall(f"__builtin_memcpy({address}, &{name}, sizeof {name})") for address, name in memory
    ]
    scope.finish.append(If("lasting", [*written, Assign("lasting->held", "1")]))


def _keeps_unchanged(scope: LoweringScope, operand: Value) -> bool:
    load = loaded_by(operand)
    assert load is not None, "the scheduler looked for the load"
    return keeps_unchanged(scope.module, load)


def slots_of(
    scope: LoweringScope, operation: Operation, tile: str, copied: str, words: tuple[int, int], unless: str
) -> Panels | None:
    """Slots for the packed right operand of a product in a loop, one per iteration; None if no slot would be reused.

    ``tile`` is the operand as ``silo_tile``. ``copied`` is the C condition under which the operand is in a buffer of
    the program itself, and ``unless`` the condition under which the operand is multiplied in place (each "" for never).
    ``words`` are the number of elements that share a word, and the number of words that hold them: two for f16, whose
    elements are each split into two bf16 parts.
    """
    right = operation.operands[1]
    load = loaded_by(right)
    inside = any(loop is not None for loop in enclosing_loops(operation))
    if load is None or not inside or not scope.in_kernel or scope.reference or len(right.type.shape) != 2:
        return None
    if not keeps_unchanged(scope.module, load):
        return None
    depth, columns = right.type.shape
    item = 8 if right.type.element == "f64" else 4
    lanes = scope.options.vector_bits // 8 // item
    filled = -(-columns // lanes) * lanes
    share, parts = words
    long = depth if share == 1 else -(depth // -(share * _TILE_WORDS)) * _TILE_WORDS
    size = max(long, 1) * parts * filled
    count = min(_SLOTS_BYTES // (size * item), _MOST_SLOTS)
    if count < _LEAST_SLOTS:
        return None
    panels = _buffer(scope, count * size * item, item)
    kept, slots, slot = scope.name("kept"), scope.name("slots"), scope.name("slot")
    scope.locals += [f"silo_kept {kept}[{count}] = {{{{0, 0, 0, 0, 0}}}};", f"silo_slots {slots} = {{-1, 0, 0}};"]
    never = " || ".join(text for text in (copied, unless) if text)
    next_slot = f"silo_next_slot(&{slots}, {kept}, {count}, program, {tile}, {depth}, {columns})"
    scope.emit(Define("int64_t", slot, f"{never} ? -1 : {next_slot}" if never else next_slot))
    # A tile that has no slot of its own uses the last one, whose contents are then no longer valid for later
    # iterations.
    scope.emit(Assign(f"{kept}[{count - 1}].at", "0", f"{slot} < 0"))
    address = f"{panels.name} + ({slot} < 0 ? {count - 1} : {slot}) * {size}"
    return Panels(f"{slot} < 0 ? 0 : &{kept}[{slot}]", address, size, panels)


def _buffer(scope: LoweringScope, size: int, item: int) -> LoopBuffer:
    buffer = LoopBuffer(scope.name("b"), "double" if item == 8 else "float", size // item, item)
    scope.lifetimes.touch(buffer)
    scope.lifetimes.keep(buffer)
    return buffer

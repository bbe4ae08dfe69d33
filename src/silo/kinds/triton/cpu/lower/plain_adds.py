"""Atomic adds of a launch whose programs one thread runs: plain adds, by vectors where places lie side by side.

Only where the caller says that nothing else reaches the memory of a launch's atomics (``cpu_launch_atomics``).
"""

from __future__ import annotations

from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.atomic import atomic_mask
from silo.kinds.triton.cpu.lower.index import linear_index
from silo.kinds.triton.cpu.lower.leading import Body, leading_loops
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.atomics import ATOMIC_KINDS
from silo.kinds.triton.front.ssa import Operation

__all__ = ["plain_adds"]

# As `struct silo_context` of the native module has it; an older one, or none, says nothing.
_ALONE = (
    "uint32_t const alone = context && *(uint32_t const *)context >= 1048"
    " ? *(uint32_t const *)(void *)((char *)context + 1040) : 0;"
)


def plain_adds(scope: LoweringScope, nest: Nest, operation: Operation, names: list[str], mask: str) -> list[Statement]:
    """What a thread does that is ``alone``, in the order of the elements; [] where atomics stay what they are.

    ``names`` are pointer and value of one element in ``nest``, ``mask`` its condition ("" for always).
    """
    if not scope.options.launch_atomics or scope.reference or not scope.in_kernel:
        return []
    if operation.name != tt.ATOMIC_RMW or operation.result.uses:
        return []
    if ATOMIC_KINDS[operation.attributes["atomic_rmw_op"]] not in {"add", "fadd"}:
        return []
    element = operation.result.type.element
    scope.pieces.add("plain_adds")
    if _ALONE not in scope.locals:
        scope.locals.append(_ALONE)
    places, values = (scope.buffer(operand) for operand in operation.operands[:2])
    if places is not None and values is not None:
        tile = _by_tiles(scope, nest.shape, operation, places, values)
        if tile:
            return tile
    if places is None and values is None and scope.options.elements_apart:
        return _where_they_are(scope, nest.shape, operation)
    add = LoopCall(f"silo_add_plain_{element}({names[0]}, {names[1]})")
    return nest.loops([*nest.levels[nest.depth], If(mask, [add]) if mask else add])


def _by_tiles(
    scope: LoweringScope, shape: tuple[int, ...], operation: Operation, places: LoopBuffer, values: LoopBuffer
) -> list[Statement]:
    """Rows whose places and values lie in memory, as far as the mask holds, and then one by one.

    [] where nobody knows how far that is.
    """
    nest = Nest(scope, shape)
    nest.begin_body(fast=True)
    condition = atomic_mask(operation)
    if nest.mask(condition, nest.index):
        return []
    limits, extent = nest.limit_statements()
    limit, element = scope.name("limit"), operation.result.type.element
    start = linear_index(tuple("0" if name == nest.inner else name for name in nest.index), shape)
    row: list[Statement] = [Define("int64_t", limit, str(extent), mutable=True)]
    row += [Assign(limit, text.replace("limit", limit)) for text in limits]
    row.append(LoopCall(f"silo_add_tile_{element}({places.name} + {start}, {values.name} + {start}, {limit})"))
    if limits:
        assert condition is not None
        nest.begin_body(fast=False)
        inside = nest.value(condition, nest.index)
        at = linear_index(nest.index, shape)
        add = LoopCall(f"silo_add_plain_{element}({places.name}[{at}], {values.name}[{at}])")
        row.append(For(nest.inner, limit, str(extent), [*nest.levels[nest.depth], If(inside, [add])]))
    return nest.outer_loops(row)


def _where_they_are(scope: LoweringScope, shape: tuple[int, ...], operation: Operation) -> list[Statement]:
    """Places and values that do not lie in memory: by vectors where places are successive, as nothing else is there."""
    pointer, value = operation.operands[:2]
    element = operation.result.type.element

    def body(nest: Nest) -> Body:
        condition = nest.mask(atomic_mask(operation), nest.index)
        place, _ = nest.place(pointer, nest.index)
        add = LoopCall(f"silo_add_plain_{element}(&{place}, {nest.value(value, nest.index)})")
        return Body([If(condition, [add]) if condition else add], simd=place.endswith(f"[{nest.inner}]"))

    return leading_loops(scope, shape, body)

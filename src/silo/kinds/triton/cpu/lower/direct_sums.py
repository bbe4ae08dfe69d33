"""Running sums from memory to memory, of a row that is only loaded, summed and stored.

In three steps, the row is copied to scratch memory, summed there and copied to its destination. A single pass does the
same, if no mask excludes an element before the last one, and the destination does not partly overlap the source.
"""

from __future__ import annotations

from collections.abc import Sequence

from silo.kinds.triton.cpu.analysis.value_properties import load_parts, store_parts
from silo.kinds.triton.cpu.loop_ir import If, LoopCall, Statement
from silo.kinds.triton.cpu.lower.group import lower_group
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.materialized import lower_whole
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.lower.nest_loops import limited
from silo.kinds.triton.cpu.lower.overlap import safe_to_fuse
from silo.kinds.triton.cpu.lower.streaming import streaming_of
from silo.kinds.triton.cpu.schedule.block_schedule import BufferFill, NestGroup, Step, StoreSink, WholeStep
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.c_types import element_bytes
from silo.kinds.triton.front.ssa import Operation

__all__ = ["DIRECT_STEPS", "lower_direct_sum"]

DIRECT_STEPS = 3  # the number of steps that one pass replaces: the load, the sums, the store
_STATEMENTS = 2  # the number of statements in the loop that stores the sums
_CASTS = {"i32": "(uint32_t *)", "i64": "(uint64_t *)"}


def lower_direct_sum(scope: LoweringScope, steps: Sequence[Step]) -> bool:
    """Emits the three steps of a running sum twice: as one pass, and unchanged. A run-time condition chooses.

    The unchanged steps run if the single pass would be wrong, or if the stores should bypass the caches. Returns False,
    and emits nothing, if ``steps`` are not a load, a running sum and a store of one row.
    """
    parts = None if scope.reference else _parts(scope, steps)
    if parts is None:
        return False
    load, scan, store = parts
    type_ = scan.result.type
    (source, mask, _), (target, _, _) = load_parts(load), store_parts(store)
    nest = Nest(scope, type_.shape)
    nest.begin_body(fast=True)
    starts = [nest.row_start(pointer, nest.index) for pointer in (target, source)]
    if None in starts or nest.mask(mask, nest.index):
        return False
    limits, extent = nest.limit_statements()
    ended, fits = nest.ends()
    if limits and not ended:
        return False
    for statement in nest.levels[0]:
        scope.emit(statement)
    fill, _, stored = steps
    assert isinstance(fill, NestGroup)
    assert isinstance(stored, NestGroup)
    conditions = [] if fits == "1" else [fits]
    conditions.append(f"({safe_to_fuse(scope, NestGroup(type_.shape, checks=[(load, store)]))})")
    streaming = streaming_of(scope, nest, [store], _STATEMENTS)
    if streaming is not None:
        conditions.append(f"!({streaming.condition})")
    count, cast = scope.name("limit"), _CASTS.get(type_.element, "")
    scope.pieces.add(f"sums_{type_.element}")
    rows = ", ".join(f"{cast}{start}" for start in starts)
    direct: list[Statement] = [
        *limited(count, str(extent), limits),
        LoopCall(f"silo_running_sum_to_{type_.element}({rows}, {count})"),
    ]
    with scope.collecting() as apart:
        lower_group(scope, fill)
        scope.lifetimes.advance()
        lower_whole(scope, scan)
        scope.lifetimes.advance()
        lower_group(scope, stored)
    scope.emit(If(" && ".join(conditions), direct, apart))
    return True


def _parts(scope: LoweringScope, steps: Sequence[Step]) -> tuple[Operation, Operation, Operation] | None:
    """The load, the running sum and the store of one row, if ``steps`` are exactly these operations; else None."""
    match steps:
        case [
            NestGroup(sinks=[BufferFill(value=value, target=target, staged=False)], checks=[]),
            WholeStep(scan),
            NestGroup(sinks=[StoreSink(store)], checks=[]),
        ] if value is target and scan.name == tt.SCAN and not scan.attributes.get("reverse"):
            load = value.owner
        case _:
            return None
    pointer, stored, mask = store_parts(store)
    (shape, element) = scan.result.type.shape, scan.result.type.element
    if load is None or load.name != tt.LOAD or scan.operands != [value] or stored is not scan.result:
        return None
    if len(value.uses) != 1 or len(scan.result.uses) != 1 or len(shape) != 1 or pointer.type.shape != shape:
        return None
    if shape[0] * element_bytes(element) * 8 < scope.options.vector_bits:
        return None
    loaded_mask = load_parts(load)[1]
    if mask is None or loaded_mask is None:
        same = mask is loaded_mask
    else:
        same = scope.resolve(mask) is scope.resolve(loaded_mask)
    return (load, scan, store) if same else None

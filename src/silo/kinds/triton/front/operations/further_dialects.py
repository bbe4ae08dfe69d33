"""Records of operations outside of arith, math, tt and control flow: Gluon's, the CPU compiler's, and a few others.

An operation of these dialects without a record here counts as reading and writing through each of its pointer operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from silo.core.signature import Effect
from silo.kinds.triton.front.operations.attribute_rules import (
    ARRAY,
    NO_ATTRIBUTES,
    OPAQUE,
    SPACE_OR_HINT,
    UNREAD,
    any_number,
    integers,
    rules,
)
from silo.kinds.triton.front.operations.cpu.c_arith import poison
from silo.kinds.triton.front.operations.operation_record import (
    Family,
    Flow,
    OperationRecord,
    OperationRole,
    SideEffect,
    define,
    derived,
    no_flow,
)
from silo.kinds.triton.front.operations.type_rules import assume_types, no_values, poison_types
from silo.kinds.triton.front.ssa import Module, Operation, Value

POISON: Final = define("ub.poison", types=poison_types, attributes=rules(value=OPAQUE), cheap=True, render=poison)
ASSUME: Final = define(
    "llvm.intr.assume",
    OperationRole.HINT,
    types=assume_types,
    attributes=rules(
        op_bundle_sizes=integers(any_number),
        op_bundle_tags=ARRAY,
    ),
)
GPU_BARRIER: Final = define(
    "gpu.barrier", OperationRole.BARRIER, types=no_values, attributes=rules(address_spaces=UNREAD)
)
UNREACHABLE: Final = define(
    "ub.unreachable", OperationRole.FOREIGN, types=no_values, attributes=NO_ATTRIBUTES, terminator=True, flow=no_flow
)


def _silo_record(name: str, role: OperationRole, side_effect: SideEffect = SideEffect.NONE) -> OperationRecord:
    """The record of an operation that only Silo's own passes create; its types and attributes are not checked."""
    return define(name, role, types=None, attributes=None, side_effect=side_effect)


# A sorting network as one operation; `analysis.networks` puts it in place of the network's single steps.
NETWORK: Final = _silo_record("silo.network", OperationRole.WHOLE)
# An operation that returns its operand with the two elements along ``axis`` exchanged (created by `analysis.networks`).
MIRROR: Final = _silo_record("silo.mirror", OperationRole.SHUFFLE)
# `analysis.orders` replaces volatile loads by VOLATILE_LOAD and barriers by FENCE, and puts fences before stores.
VOLATILE_LOAD: Final = _silo_record("silo.volatile_load", OperationRole.ORDERED, SideEffect.WRITES)
FENCE: Final = _silo_record("silo.fence", OperationRole.ELEMENTWISE, SideEffect.WRITES)
# An operation that returns the nanoseconds since a fixed moment as i64 (`analysis.ssa_rewriting` uses it for polls).
CLOCK: Final = _silo_record("silo.nanoseconds", OperationRole.LEAF)

# Several threads may share one program of a matrix product: each computes some of the rows (`analysis.row_parts`).
# These operations return, as i32, the first row that the running thread computes, and the number of its rows.
PART_FIRST: Final = _silo_record("silo.part_first", OperationRole.LEAF)
PART_ROWS: Final = _silo_record("silo.part_rows", OperationRole.LEAF)

# ---- operations that `checking.instrument` adds: they check accesses, assertions and the use of doubtful values
ACCESS: Final = _silo_record("silo.access", OperationRole.CHECK)
BEGIN: Final = _silo_record("silo.begin", OperationRole.CHECK)
HINT: Final = _silo_record("silo.hint", OperationRole.CHECK)
HOLDS: Final = _silo_record("silo.holds", OperationRole.CHECK)
PLACE: Final = _silo_record("silo.place", OperationRole.CHECK)
STEP: Final = _silo_record("silo.step", OperationRole.CHECK)
STORES: Final = _silo_record("silo.stores", OperationRole.CHECK)
SUSPECT: Final = _silo_record("silo.suspect", OperationRole.CHECK)
WITHIN: Final = _silo_record("silo.within", OperationRole.CHECK)


_PARTITIONS = "ttg.warp_specialize.partitions"


def _gpu(
    name: str, *, access: Effect | None = None, flow: Flow | None = None, family: Family | None = None
) -> OperationRecord:
    return define(name, OperationRole.FOREIGN, types=None, attributes=None, access=access, flow=flow, family=family)


def _specialize_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Value flow of warp specialization.

    Captured values go to partition arguments, and the default region's yields to results.
    """
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.name == _PARTITIONS:
                    yield from _partition_flow(_module, inner, operation.operands)
                elif inner.name == "ttg.warp_yield":
                    yield from zip(inner.operands, operation.results, strict=False)


def _partition_flow(
    _module: Module, operation: Operation, captured: list[Value] | None = None
) -> Iterator[tuple[Value, Value]]:
    for region in operation.regions:
        if region.blocks:
            yield from zip(captured or operation.operands, region.blocks[0].arguments, strict=False)


# ---- barriers, which plain Triton kernels may also contain
TTG_BARRIER: Final = define(
    "ttg.barrier", OperationRole.BARRIER, types=no_values, attributes=rules(addrSpace=SPACE_OR_HINT)
)
TTG_LOCAL_BARRIER: Final = define("ttg.local_barrier", OperationRole.BARRIER, types=no_values, attributes=NO_ATTRIBUTES)

# ---- global memory
ASYNC_COPY: Final = _gpu("ttg.async_copy_global_to_local", access=Effect.READ, family=Family.LOAD)
TMA_LOAD: Final = _gpu("ttng.async_tma_copy_global_to_local", access=Effect.READ, family=Family.LOAD)
TMA_GATHER: Final = _gpu("ttng.async_tma_gather", access=Effect.READ, family=Family.LOAD)
TMA_STORE: Final = _gpu("ttng.async_tma_copy_local_to_global", access=Effect.WRITE, family=Family.STORE)
TMA_SCATTER: Final = _gpu("ttng.async_tma_scatter", access=Effect.WRITE, family=Family.STORE)
TMA_REDUCE: Final = _gpu("ttng.async_tma_reduce", access=Effect.BOTH, family=Family.ATOMIC)

# ---- operations that return their operand's values unchanged
CONVERT_LAYOUT: Final = _gpu("ttg.convert_layout", flow=derived)
REINTERPRET: Final = _gpu("ttng.reinterpret_tensor_descriptor", flow=derived)

# ---- partitions of a program's warps
SPECIALIZE: Final = _gpu("ttg.warp_specialize", flow=_specialize_flow)
PARTITIONS: Final = _gpu("ttg.warp_specialize.partitions", flow=_partition_flow)
WARP_YIELD: Final = _gpu("ttg.warp_yield", flow=no_flow)
WARP_RETURN: Final = _gpu("ttg.warp_return", flow=no_flow)

# ---- products of matrices in shared and tensor memory
WGMMA: Final = _gpu("ttng.warp_group_dot", flow=no_flow, family=Family.DOT)
TCGEN05: Final = _gpu("ttng.tc_gen5_mma", flow=no_flow, family=Family.DOT)
TCGEN05_SCALED: Final = _gpu("ttng.tc_gen5_mma_scaled", flow=no_flow, family=Family.DOT)

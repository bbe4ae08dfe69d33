"""The few operations of other dialects that a plain Triton kernel may hold."""

from __future__ import annotations

from typing import Final

from silo.kinds.triton.front.operations.attribute_rules import (
    ARRAY,
    NO_ATTRIBUTES,
    OPAQUE,
    UNREAD,
    any_number,
    integers,
    rules,
)
from silo.kinds.triton.front.operations.cpu.c_arith import poison
from silo.kinds.triton.front.operations.operation_record import OperationRole, define, no_flow
from silo.kinds.triton.front.operations.type_rules import assume_types, no_values, poison_types

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

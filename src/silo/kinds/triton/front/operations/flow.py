"""Records of loops, branches and jumps (the dialects ``scf`` and ``cf``). Jumps come from early returns."""

from __future__ import annotations

from typing import Final

from silo.kinds.triton.front.operations.attribute_rules import (
    FLAG,
    NO_ATTRIBUTES,
    any_number,
    integers,
    rules,
    segments,
)
from silo.kinds.triton.front.operations.cpu.c_types import control_refusal
from silo.kinds.triton.front.operations.operation_record import (
    Family,
    OperationRole,
    branch_flow,
    define,
    for_flow,
    if_flow,
    no_flow,
    while_flow,
)
from silo.kinds.triton.front.operations.type_rules import branch_types, for_types, if_types, while_types

FOR: Final = define(
    "scf.for",
    OperationRole.CONTROL,
    types=for_types,
    attributes=rules(unsignedCmp=FLAG),
    region_ends=("scf.yield",),
    flow=for_flow,
    family=Family.LOOP,
    refuse=control_refusal,
)
IF: Final = define(
    "scf.if",
    OperationRole.CONTROL,
    types=if_types,
    attributes=NO_ATTRIBUTES,
    region_ends=("scf.yield",),
    flow=if_flow,
    refuse=control_refusal,
)
WHILE: Final = define(
    "scf.while",
    OperationRole.CONTROL,
    types=while_types,
    attributes=NO_ATTRIBUTES,
    region_ends=("scf.condition", "scf.yield"),
    flow=while_flow,
    family=Family.LOOP,
    refuse=control_refusal,
)
YIELD: Final = define(
    "scf.yield", OperationRole.YIELD, types=None, attributes=NO_ATTRIBUTES, terminator=True, flow=no_flow
)
CONDITION: Final = define(
    "scf.condition", OperationRole.YIELD, types=None, attributes=NO_ATTRIBUTES, terminator=True, flow=no_flow
)
BR: Final = define(
    "cf.br",
    OperationRole.JUMP,
    types=branch_types,
    attributes=NO_ATTRIBUTES,
    terminator=True,
    flow=branch_flow,
    carries=True,
)
COND_BR: Final = define(
    "cf.cond_br",
    OperationRole.JUMP,
    types=branch_types,
    attributes=rules({"operandSegmentSizes": segments(3)}, branch_weights=integers(any_number)),
    terminator=True,
    flow=branch_flow,
    carries=True,
)

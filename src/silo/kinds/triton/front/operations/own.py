"""Operations that passes of the CPU compiler put in the place of others; no front end writes them."""

from __future__ import annotations

from typing import Final

from silo.kinds.triton.front.operations.operation_record import OperationRecord, OperationRole, SideEffect, define


def _own(name: str, role: OperationRole, side_effect: SideEffect = SideEffect.NONE) -> OperationRecord:
    """An operation that no text has: nothing reads its types or attributes but the pass that lowers it."""
    return define(name, role, types=None, attributes=None, side_effect=side_effect)


# A sorting network, which `analysis.networks` puts in the place of its steps.
NETWORK: Final = _own("silo.network", OperationRole.WHOLE)
# The operand with the elements along ``axis``, of extent 2, exchanged (`analysis.mirror`).
MIRROR: Final = _own("silo.mirror", OperationRole.SHUFFLE)
# What `analysis.waiting` puts in the place of volatile loads and barriers, and before stores.
VOLATILE_LOAD: Final = _own("silo.volatile_load", OperationRole.ORDERED, SideEffect.WRITES)
FENCE: Final = _own("silo.fence", OperationRole.ELEMENTWISE, SideEffect.WRITES)
# Nanoseconds since some moment, an i64 (`analysis.polls`).
CLOCK: Final = _own("silo.nanoseconds", OperationRole.LEAF)

# The first row of the part of a program that is to run, and how many rows the part has, both i32, where tiles have
# ``rows`` rows (`analysis.row_parts`).
PART_FIRST: Final = _own("silo.part_first", OperationRole.LEAF)
PART_ROWS: Final = _own("silo.part_rows", OperationRole.LEAF)

# ---- the queries of a kernel that checks itself (`checking.instrument`)
ACCESS: Final = _own("silo.access", OperationRole.CHECK)
BEGIN: Final = _own("silo.begin", OperationRole.CHECK)
HINT: Final = _own("silo.hint", OperationRole.CHECK)
HOLDS: Final = _own("silo.holds", OperationRole.CHECK)
PLACE: Final = _own("silo.place", OperationRole.CHECK)
STEP: Final = _own("silo.step", OperationRole.CHECK)
STORES: Final = _own("silo.stores", OperationRole.CHECK)
SUSPECT: Final = _own("silo.suspect", OperationRole.CHECK)
WITHIN: Final = _own("silo.within", OperationRole.CHECK)

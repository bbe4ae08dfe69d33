"""Operations that passes of the CPU compiler put in the place of others; no front end writes them."""

from __future__ import annotations

from typing import Final

from silo.kinds.triton.front.operations.operation_record import Record, Role, SideEffect, define


def _own(name: str, role: Role, side_effect: SideEffect = SideEffect.NONE) -> Record:
    """An operation that no text has: nothing reads its types or attributes but the pass that lowers it."""
    return define(name, role, types=None, attributes=None, side_effect=side_effect)


# A sorting network, which `analysis.networks` puts in the place of its steps.
NETWORK: Final = _own("silo.network", Role.WHOLE)
# The operand with the elements along ``axis``, of extent 2, exchanged (`analysis.mirror`).
MIRROR: Final = _own("silo.mirror", Role.SHUFFLE)
# What `analysis.waiting` puts in the place of volatile loads and barriers, and before stores.
VOLATILE_LOAD: Final = _own("silo.volatile_load", Role.ORDERED, SideEffect.WRITES)
FENCE: Final = _own("silo.fence", Role.ELEMENTWISE, SideEffect.WRITES)
# Nanoseconds since some moment, an i64 (`analysis.polls`).
CLOCK: Final = _own("silo.nanoseconds", Role.LEAF)

# ---- what a kernel that checks itself asks (`checking.instrument`)
ACCESS: Final = _own("silo.access", Role.CHECK)
BEGIN: Final = _own("silo.begin", Role.CHECK)
HINT: Final = _own("silo.hint", Role.CHECK)
HOLDS: Final = _own("silo.holds", Role.CHECK)
PLACE: Final = _own("silo.place", Role.CHECK)
STEP: Final = _own("silo.step", Role.CHECK)
STORES: Final = _own("silo.stores", Role.CHECK)
SUSPECT: Final = _own("silo.suspect", Role.CHECK)
WITHIN: Final = _own("silo.within", Role.CHECK)

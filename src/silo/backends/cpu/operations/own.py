"""Operations that passes of this compiler put in the place of others; no front end writes them."""

from __future__ import annotations

from typing import Final

from silo.backends.cpu.operations.record import Effect, Role, define

# A sorting network, which `analysis.networks` puts in the place of its steps.
NETWORK: Final = define("silo.network", Role.WHOLE)
# The operand with the elements along ``axis``, of extent 2, exchanged (`analysis.mirror`).
MIRROR: Final = define("silo.mirror", Role.SHUFFLE)
# What `analysis.waiting` puts in the place of volatile loads and barriers, and before stores.
VOLATILE_LOAD: Final = define("silo.volatile_load", Role.ORDERED, effect=Effect.WRITES)
FENCE: Final = define("silo.fence", effect=Effect.WRITES)
# Nanoseconds since some moment, an i64 (`analysis.polls`).
CLOCK: Final = define("silo.nanoseconds", Role.LEAF)

# ---- what a kernel that checks itself asks (`checking.instrument`)
ACCESS: Final = define("silo.access", Role.CHECK)
BEGIN: Final = define("silo.begin", Role.CHECK)
HINT: Final = define("silo.hint", Role.CHECK)
HOLDS: Final = define("silo.holds", Role.CHECK)
PLACE: Final = define("silo.place", Role.CHECK)
STEP: Final = define("silo.step", Role.CHECK)
STORES: Final = define("silo.stores", Role.CHECK)
SUSPECT: Final = define("silo.suspect", Role.CHECK)
WITHIN: Final = define("silo.within", Role.CHECK)

"""Configs to try first: those that imported results of other tuners speak of."""

from __future__ import annotations

from silo.api.session import session
from silo.core.config import Config
from silo.core.keys import seeds_key
from silo.tune.imported import seeds_from_records

__all__ = ["imported_seeds"]


def imported_seeds(kernel: str) -> tuple[Config, ...]:
    """The seeds of the kernel of this name, best first; see :mod:`silo.api.importing`."""
    return seeds_from_records(session().store.records.read(seeds_key(kernel)))

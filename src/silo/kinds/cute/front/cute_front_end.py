"""The DSL's front end, which is not thread-safe: every call of it is made with the one lock held."""

from __future__ import annotations

from silo.forks import Mutex

__all__ = ["FRONT_END"]

# ``cute.compile`` writes the options of one call to an object that all calls share: two threads at once compile for
# each other's target, or take the process down.
FRONT_END = Mutex()

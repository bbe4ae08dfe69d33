"""Tracing of jax as Silo does it: under one lock, for settings of jax are of the whole process or of a thread."""

from __future__ import annotations

from silo.forks import Mutex

__all__ = ["FRONT_END"]

# Source locations are switched off for a trace by a setting of the process; two threads would put back each other's.
FRONT_END = Mutex()
"""Held while a body is traced."""

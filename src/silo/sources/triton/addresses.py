"""Whether a kernel reaches memory that none of its arguments shows, read from its SSA form."""

from __future__ import annotations

from silo.core.decisions import Accepted, Decision, Rejected
from silo.sources.triton.ssa import Module

__all__ = ["shows_its_memory"]


def shows_its_memory(module: Module) -> Decision:
    """Whether all memory that a kernel reaches lies behind its arguments; its functions count as part of it.

    Grouped products do not: they read addresses of matrices from an array of integers or of pointers.
    """
    for one in module.walk():
        if one.name == "tt.int_to_ptr":
            return Rejected("it makes addresses of integers")
        if one.name == "tt.load" and one.result.type.pointer:
            return Rejected("it loads addresses from memory")
    return Accepted()

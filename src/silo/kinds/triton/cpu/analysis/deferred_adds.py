"""Atomic adds that may reach memory after their program has ended, together with later programs' adds."""

from __future__ import annotations

from silo.kinds.triton.cpu.analysis.roots import every_operation, may_precede
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.atomics import ATOMIC_KINDS
from silo.kinds.triton.front.operations.operation_table import CHECKS, EFFECTS
from silo.kinds.triton.front.ssa import Module, Operation

__all__ = ["is_plain_add", "may_come_later"]


def is_plain_add(operation: Operation) -> bool:
    """Whether ``operation`` is an atomic add of integers whose old values nobody asks for."""
    if operation.name != tt.ATOMIC_RMW or operation.result.uses:
        return False
    kind = ATOMIC_KINDS.get(operation.attributes.get("atomic_rmw_op"))
    return kind == "add" and operation.result.type.element in {"i32", "i64"}


def may_come_later(module: Module, operation: Operation) -> bool:
    """Whether no program of a launch can tell when the adds of ``operation`` reach memory.

    Programs have no order among them, and the only way to wait for another's add is an atomic or volatile access, a
    fence or a call. A program's own order shows where it reads or stores anything after it added, through whatever
    argument, because two may lie in one memory. What a program says to the world (a message) ends it, too.
    """
    for other in every_operation(module.entry):
        name = other.name
        if name in {tt.LOAD, tt.STORE}:
            if may_precede(operation, other):
                return False
        elif name in CHECKS or (name in EFFECTS and not is_plain_add(other)):
            return False
    return True

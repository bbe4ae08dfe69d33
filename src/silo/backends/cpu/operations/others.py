"""The few operations of other dialects that a plain Triton kernel may hold."""

from __future__ import annotations

from typing import Final

from silo.backends.cpu.operations.record import Role, define
from silo.backends.cpu.ops_arith import poison

POISON: Final = define("ub.poison", cheap=True, render=poison)
ASSUME: Final = define("llvm.intr.assume", Role.HINT)
TTG_BARRIER: Final = define("ttg.barrier", Role.BARRIER)
TTG_LOCAL_BARRIER: Final = define("ttg.local_barrier", Role.BARRIER)
GPU_BARRIER: Final = define("gpu.barrier", Role.BARRIER)

"""Loops, branches and jumps: the dialects ``scf`` and ``cf``. A jump is for a return that comes early."""

from __future__ import annotations

from typing import Final

from silo.backends.cpu.operations.record import Role, define
from silo.backends.cpu.operations.refusals import control_refusal

FOR: Final = define("scf.for", Role.CONTROL, refuse=control_refusal)
IF: Final = define("scf.if", Role.CONTROL, refuse=control_refusal)
WHILE: Final = define("scf.while", Role.CONTROL, refuse=control_refusal)
YIELD: Final = define("scf.yield", Role.YIELD)
CONDITION: Final = define("scf.condition", Role.YIELD)
BR: Final = define("cf.br", Role.JUMP)
COND_BR: Final = define("cf.cond_br", Role.JUMP)

"""The ``tt`` dialect, Triton's own."""

from __future__ import annotations

from typing import Final

from silo.backends.cpu.operations.arith import TRUNCI
from silo.backends.cpu.operations.record import Effect, Role, define
from silo.backends.cpu.operations.refusals import access_refusal, dot_refusal, dot_scaled_refusal
from silo.backends.cpu.ops_arith import addptr, clampf, float_binary, integer_call
from silo.backends.cpu.ops_atomic import cas_refusal, rmw_refusal
from silo.backends.cpu.ops_cast import bitcast, int_to_ptr, ptr_to_int, triton_float_cast
from silo.backends.cpu.ops_inline import inline_refusal, inline_renderer
from silo.backends.cpu.ops_libdevice import extern_renderer
from silo.backends.cpu.ops_math import function

# More than any threshold: what reads memory is not read twice.
LOAD_COST: Final = 2.0**20

# ---- functions and the program's place
FUNC: Final = define("tt.func", Role.FUNCTION)
CALL: Final = define("tt.call", Role.WHOLE, effect=Effect.WRITES)
RETURN: Final = define("tt.return", Role.JUMP)
GET_PROGRAM_ID: Final = define("tt.get_program_id", Role.LEAF)
GET_NUM_PROGRAMS: Final = define("tt.get_num_programs", Role.LEAF)

# ---- memory
LOAD: Final = define("tt.load", Role.ACCESS, cost=LOAD_COST, refuse=access_refusal)
STORE: Final = define("tt.store", Role.ACCESS, effect=Effect.WRITES, refuse=access_refusal)
ATOMIC_CAS: Final = define("tt.atomic_cas", Role.ORDERED, effect=Effect.WRITES, refuse=cas_refusal)
ATOMIC_RMW: Final = define("tt.atomic_rmw", Role.ORDERED, effect=Effect.WRITES, refuse=rmw_refusal)
ATOMIC_LOAD: Final = define("tt.atomic_load", Role.REWRITTEN)
ATOMIC_STORE: Final = define("tt.atomic_store", Role.REWRITTEN)
ATOMIC_POLL: Final = define("tt.atomic_poll", Role.REWRITTEN)

# ---- shapes
MAKE_RANGE: Final = define("tt.make_range", Role.LEAF, cost=0.0)
SPLAT: Final = define("tt.splat", Role.VIEW, cost=0.0)
EXPAND_DIMS: Final = define("tt.expand_dims", Role.VIEW, cost=0.0)
BROADCAST: Final = define("tt.broadcast", Role.VIEW, cost=0.0)
TRANS: Final = define("tt.trans", Role.VIEW, cost=0.0)
RESHAPE: Final = define("tt.reshape", Role.VIEW, cost=0.0)
CAT: Final = define("tt.cat", Role.SHUFFLE)
GATHER: Final = define("tt.gather", Role.SHUFFLE)
JOIN: Final = define("tt.join", Role.SHUFFLE)
SPLIT: Final = define("tt.split", Role.SHUFFLE)
UNSPLAT: Final = define("tt.unsplat", Role.ORDERED)

# ---- whole tensors
REDUCE: Final = define("tt.reduce", Role.REDUCTION)
SCAN: Final = define("tt.scan", Role.ORDERED)
HISTOGRAM: Final = define("tt.histogram", Role.ORDERED)
DOT: Final = define("tt.dot", Role.DOT, refuse=dot_refusal)
DOT_SCALED: Final = define("tt.dot_scaled", Role.DOT, refuse=dot_scaled_refusal)
MAP_ELEMENTWISE: Final = define("tt.map_elementwise", Role.WHOLE)
MAP_ELEMENTWISE_RETURN: Final = define("tt.map_elementwise.return", Role.REGION_RETURN)
REDUCE_RETURN: Final = define("tt.reduce.return", Role.REGION_RETURN)
SCAN_RETURN: Final = define("tt.scan.return", Role.REGION_RETURN)

# ---- messages
ASSERT: Final = define("tt.assert", Role.ORDERED, effect=Effect.TELLS)
PRINT: Final = define("tt.print", Role.ORDERED, effect=Effect.TELLS)

# ---- elements
ADDPTR: Final = define("tt.addptr", cheap=True, render=addptr)
MULHIUI: Final = define("tt.mulhiui", render=integer_call("mulhiui", signed=False, least=32))
CLAMPF: Final = define("tt.clampf", cost=2.0, render=clampf)
PRECISE_DIVF: Final = define("tt.precise_divf", cost=8.0, render=float_binary("/"))
APPROX_DIVF: Final = define("tt.approx_divf", cheap=True, render=float_binary("/"))
BITCAST: Final = define("tt.bitcast", cheap=True, render=bitcast)
FP_TO_FP: Final = define("tt.fp_to_fp", render=triton_float_cast)
INT_TO_PTR: Final = define("tt.int_to_ptr", cheap=True, render=int_to_ptr)
PTR_TO_INT: Final = define("tt.ptr_to_int", cheap=True, render=ptr_to_int)
PRECISE_SQRT: Final = define("tt.precise_sqrt", cost=8.0, render=function("sqrt"))
ELEMENTWISE_INLINE_ASM: Final = define(
    "tt.elementwise_inline_asm", cost=15.0, render=inline_renderer(TRUNCI), refuse=inline_refusal(TRUNCI)
)
EXTERN_ELEMENTWISE: Final = define("tt.extern_elementwise", cost=15.0, render=extern_renderer)

# ---- orderings that mean nothing here
GRID_DEPENDENCY_LAUNCH_DEPENDENTS: Final = define("tt.grid_dependency_launch_dependents", Role.HINT)
GRID_DEPENDENCY_WAIT: Final = define("tt.grid_dependency_wait", Role.HINT)

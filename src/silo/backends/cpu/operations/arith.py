"""The ``arith`` dialect: arithmetic, comparisons, conversions; ``ops_arith`` and ``ops_cast`` have the expressions."""

from __future__ import annotations

from typing import Final

from silo.backends.cpu.operations.record import Role, define
from silo.backends.cpu.ops_arith import (
    bitwise,
    cmpf,
    cmpi,
    constant,
    float_binary,
    float_call,
    floor_ceil,
    integer_call,
    minmax,
    negf,
    remf,
    select,
    shift,
    wrapping,
    xori,
)
from silo.backends.cpu.ops_cast import bitcast, extend, float_cast, float_to_int, index_cast, int_to_float, trunc

CONSTANT: Final = define("arith.constant", Role.LEAF, cost=0.0, cheap=True, render=constant, refuse=lambda _: "")
ADDI: Final = define("arith.addi", cheap=True, associative=True, render=wrapping("+", "^"))
SUBI: Final = define("arith.subi", cheap=True, render=wrapping("-", "^"))
MULI: Final = define("arith.muli", cheap=True, associative=True, render=wrapping("*", "&"))
ANDI: Final = define("arith.andi", cheap=True, associative=True, render=bitwise("&"))
ORI: Final = define("arith.ori", cheap=True, associative=True, render=bitwise("|"))
XORI: Final = define("arith.xori", cheap=True, associative=True, render=xori)
SHLI: Final = define("arith.shli", cheap=True, render=shift("shl"))
SHRUI: Final = define("arith.shrui", cheap=True, render=shift("shrui"))
SHRSI: Final = define("arith.shrsi", cheap=True, render=shift("shrsi"))
DIVSI: Final = define("arith.divsi", cost=5.0, cheap=True, render=integer_call("divsi", signed=True))
DIVUI: Final = define("arith.divui", cost=5.0, render=integer_call("divui", signed=False))
REMSI: Final = define("arith.remsi", cost=5.0, cheap=True, render=integer_call("remsi", signed=True))
REMUI: Final = define("arith.remui", cost=5.0, render=integer_call("remui", signed=False))
FLOORDIVSI: Final = define("arith.floordivsi", render=floor_ceil("floordiv", signed=True))
CEILDIVSI: Final = define("arith.ceildivsi", render=floor_ceil("ceildiv", signed=True))
CEILDIVUI: Final = define("arith.ceildivui", cheap=True, render=floor_ceil("ceildivui", signed=False))
MINSI: Final = define("arith.minsi", cheap=True, associative=True, render=minmax("minsi", signed=True, on_bool="|"))
MAXSI: Final = define("arith.maxsi", cheap=True, associative=True, render=minmax("maxsi", signed=True, on_bool="&"))
MINUI: Final = define("arith.minui", cheap=True, associative=True, render=minmax("minui", signed=False, on_bool="&"))
MAXUI: Final = define("arith.maxui", cheap=True, associative=True, render=minmax("maxui", signed=False, on_bool="|"))
CMPI: Final = define("arith.cmpi", cost=0.5, cheap=True, render=cmpi)
ADDF: Final = define("arith.addf", associative=True, render=float_binary("+"))
SUBF: Final = define("arith.subf", render=float_binary("-"))
MULF: Final = define("arith.mulf", associative=True, render=float_binary("*"))
DIVF: Final = define("arith.divf", cost=8.0, render=float_binary("/"))
REMF: Final = define("arith.remf", cost=20.0, render=remf)
NEGF: Final = define("arith.negf", cheap=True, render=negf)
CMPF: Final = define("arith.cmpf", cheap=True, render=cmpf)
MAXNUMF: Final = define("arith.maxnumf", cheap=True, associative=True, render=float_call("maxnum", "minmax"))
MINNUMF: Final = define("arith.minnumf", cheap=True, associative=True, render=float_call("minnum", "minmax"))
MAXIMUMF: Final = define("arith.maximumf", cheap=True, associative=True, render=float_call("maximum", "minmax"))
MINIMUMF: Final = define("arith.minimumf", cheap=True, associative=True, render=float_call("minimum", "minmax"))
SELECT: Final = define("arith.select", cheap=True, render=select)
EXTF: Final = define("arith.extf", cheap=True, render=float_cast)
TRUNCF: Final = define("arith.truncf", render=float_cast)
CONVERTF: Final = define("arith.convertf", cheap=True, render=float_cast)
SITOFP: Final = define("arith.sitofp", cheap=True, render=int_to_float(signed=True))
UITOFP: Final = define("arith.uitofp", cheap=True, render=int_to_float(signed=False))
FPTOSI: Final = define("arith.fptosi", render=float_to_int(signed=True))
FPTOUI: Final = define("arith.fptoui", render=float_to_int(signed=False))
EXTSI: Final = define("arith.extsi", cheap=True, render=extend(signed=True))
EXTUI: Final = define("arith.extui", cheap=True, render=extend(signed=False))
TRUNCI: Final = define("arith.trunci", cheap=True, render=trunc)
INDEX_CAST: Final = define("arith.index_cast", cheap=True, render=index_cast(signed=True))
INDEX_CASTUI: Final = define("arith.index_castui", cheap=True, render=index_cast(signed=False))
BITCAST: Final = define("arith.bitcast", cheap=True, render=bitcast)

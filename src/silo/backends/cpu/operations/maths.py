"""The ``math`` dialect. ``ops_math`` and ``ops_arith`` have its expressions."""

from __future__ import annotations

from typing import Final

from silo.backends.cpu.operations.record import define
from silo.backends.cpu.ops_arith import absf, integer_call
from silo.backends.cpu.ops_math import classify, ctpop, fma, function

ABSF: Final = define("math.absf", cost=1.0, cheap=True, render=absf)
ABSI: Final = define("math.absi", cost=1.0, cheap=True, render=integer_call("absi", signed=True))
CTLZ: Final = define("math.ctlz", cost=15.0, render=integer_call("ctlz", signed=False, least=32))
CTTZ: Final = define("math.cttz", cost=15.0, render=integer_call("cttz", signed=False, least=32))
EXP: Final = define("math.exp", cost=15.0, render=function("exp"))
EXP2: Final = define("math.exp2", cost=15.0, render=function("exp2"))
EXPM1: Final = define("math.expm1", cost=15.0, render=function("expm1"))
LOG: Final = define("math.log", cost=15.0, render=function("log"))
LOG2: Final = define("math.log2", cost=15.0, render=function("log2"))
LOG1P: Final = define("math.log1p", cost=15.0, render=function("log1p"))
TANH: Final = define("math.tanh", cost=15.0, render=function("tanh"))
ERF: Final = define("math.erf", cost=15.0, render=function("erf"))
SIN: Final = define("math.sin", cost=15.0, render=function("sin"))
COS: Final = define("math.cos", cost=15.0, render=function("cos"))
ROUND: Final = define("math.round", cost=15.0, render=function("round"))
SQRT: Final = define("math.sqrt", cost=8.0, render=function("sqrt"))
FLOOR: Final = define("math.floor", cost=1.0, render=function("floor"))
CEIL: Final = define("math.ceil", cost=1.0, render=function("ceil"))
TRUNC: Final = define("math.trunc", cost=15.0, render=function("trunc"))
ROUNDEVEN: Final = define("math.roundeven", cost=15.0, render=function("roundeven"))
COPYSIGN: Final = define("math.copysign", cost=15.0, render=function("copysign"))
TAN: Final = define("math.tan", cost=15.0, render=function("tan"))
ASIN: Final = define("math.asin", cost=15.0, render=function("asin"))
ACOS: Final = define("math.acos", cost=15.0, render=function("acos"))
ATAN: Final = define("math.atan", cost=15.0, render=function("atan"))
SINH: Final = define("math.sinh", cost=15.0, render=function("sinh"))
COSH: Final = define("math.cosh", cost=15.0, render=function("cosh"))
ASINH: Final = define("math.asinh", cost=15.0, render=function("asinh"))
ACOSH: Final = define("math.acosh", cost=15.0, render=function("acosh"))
ATANH: Final = define("math.atanh", cost=15.0, render=function("atanh"))
LOG10: Final = define("math.log10", cost=15.0, render=function("log10"))
CBRT: Final = define("math.cbrt", cost=15.0, render=function("cbrt"))
ERFC: Final = define("math.erfc", cost=15.0, render=function("erfc"))
POWF: Final = define("math.powf", cost=15.0, render=function("powf"))
ATAN2: Final = define("math.atan2", cost=15.0, render=function("atan2"))
RSQRT: Final = define("math.rsqrt", cost=10.0, render=function("rsqrt"))
FMA: Final = define("math.fma", cost=1.0, render=fma)
CTPOP: Final = define("math.ctpop", cost=15.0, render=ctpop)
ISNAN: Final = define("math.isnan", cost=15.0, render=classify("__builtin_isnan"))
ISINF: Final = define("math.isinf", cost=15.0, render=classify("__builtin_isinf"))
ISFINITE: Final = define("math.isfinite", cost=15.0, render=classify("__builtin_isfinite"))

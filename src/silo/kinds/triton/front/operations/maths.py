"""The ``math`` dialect; ``c_math`` and ``c_arith`` write its C text."""

from __future__ import annotations

from typing import Final

from silo.kinds.triton.front.operations.attribute_rules import FAST, NO_ATTRIBUTES
from silo.kinds.triton.front.operations.cpu.c_arith import (
    absf,
    builtin,
    classify,
    ctpop,
    fma,
    integer_call,
    own,
    own_f32,
)
from silo.kinds.triton.front.operations.operation_record import define
from silo.kinds.triton.front.operations.type_rules import same_shape, same_type

ABSF: Final = define("math.absf", types=same_type, attributes=FAST, cost=1.0, cheap=True, render=absf)
ABSI: Final = define(
    "math.absi",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    cost=1.0,
    cheap=True,
    render=integer_call("absi", signed=True),
)
CTLZ: Final = define(
    "math.ctlz",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    cost=15.0,
    render=integer_call("ctlz", signed=False, least=32),
)
CTTZ: Final = define(
    "math.cttz",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    cost=15.0,
    render=integer_call("cttz", signed=False, least=32),
)
EXP: Final = define("math.exp", types=same_type, attributes=FAST, cost=15.0, render=own("exp", "exp", "exp_f64"))
EXP2: Final = define("math.exp2", types=same_type, attributes=FAST, cost=15.0, render=own("exp2", "exp", "exp_f64"))
EXPM1: Final = define("math.expm1", types=same_type, attributes=FAST, cost=15.0, render=own_f32("expm1", "exp"))
LOG: Final = define("math.log", types=same_type, attributes=FAST, cost=15.0, render=own("log", "log", "log_f64"))
LOG2: Final = define("math.log2", types=same_type, attributes=FAST, cost=15.0, render=own("log2", "log", "log_f64"))
LOG1P: Final = define("math.log1p", types=same_type, attributes=FAST, cost=15.0, render=own_f32("log1p", "log"))
TANH: Final = define("math.tanh", types=same_type, attributes=FAST, cost=15.0, render=own("tanh", "tanh", "tanh_f64"))
ERF: Final = define("math.erf", types=same_type, attributes=FAST, cost=15.0, render=own_f32("erf", "erf"))
SIN: Final = define("math.sin", types=same_type, attributes=FAST, cost=15.0, render=own_f32("sin", "trig"))
COS: Final = define("math.cos", types=same_type, attributes=FAST, cost=15.0, render=own_f32("cos", "trig"))
ROUND: Final = define("math.round", types=same_type, attributes=FAST, cost=15.0, render=own("round", "round"))
SQRT: Final = define("math.sqrt", types=same_type, attributes=FAST, cost=8.0, render=builtin("sqrt"))
FLOOR: Final = define("math.floor", types=same_type, attributes=FAST, cost=1.0, render=builtin("floor"))
CEIL: Final = define("math.ceil", types=same_type, attributes=FAST, cost=1.0, render=builtin("ceil"))
TRUNC: Final = define("math.trunc", types=same_type, attributes=FAST, cost=15.0, render=builtin("trunc"))
ROUNDEVEN: Final = define(
    "math.roundeven", types=same_type, attributes=FAST, cost=15.0, render=builtin("roundeven", stem="rint")
)
COPYSIGN: Final = define(
    "math.copysign", types=same_type, attributes=FAST, cost=15.0, render=builtin("copysign", arity=2)
)
TAN: Final = define("math.tan", types=same_type, attributes=FAST, cost=15.0, render=own_f32("tan", "tan"))
ASIN: Final = define("math.asin", types=same_type, attributes=FAST, cost=15.0, render=own_f32("asin", "arc"))
ACOS: Final = define("math.acos", types=same_type, attributes=FAST, cost=15.0, render=own_f32("acos", "arc"))
ATAN: Final = define("math.atan", types=same_type, attributes=FAST, cost=15.0, render=own_f32("atan", "arc"))
SINH: Final = define("math.sinh", types=same_type, attributes=FAST, cost=15.0, render=own_f32("sinh", "hyperbolic"))
COSH: Final = define("math.cosh", types=same_type, attributes=FAST, cost=15.0, render=own_f32("cosh", "hyperbolic"))
ASINH: Final = define("math.asinh", types=same_type, attributes=FAST, cost=15.0, render=own_f32("asinh", "area"))
ACOSH: Final = define("math.acosh", types=same_type, attributes=FAST, cost=15.0, render=own_f32("acosh", "area"))
ATANH: Final = define("math.atanh", types=same_type, attributes=FAST, cost=15.0, render=own_f32("atanh", "area"))
LOG10: Final = define("math.log10", types=same_type, attributes=FAST, cost=15.0, render=own_f32("log10", "ten"))
CBRT: Final = define("math.cbrt", types=same_type, attributes=FAST, cost=15.0, render=own_f32("cbrt", "cbrt"))
ERFC: Final = define("math.erfc", types=same_type, attributes=FAST, cost=15.0, render=own_f32("erfc", "erfc"))
POWF: Final = define(
    "math.powf", types=same_type, attributes=FAST, cost=15.0, render=own_f32("powf", "pow", stem="pow", arity=2)
)
ATAN2: Final = define(
    "math.atan2", types=same_type, attributes=FAST, cost=15.0, render=own_f32("atan2", "arc", arity=2)
)
RSQRT: Final = define("math.rsqrt", types=same_type, attributes=FAST, cost=10.0, render=own("rsqrt", "roots"))
FMA: Final = define("math.fma", types=same_type, attributes=FAST, cost=1.0, render=fma)
CTPOP: Final = define("math.ctpop", types=same_type, attributes=NO_ATTRIBUTES, cost=15.0, render=ctpop)
ISNAN: Final = define("math.isnan", types=same_shape, attributes=FAST, cost=15.0, render=classify("__builtin_isnan"))
ISINF: Final = define("math.isinf", types=same_shape, attributes=FAST, cost=15.0, render=classify("__builtin_isinf"))
ISFINITE: Final = define(
    "math.isfinite", types=same_shape, attributes=FAST, cost=15.0, render=classify("__builtin_isfinite")
)

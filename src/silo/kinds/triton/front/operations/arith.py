"""Records of the operations of the ``arith`` and ``math`` dialects: arithmetic, comparisons, conversions, functions."""

from __future__ import annotations

from typing import Final

from silo.kinds.triton.front.operations.attribute_rules import (
    EXACT,
    FAST,
    FLAG,
    NO_ATTRIBUTES,
    OPAQUE,
    ROUNDED,
    TYPED_CONSTANT,
    UNSIGNED,
    WRAPS,
    integer,
    rules,
)
from silo.kinds.triton.front.operations.cpu.c_arith import (
    absf,
    bitcast,
    bitwise,
    builtin,
    classify,
    cmpf,
    cmpi,
    constant,
    ctpop,
    extend,
    float_binary,
    float_call,
    float_cast,
    float_to_int,
    floor_ceil,
    fma,
    index_cast,
    int_to_float,
    integer_call,
    minmax,
    negf,
    own,
    own_f32,
    remf,
    select,
    shift,
    trunc,
    wrapping,
    xori,
)
from silo.kinds.triton.front.operations.operation_record import OperationRole, define, derived, no_flow
from silo.kinds.triton.front.operations.type_rules import (
    comparison_types,
    constant_types,
    same_shape,
    same_type,
    select_types,
)

CONSTANT: Final = define(
    "arith.constant",
    OperationRole.LEAF,
    types=constant_types,
    attributes=rules({"value": TYPED_CONSTANT}),
    cost=0.0,
    cheap=True,
    render=constant,
    refuse=lambda _: "",
)
ADDI: Final = define(
    "arith.addi",
    types=same_type,
    attributes=WRAPS,
    keeps_range=True,
    keeps_size=True,
    cheap=True,
    associative=True,
    render=wrapping("+", "^"),
)
SUBI: Final = define(
    "arith.subi",
    types=same_type,
    attributes=WRAPS,
    keeps_range=True,
    keeps_size=True,
    cheap=True,
    render=wrapping("-", "^"),
)
MULI: Final = define(
    "arith.muli",
    types=same_type,
    attributes=WRAPS,
    keeps_range=True,
    cheap=True,
    associative=True,
    render=wrapping("*", "&"),
)
ANDI: Final = define(
    "arith.andi", types=same_type, attributes=NO_ATTRIBUTES, cheap=True, associative=True, render=bitwise("&")
)
ORI: Final = define(
    "arith.ori", types=same_type, attributes=rules(isDisjoint=FLAG), cheap=True, associative=True, render=bitwise("|")
)
XORI: Final = define("arith.xori", types=same_type, attributes=NO_ATTRIBUTES, cheap=True, associative=True, render=xori)
SHLI: Final = define("arith.shli", types=same_type, attributes=WRAPS, cheap=True, render=shift("shl"))
SHRUI: Final = define("arith.shrui", types=same_type, attributes=EXACT, cheap=True, render=shift("shrui"))
SHRSI: Final = define("arith.shrsi", types=same_type, attributes=EXACT, cheap=True, render=shift("shrsi"))
DIVSI: Final = define(
    "arith.divsi",
    types=same_type,
    attributes=EXACT,
    keeps_size=True,
    cost=5.0,
    cheap=True,
    render=integer_call("divsi", signed=True),
)
DIVUI: Final = define(
    "arith.divui", types=same_type, attributes=EXACT, cost=5.0, render=integer_call("divui", signed=False)
)
REMSI: Final = define(
    "arith.remsi",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    keeps_range=True,
    cost=5.0,
    cheap=True,
    render=integer_call("remsi", signed=True),
)
REMUI: Final = define(
    "arith.remui", types=same_type, attributes=NO_ATTRIBUTES, cost=5.0, render=integer_call("remui", signed=False)
)
FLOORDIVSI: Final = define(
    "arith.floordivsi", types=same_type, attributes=NO_ATTRIBUTES, render=floor_ceil("floordiv", signed=True)
)
CEILDIVSI: Final = define(
    "arith.ceildivsi",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    keeps_size=True,
    render=floor_ceil("ceildiv", signed=True),
)
CEILDIVUI: Final = define(
    "arith.ceildivui",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    cheap=True,
    render=floor_ceil("ceildivui", signed=False),
)
MINSI: Final = define(
    "arith.minsi",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    cheap=True,
    associative=True,
    render=minmax("minsi", signed=True, on_bool="|"),
)
MAXSI: Final = define(
    "arith.maxsi",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    cheap=True,
    associative=True,
    render=minmax("maxsi", signed=True, on_bool="&"),
)
MINUI: Final = define(
    "arith.minui",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    cheap=True,
    associative=True,
    render=minmax("minui", signed=False, on_bool="&"),
)
MAXUI: Final = define(
    "arith.maxui",
    types=same_type,
    attributes=NO_ATTRIBUTES,
    cheap=True,
    associative=True,
    render=minmax("maxui", signed=False, on_bool="|"),
)
CMPI: Final = define(
    "arith.cmpi",
    types=comparison_types,
    attributes=rules({"predicate": integer(0, 9)}),
    flow=no_flow,
    cost=0.5,
    cheap=True,
    render=cmpi,
)
ADDF: Final = define("arith.addf", types=same_type, attributes=ROUNDED, associative=True, render=float_binary("+"))
SUBF: Final = define("arith.subf", types=same_type, attributes=ROUNDED, render=float_binary("-"))
MULF: Final = define("arith.mulf", types=same_type, attributes=ROUNDED, associative=True, render=float_binary("*"))
DIVF: Final = define("arith.divf", types=same_type, attributes=ROUNDED, cost=8.0, render=float_binary("/"))
REMF: Final = define("arith.remf", types=same_type, attributes=FAST, cost=20.0, render=remf)
NEGF: Final = define("arith.negf", types=same_type, attributes=FAST, cheap=True, render=negf)
CMPF: Final = define(
    "arith.cmpf",
    types=comparison_types,
    attributes=rules({"predicate": integer(0, 15)}, fastmath=OPAQUE),
    cheap=True,
    render=cmpf,
)
MAXNUMF: Final = define(
    "arith.maxnumf",
    types=same_type,
    attributes=FAST,
    cheap=True,
    associative=True,
    render=float_call("maxnum", "minmax"),
)
MINNUMF: Final = define(
    "arith.minnumf",
    types=same_type,
    attributes=FAST,
    cheap=True,
    associative=True,
    render=float_call("minnum", "minmax"),
)
MAXIMUMF: Final = define(
    "arith.maximumf",
    types=same_type,
    attributes=FAST,
    cheap=True,
    associative=True,
    render=float_call("maximum", "minmax"),
)
MINIMUMF: Final = define(
    "arith.minimumf",
    types=same_type,
    attributes=FAST,
    cheap=True,
    associative=True,
    render=float_call("minimum", "minmax"),
)
SELECT: Final = define("arith.select", types=select_types, attributes=FAST, flow=derived, cheap=True, render=select)
EXTF: Final = define("arith.extf", types=same_shape, attributes=FAST, cheap=True, render=float_cast)
TRUNCF: Final = define("arith.truncf", types=same_shape, attributes=ROUNDED, render=float_cast)
CONVERTF: Final = define("arith.convertf", types=same_shape, attributes=ROUNDED, cheap=True, render=float_cast)
SITOFP: Final = define(
    "arith.sitofp", types=same_shape, attributes=NO_ATTRIBUTES, cheap=True, render=int_to_float(signed=True)
)
UITOFP: Final = define(
    "arith.uitofp", types=same_shape, attributes=UNSIGNED, cheap=True, render=int_to_float(signed=False)
)
FPTOSI: Final = define("arith.fptosi", types=same_shape, attributes=NO_ATTRIBUTES, render=float_to_int(signed=True))
FPTOUI: Final = define("arith.fptoui", types=same_shape, attributes=NO_ATTRIBUTES, render=float_to_int(signed=False))
EXTSI: Final = define(
    "arith.extsi",
    types=same_shape,
    attributes=NO_ATTRIBUTES,
    keeps_range=True,
    keeps_size=True,
    cheap=True,
    render=extend(signed=True),
)
EXTUI: Final = define(
    "arith.extui",
    types=same_shape,
    attributes=UNSIGNED,
    keeps_range=True,
    keeps_size=True,
    cheap=True,
    render=extend(signed=False),
)
TRUNCI: Final = define(
    "arith.trunci", types=same_shape, attributes=WRAPS, keeps_range=True, keeps_size=True, cheap=True, render=trunc
)
INDEX_CAST: Final = define(
    "arith.index_cast", types=same_shape, attributes=NO_ATTRIBUTES, cheap=True, render=index_cast(signed=True)
)
INDEX_CASTUI: Final = define(
    "arith.index_castui", types=same_shape, attributes=UNSIGNED, cheap=True, render=index_cast(signed=False)
)
BITCAST: Final = define("arith.bitcast", types=same_shape, attributes=NO_ATTRIBUTES, cheap=True, render=bitcast)


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

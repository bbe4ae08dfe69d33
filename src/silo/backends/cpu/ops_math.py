"""C expressions of the ``math`` dialect and of libdevice functions called by name.

f32 (and f16, bf16 through it) uses the runtime's own vectorisable code for exp, exp2, expm1, log, log2, log1p, tanh,
erf, sin and cos, inline instructions for roundings and square roots, and libm for the rest; f64 uses libm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from silo.backends.cpu.ops_arith import ARITH
from silo.backends.cpu.ops_call import Call, RefusedError, Renderer
from silo.backends.cpu.ops_types import HALVES

__all__ = ["LIBDEVICE", "MATH", "extern_renderer"]


@dataclass(frozen=True, slots=True)
class _Function:
    """How one function is called: names for f32 and f64, and the piece each is defined in."""

    f32: str
    f64: str
    piece32: str = ""
    piece64: str = "libm"
    arity: int = 1


def _own(stem: str, piece: str, f64: str) -> _Function:
    return _Function(f"silo_{stem}_f32", f64, piece)


def _builtin(stem: str, arity: int = 1) -> _Function:
    return _Function(f"__builtin_{stem}f", f"__builtin_{stem}", "", "", arity)


def _library(stem: str, arity: int = 1) -> _Function:
    return _Function(f"{stem}f", stem, "libm", "libm", arity)


_FUNCTIONS: dict[str, _Function] = {
    "exp": _own("exp", "exp", "exp"),
    "exp2": _own("exp2", "exp", "exp2"),
    "expm1": _own("expm1", "exp", "expm1"),
    "log": _own("log", "log", "log"),
    "log2": _own("log2", "log", "log2"),
    "log1p": _own("log1p", "log", "log1p"),
    "tanh": _own("tanh", "tanh", "tanh"),
    "erf": _own("erf", "erf", "erf"),
    "sin": _own("sin", "trig", "sin"),
    "cos": _own("cos", "trig", "cos"),
    "round": _Function("silo_round_f32", "silo_round_f64", "round", "round"),
    "sqrt": _builtin("sqrt"),
    "floor": _builtin("floor"),
    "ceil": _builtin("ceil"),
    "trunc": _builtin("trunc"),
    "roundeven": _builtin("rint"),
    "copysign": _builtin("copysign", 2),
    "tan": _library("tan"),
    "asin": _library("asin"),
    "acos": _library("acos"),
    "atan": _library("atan"),
    "sinh": _library("sinh"),
    "cosh": _library("cosh"),
    "asinh": _library("asinh"),
    "acosh": _library("acosh"),
    "atanh": _library("atanh"),
    "log10": _library("log10"),
    "cbrt": _library("cbrt"),
    "erfc": _library("erfc"),
    "powf": _Function("powf", "pow", "libm", "libm", 2),
    "atan2": _library("atan2", 2),
    "fmod": _library("fmod", 2),
    "hypot": _library("hypot", 2),
    "lgamma": _library("lgamma"),
    "tgamma": _library("tgamma"),
}


def _function(name: str) -> Renderer:
    function = _FUNCTIONS[name]

    def render(call: Call) -> str:
        call.pointer_free()
        if len(call.operands) != function.arity:
            raise RefusedError(f"{name} takes {function.arity} operands, not {len(call.operands)}")
        wide = call.element == "f64"
        piece = function.piece64 if wide else function.piece32
        if piece:
            call.use(piece)
        arguments = ", ".join(call.float_operand(index) for index in range(function.arity))
        return call.float_result(f"{function.f64 if wide else function.f32}({arguments})")

    return render


def _rsqrt(call: Call) -> str:
    call.pointer_free()
    if call.element == "f64":
        return f"(1.0 / __builtin_sqrt({call.float_operand(0)}))"
    return call.float_result(f"(1.0f / __builtin_sqrtf({call.float_operand(0)}))")


def _fma(call: Call) -> str:
    """One rounding; for f16 and bf16 in f64, where the product and nearly every sum are exact."""
    call.pointer_free()
    if call.element in HALVES:
        a, b, c = (f"(double){call.float_operand(index)}" for index in range(3))
        return f"silo_f64_to_{call.element}({a} * {b} + {c})"
    call.use("libm")  # a level without the instruction calls the function
    a, b, c = (call.float_operand(index) for index in range(3))
    return f"__builtin_fma{'' if call.element == 'f64' else 'f'}({a}, {b}, {c})"


def _classify(test: str) -> Renderer:
    """isnan, isinf, isfinite: an i1 or, for libdevice, an i32."""

    def render(call: Call) -> str:
        return call.cast(f"{test}({call.float_operand(0)}) != 0")

    return render


def _ctpop(call: Call) -> str:
    call.pointer_free()
    call.integer_bits(call.types[0].element)
    wide = call.types[0].element in ("i64", "index")
    return call.cast(f"__builtin_popcount{'ll' if wide else ''}({call.unsigned(0)})")


MATH: Mapping[str, Renderer] = MappingProxyType(
    {
        **{f"math.{name}": _function(name) for name in _FUNCTIONS if name not in {"fmod", "hypot", "lgamma", "tgamma"}},
        "math.rsqrt": _rsqrt,
        "math.fma": _fma,
        "math.ctpop": _ctpop,
        "math.isnan": _classify("__builtin_isnan"),
        "math.isinf": _classify("__builtin_isinf"),
        "math.isfinite": _classify("__builtin_isfinite"),
        "tt.precise_sqrt": _function("sqrt"),
    }
)

# libdevice names without "__nv_" and without the "f" of the f32 form.
_LIBDEVICE_FLOAT: dict[str, Renderer] = {
    **{name: _function(name) for name in _FUNCTIONS if name not in {"powf", "roundeven"}},
    **{f"fast_{name}": _function(name) for name in ("exp", "log", "log2", "log10", "sin", "cos", "tan", "tanh")},
    "pow": _function("powf"),
    "fast_pow": _function("powf"),
    "rint": _function("roundeven"),
    "nearbyint": _function("roundeven"),
    "rsqrt": _rsqrt,
    "fma": _fma,
    "fmax": ARITH["arith.maxnumf"],
    "fmin": ARITH["arith.minnumf"],
    "fabs": ARITH["math.absf"],
    "isnan": _classify("__builtin_isnan"),
    "isinf": _classify("__builtin_isinf"),
    "finite": _classify("__builtin_isfinite"),
}


def _spellings(stem: str) -> tuple[str, str]:
    """The f32 and f64 names: ``finite`` is the one that is not just followed by an f."""
    return (
        f"__nv_{stem}f" if stem != "finite" else "__nv_finitef",
        f"__nv_{stem}" if stem != "finite" else "__nv_isfinited",
    )


LIBDEVICE: Mapping[str, Renderer] = MappingProxyType(
    {
        **{spelling: renderer for stem, renderer in _LIBDEVICE_FLOAT.items() for spelling in _spellings(stem)},
        "__nv_isnand": _classify("__builtin_isnan"),
        "__nv_isinfd": _classify("__builtin_isinf"),
        "__nv_fsqrt_rn": _function("sqrt"),
        "__nv_dsqrt_rn": _function("sqrt"),
        "__nv_fast_fdividef": ARITH["arith.divf"],
        "__nv_fdiv_rn": ARITH["arith.divf"],
        "__nv_ddiv_rn": ARITH["arith.divf"],
        "__nv_fmaf_rn": _fma,
        "__nv_fma_rn": _fma,
        "__nv_abs": ARITH["math.absi"],
        "__nv_llabs": ARITH["math.absi"],
        "__nv_min": ARITH["arith.minsi"],
        "__nv_max": ARITH["arith.maxsi"],
        "__nv_umin": ARITH["arith.minui"],
        "__nv_umax": ARITH["arith.maxui"],
        "__nv_umulhi": ARITH["tt.mulhiui"],
        "__nv_umul64hi": ARITH["tt.mulhiui"],
        "__nv_popc": _ctpop,
        "__nv_popcll": _ctpop,
        "__nv_float2int_rz": ARITH["arith.fptosi"],
        "__nv_int2float_rn": ARITH["arith.sitofp"],
        "__nv_float_as_int": ARITH["arith.bitcast"],
        "__nv_int_as_float": ARITH["arith.bitcast"],
    }
)


def extern_renderer(call: Call) -> str:
    """``tt.extern_elementwise``: only functions of libdevice that are known by name."""
    symbol = call.operation.attributes.get("symbol")
    renderer = LIBDEVICE.get(symbol) if isinstance(symbol, str) else None
    if renderer is None:
        raise RefusedError(f"the external function {symbol} has no CPU form")
    return renderer(call)

"""C expressions of the ``math`` dialect.

f32 (and every narrower type through it) uses the runtime's own vectorisable code, inline instructions for roundings and
square roots, and libm for the few functions that have neither; f64 uses the runtime or libm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from silo.backends.cpu.ops_call import Call, RefusedError, Renderer
from silo.backends.cpu.ops_types import NARROW

__all__ = ["FUNCTIONS", "Function", "classify", "ctpop", "fma", "function"]


@dataclass(frozen=True, slots=True)
class Function:
    """How one function is called: names for f32 and f64, and the piece each is defined in ("" for none).

    A function without an f32 form is computed in f64 and rounded.
    """

    f32: str
    f64: str
    piece32: str = ""
    piece64: str = "libm"
    arity: int = 1


def _own(stem: str, piece: str, f64: str, arity: int = 1) -> Function:
    return Function(f"silo_{stem}_f32", f64, piece, "libm", arity)


def _in_both(stem: str, piece: str) -> Function:
    return Function(f"silo_{stem}_f32", f"silo_{stem}_f64", piece, f"{piece}_f64")


def _builtin(stem: str, arity: int = 1) -> Function:
    return Function(f"__builtin_{stem}f", f"__builtin_{stem}", "", "", arity)


def _library(stem: str, arity: int = 1) -> Function:
    return Function(f"{stem}f", stem, "libm", "libm", arity)


def _wide(stem: str, piece: str, arity: int = 1) -> Function:
    return Function("", f"silo_{stem}_f64", "", piece, arity)


# By the names of the math dialect up to rsqrt, then of libdevice.
FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "exp": _in_both("exp", "exp"),
        "exp2": _in_both("exp2", "exp"),
        "expm1": _own("expm1", "exp", "expm1"),
        "log": _in_both("log", "log"),
        "log2": _in_both("log2", "log"),
        "log1p": _own("log1p", "log", "log1p"),
        "tanh": _in_both("tanh", "tanh"),
        "erf": _own("erf", "erf", "erf"),
        "sin": _own("sin", "trig", "sin"),
        "cos": _own("cos", "trig", "cos"),
        "round": Function("silo_round_f32", "silo_round_f64", "round", "round"),
        "sqrt": _builtin("sqrt"),
        "floor": _builtin("floor"),
        "ceil": _builtin("ceil"),
        "trunc": _builtin("trunc"),
        "roundeven": _builtin("rint"),
        "copysign": _builtin("copysign", 2),
        "tan": _own("tan", "tan", "tan"),
        "asin": _own("asin", "arc", "asin"),
        "acos": _own("acos", "arc", "acos"),
        "atan": _own("atan", "arc", "atan"),
        "sinh": _own("sinh", "hyperbolic", "sinh"),
        "cosh": _own("cosh", "hyperbolic", "cosh"),
        "asinh": _own("asinh", "area", "asinh"),
        "acosh": _own("acosh", "area", "acosh"),
        "atanh": _own("atanh", "area", "atanh"),
        "log10": _own("log10", "ten", "log10"),
        "cbrt": _own("cbrt", "cbrt", "cbrt"),
        "erfc": _own("erfc", "erfc", "erfc"),
        "powf": _own("pow", "pow", "pow", 2),
        "atan2": _own("atan2", "arc", "atan2", 2),
        "rsqrt": Function("silo_rsqrt_f32", "silo_rsqrt_f64", "roots", "roots"),
        "fmod": _library("fmod", 2),
        "remainder": _library("remainder", 2),
        "hypot": _library("hypot", 2),
        "lgamma": _library("lgamma"),
        "tgamma": _library("tgamma"),
        "j0": _library("j0"),
        "j1": _library("j1"),
        "y0": _library("y0"),
        "y1": _library("y1"),
        "exp10": Function("silo_exp10_f32", "silo_exp10_f64", "ten", "exp10"),
        "sinpi": Function("silo_sinpi_f32", "silo_sinpi_f64", "pi", "pi"),
        "cospi": Function("silo_cospi_f32", "silo_cospi_f64", "pi", "pi"),
        "rcbrt": _wide("rcbrt", "roots"),
        "rhypot": _wide("rhypot", "roots", 2),
        "norm3d": _wide("norm3d", "roots", 3),
        "rnorm3d": _wide("rnorm3d", "roots", 3),
        "norm4d": _wide("norm4d", "roots", 4),
        "rnorm4d": _wide("rnorm4d", "roots", 4),
        "erfinv": _wide("erfinv", "probability"),
        "erfcinv": _wide("erfcinv", "probability"),
        "erfcx": _wide("erfcx", "probability"),
        "normcdf": _wide("normcdf", "probability"),
        "normcdfinv": _wide("normcdfinv", "probability"),
        "cyl_bessel_i0": _wide("cyl_bessel_i0", "bessel"),
        "cyl_bessel_i1": _wide("cyl_bessel_i1", "bessel"),
        "fdim": Function("silo_fdim_f32", "silo_fdim_f64", "parts", "parts", 2),
        "logb": Function("silo_logb_f32", "silo_logb_f64", "parts", "parts"),
        "nextafter": Function("silo_nextafter_f32", "silo_nextafter_f64", "parts", "parts", 2),
        "saturate": Function("silo_saturate_f32", "", "parts", ""),
    }
)


def function(name: str) -> Renderer:
    """The renderer of one of ``FUNCTIONS``."""
    wanted = FUNCTIONS[name]

    def render(call: Call) -> str:
        call.pointer_free()
        if len(call.operands) != wanted.arity:
            raise RefusedError(f"{name} takes {wanted.arity} operands, not {len(call.operands)}")
        arguments = [call.float_operand(index) for index in range(wanted.arity)]
        is_f64 = call.element == "f64"
        stem, piece = (wanted.f64, wanted.piece64) if is_f64 or not wanted.f32 else (wanted.f32, wanted.piece32)
        if not stem:
            raise RefusedError(f"{name} is not defined on {call.element}")
        if piece:
            call.use(piece)
        if is_f64 or wanted.f32:
            return call.float_result(f"{stem}({', '.join(arguments)})")
        return call.float_result(f"(float){stem}({', '.join(f'(double){argument}' for argument in arguments)})")

    return render


def fma(call: Call) -> str:
    """One rounding; for types narrower than f32 in f64, where the product is exact."""
    call.pointer_free()
    if call.element in NARROW:
        call.use("narrow", NARROW[call.element])
        operands = ", ".join(f"(double){call.float_operand(index)}" for index in range(3))
        return f"silo_f32_to_{call.element}(silo_f64_to_f32_odd(silo_fma_odd({operands})))"
    call.use("libm")  # a level without the instruction calls the function
    a, b, c = (call.float_operand(index) for index in range(3))
    return f"__builtin_fma{'' if call.element == 'f64' else 'f'}({a}, {b}, {c})"


def classify(test: str) -> Renderer:
    """isnan, isinf, isfinite: an i1 or, for libdevice, an i32."""

    def render(call: Call) -> str:
        return call.cast(f"{test}({call.float_operand(0)}) != 0")

    return render


def ctpop(call: Call) -> str:
    """How many bits are set; the result's type may be narrower than the operand's."""
    call.pointer_free()
    call.integer_bits(call.types[0].element)
    wide = call.types[0].element in ("i64", "index")
    return call.cast(f"__builtin_popcount{'ll' if wide else ''}({call.unsigned(0)})")

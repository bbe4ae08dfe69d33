"""C expressions of libdevice functions, which Triton calls by name: all except those that have a meaning only on a GPU.

This module is imported with the first kernel that calls one of these functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from silo.kinds.triton.front.operations import arith
from silo.kinds.triton.front.operations.cpu.c_arith import (
    MathFunction,
    absf,
    bitcast,
    classify,
    ctpop,
    float_binary,
    float_call,
    fma,
    integer_call,
    library,
    minmax,
    own,
    own_f64,
)
from silo.kinds.triton.front.operations.cpu.c_types import RefusedError, Renderer, ScalarCall

__all__ = ["FUNCTIONS", "LIBDEVICE", "extern_renderer", "function"]

_REFUSED = {
    **dict.fromkeys(
        (f"__nv_d{name}_{mode}" for name in ("add", "sub", "mul", "div", "sqrt", "rcp") for mode in ("rz", "rd", "ru")),
        "fp64 arithmetic here rounds to nearest only; use the form that ends in _rn",
    ),
    **dict.fromkeys(
        ("__nv_fma_rz", "__nv_fma_rd", "__nv_fma_ru"),
        "fp64 arithmetic here rounds to nearest only; use fma_rn, or fp32 operands",
    ),
    "__nv_rcp64h": "it is an approximation that one GPU's hardware defines; use 1 / x",
}


# The names of functions that both libdevice and the math dialect have, as the math dialect spells them.
_SHARED = """exp exp2 expm1 log log2 log1p tanh erf sin cos round sqrt floor ceil trunc roundeven copysign tan asin acos
atan sinh cosh asinh acosh atanh log10 cbrt erfc powf atan2 rsqrt"""


def _of_math(name: str) -> MathFunction:
    math_function: object = getattr(arith, name.upper()).render
    assert isinstance(math_function, MathFunction), name
    return math_function


# First the names of the math dialect, then the names of libdevice.
FUNCTIONS: Mapping[str, MathFunction] = MappingProxyType(
    {
        one.name: one
        for one in (
            *map(_of_math, _SHARED.split()),
            library("fmod", arity=2),
            library("remainder", arity=2),
            library("hypot", arity=2),
            library("lgamma"),
            library("tgamma"),
            library("j0"),
            library("j1"),
            library("y0"),
            library("y1"),
            own("exp10", "ten", "exp10"),
            own("sinpi", "pi"),
            own("cospi", "pi"),
            own_f64("rcbrt", "roots"),
            own_f64("rhypot", "roots", arity=2),
            own_f64("norm3d", "roots", arity=3),
            own_f64("rnorm3d", "roots", arity=3),
            own_f64("norm4d", "roots", arity=4),
            own_f64("rnorm4d", "roots", arity=4),
            own_f64("erfinv", "probability"),
            own_f64("erfcinv", "probability"),
            own_f64("erfcx", "probability"),
            own_f64("normcdf", "probability"),
            own_f64("normcdfinv", "probability"),
            own_f64("cyl_bessel_i0", "bessel"),
            own_f64("cyl_bessel_i1", "bessel"),
            own("fdim", "parts", arity=2),
            own("logb", "parts"),
            own("nextafter", "parts", arity=2),
            MathFunction("saturate", "silo_saturate_f32", "", "parts", ""),
        )
    }
)


def function(name: str) -> MathFunction:
    """One of ``FUNCTIONS``; raises ``KeyError`` for another name."""
    return FUNCTIONS[name]


def _runtime(stem: str, kinds: str, *pieces: str) -> Renderer:
    """Returns a function that writes a call of the C function ``stem``.

    ``kinds`` are the types of the operands and, last, of the result: f32, f64, i32, u32, i64 or u64.
    """
    *inputs, output = kinds.split()
    elements = [kind.replace("u", "i") for kind in inputs]

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        types = [type_.element for type_ in call.types]
        if types != elements or call.element != output.replace("u", "i"):
            raise RefusedError(f"it takes {', '.join(elements)} and gives {output.replace('u', 'i')}")
        call.use(*pieces)
        arguments = ", ".join(_argument(call, index, kind) for index, kind in enumerate(inputs))
        return call.cast(f"{stem}({arguments})")

    return render


def _argument(call: ScalarCall, index: int, kind: str) -> str:
    if kind.startswith("f"):
        return call.float_operand(index)
    return call.signed(index) if kind.startswith("i") else call.unsigned(index)


def _both(stem: str, kinds: str, *pieces: str) -> tuple[Renderer, Renderer]:
    """Returns functions that write calls of ``stem`` for f32 and for f64; each replaces F in ``kinds`` by its type."""
    single = _runtime(f"{stem}_f32", kinds.replace("F", "f32"), *pieces)
    return single, _runtime(f"{stem}_f64", kinds.replace("F", "f64"), *pieces)


# The renderers of libdevice functions for f32 and for f64, by name without "__nv_" and without the "f" of the f32 form.
_FLOAT: dict[str, tuple[Renderer, Renderer]] = {
    **{name: (function(name), function(name)) for name in FUNCTIONS if name not in {"powf", "roundeven", "saturate"}},
    "pow": (function("powf"), function("powf")),
    "rint": (function("roundeven"), function("roundeven")),
    "nearbyint": (function("roundeven"), function("roundeven")),
    "fma": (fma, fma),
    "fmax": (float_call("maxnum", "minmax"), float_call("maxnum", "minmax")),
    "fmin": (float_call("minnum", "minmax"), float_call("minnum", "minmax")),
    "fabs": (absf, absf),
    "isnan": (classify("__builtin_isnan"), classify("__builtin_isnan")),
    "isinf": (classify("__builtin_isinf"), classify("__builtin_isinf")),
    "ldexp": _both("silo_ldexp", "F i32 F", "parts"),
    "scalbn": _both("silo_ldexp", "F i32 F", "parts"),
    "ilogb": _both("silo_ilogb", "F i32", "parts"),
    "llrint": _both("silo_llrint", "F i64", "whole"),
    "llround": _both("silo_llround", "F i64", "whole"),
    "powi": _both("silo_powi", "F i32 F", "parts"),
}
_FAST = {
    f"__nv_fast_{name}{ending}": function("powf" if name == "pow" else name)
    for name in ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan", "tanh", "pow")
    for ending in ("", "f")
}
_INTEGER = {
    "__nv_clz": _runtime("silo_ctlz_i32", "u32 i32", "integer"),
    "__nv_clzll": _runtime("silo_ctlz_i64", "u64 i32", "integer"),
    "__nv_popc": ctpop,
    "__nv_popcll": ctpop,
    "__nv_ffs": _runtime("silo_ffs_i32", "u32 i32", "bits"),
    "__nv_ffsll": _runtime("silo_ffs_i64", "u64 i32", "bits"),
    "__nv_brev": _runtime("silo_brev_i32", "u32 i32", "bits"),
    "__nv_brevll": _runtime("silo_brev_i64", "u64 i64", "bits"),
    "__nv_byte_perm": _runtime("silo_byte_perm", "u32 u32 u32 i32", "bits"),
    "__nv_mulhi": _runtime("silo_mulhisi_i32", "i32 i32 i32", "bits"),
    "__nv_mul64hi": _runtime("silo_mulhisi_i64", "i64 i64 i64", "bits"),
    "__nv_umulhi": integer_call("mulhiui", signed=False, least=32),
    "__nv_umul64hi": integer_call("mulhiui", signed=False, least=32),
    "__nv_mul24": _runtime("silo_mul24_i32", "u32 u32 i32", "bits"),
    "__nv_umul24": _runtime("silo_mul24_u32", "u32 u32 u32", "bits"),
    "__nv_sad": _runtime("silo_sad_i32", "i32 i32 u32 i32", "bits"),
    "__nv_usad": _runtime("silo_sad_u32", "u32 u32 u32 u32", "bits"),
    "__nv_hadd": _runtime("silo_hadd_i32", "i32 i32 i32", "bits"),
    "__nv_uhadd": _runtime("silo_hadd_u32", "u32 u32 u32", "bits"),
    "__nv_rhadd": _runtime("silo_rhadd_i32", "i32 i32 i32", "bits"),
    "__nv_urhadd": _runtime("silo_rhadd_u32", "u32 u32 u32", "bits"),
    "__nv_abs": integer_call("absi", signed=True),
    "__nv_llabs": integer_call("absi", signed=True),
    "__nv_min": minmax("minsi", signed=True, on_bool="|"),
    "__nv_max": minmax("maxsi", signed=True, on_bool="&"),
    "__nv_umin": minmax("minui", signed=False, on_bool="&"),
    "__nv_umax": minmax("maxui", signed=False, on_bool="|"),
}


def _directed() -> dict[str, Renderer]:
    """Returns, by name, a renderer of each libdevice function of arithmetic whose name contains a rounding mode.

    The C compiler never fuses such arithmetic with other operations.
    """
    table: dict[str, Renderer] = {}
    for name, arity in (("add", 2), ("sub", 2), ("mul", 2), ("div", 2), ("sqrt", 1), ("rcp", 1)):
        for mode in ("rn", "rz", "rd", "ru"):
            operands = "f32 " * arity
            table[f"__nv_f{name}_{mode}"] = _runtime(f"silo_{name}_{mode}_f32", f"{operands}f32", "directed")
        table[f"__nv_d{name}_rn"] = _runtime(f"silo_{name}_rn_f64", "f64 " * arity + "f64", "directed")
    for mode in ("rz", "rd", "ru"):
        table[f"__nv_fmaf_{mode}"] = _runtime(f"silo_fma_{mode}_f32", "f32 f32 f32 f32", "directed")
    return {**table, "__nv_fmaf_rn": fma, "__nv_fma_rn": fma}


def _conversions() -> dict[str, Renderer]:
    """Returns, by name, renderers of conversions such as ``float2int_rd``: all pairs of types, all rounding modes."""
    table: dict[str, Renderer] = {}
    integers = {"int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}
    for mode in ("rn", "rz", "rd", "ru"):
        for name, kind in integers.items():
            for source, element in (("float", "f32"), ("double", "f64")):
                call = f"silo_{element}_to_{kind}"
                table[f"__nv_{source}2{name}_{mode}"] = _rounded_to_integer(call, mode, element, kind)
                if (source, name) not in {("double", "int"), ("double", "uint")} or mode == "rn":
                    stem = f"silo_{kind}_to_{element}_{mode}"
                    table[f"__nv_{name}2{source}_{mode}"] = _runtime(stem, f"{kind} {element}", "directed")
        stem = f"silo_f64_to_f32_{mode}"
        table[f"__nv_double2float_{mode}"] = _runtime(stem, "f64 f32", "directed")
    return table


def _rounded_to_integer(stem: str, mode: str, element: str, kind: str) -> Renderer:
    rounding = {"rn": "rint", "rz": "trunc", "rd": "floor", "ru": "ceil"}[mode]
    suffix = "f" if element == "f32" else ""

    def render(call: ScalarCall) -> str:
        call.pointer_free()
        actual, expected = (call.types[0].element, call.element), (element, kind.replace("u", "i"))
        if actual != expected:
            raise RefusedError(f"it turns {expected[0]} into {expected[1]}")
        call.use("convert")
        return call.cast(f"{stem}(__builtin_{rounding}{suffix}({call.float_operand(0)}))")

    return render


LIBDEVICE: Mapping[str, Renderer] = MappingProxyType(
    {
        **{f"__nv_{name}f": pair[0] for name, pair in _FLOAT.items()},
        **{f"__nv_{name}": pair[1] for name, pair in _FLOAT.items()},
        **_FAST,
        **_INTEGER,
        **_directed(),
        **_conversions(),
        "__nv_isnand": classify("__builtin_isnan"),
        "__nv_isinfd": classify("__builtin_isinf"),
        "__nv_finitef": classify("__builtin_isfinite"),
        "__nv_isfinited": classify("__builtin_isfinite"),
        "__nv_signbitf": classify("__builtin_signbit"),
        "__nv_signbitd": classify("__builtin_signbit"),
        "__nv_saturatef": function("saturate"),
        "__nv_fast_fdividef": float_binary("/"),
        "__nv_frsqrt_rn": _runtime("silo_rsqrt_rn_f32", "f32 f32", "directed"),
        "__nv_jnf": _runtime("jnf", "i32 f32 f32", "libm"),
        "__nv_jn": _runtime("jn", "i32 f64 f64", "libm"),
        "__nv_ynf": _runtime("ynf", "i32 f32 f32", "libm"),
        "__nv_yn": _runtime("yn", "i32 f64 f64", "libm"),
        "__nv_hiloint2double": _runtime("silo_hiloint2double", "u32 u32 f64", "bits"),
        "__nv_double2hiint": _runtime("silo_double2hiint", "f64 i32", "bits"),
        "__nv_double2loint": _runtime("silo_double2loint", "f64 i32", "bits"),
        **dict.fromkeys(
            (
                "__nv_int_as_float",
                "__nv_float_as_int",
                "__nv_uint_as_float",
                "__nv_float_as_uint",
                "__nv_longlong_as_double",
                "__nv_double_as_longlong",
            ),
            bitcast,
        ),
    }
)


def _llrint(call: ScalarCall) -> str:
    return _FLOAT["llrint"][call.types[0].element == "f64"](call)


# Functions of AMD's device libraries whose names differ from libdevice's by more than prefix and suffix.
_OCML = {"i0": "cyl_bessel_i0", "i1": "cyl_bessel_i1", "pown": "powi"}
_HIP: Mapping[str, Renderer] = MappingProxyType(
    {
        "__ocml_isfinite_f32": LIBDEVICE["__nv_finitef"],
        "__ocml_isfinite_f64": LIBDEVICE["__nv_isfinited"],
        "__ocml_signbit_f64": LIBDEVICE["__nv_signbitd"],
        "__ockl_clz_u32": LIBDEVICE["__nv_clz"],
        "__ockl_clz_u64": _runtime("silo_ctlz_i64", "u64 i64", "integer"),
        "__ockl_popcount_u32": ctpop,
        "__ockl_popcount_u64": ctpop,
        "__triton_hip_iabs": integer_call("absi", signed=True),
        "__triton_hip_fabs": absf,
        "__triton_hip_rint": function("roundeven"),
        "__triton_hip_llrint": _llrint,
        "__triton_hip_fast_expf": function("exp"),
        "__triton_hip_fast_tanhf": function("tanh"),
        "__triton_hip_fast_fdividef": float_binary("/"),
    }
)


def _of_amd(symbol: str) -> Renderer | None:
    """The renderer for a function of AMD: for ``__ocml_round_f32``, the renderer of ``__nv_roundf``; or None."""
    match = re.fullmatch(r"__ocml_(\w+)_f(32|64)", symbol)
    if symbol in _HIP or match is None:
        return _HIP.get(symbol)
    return LIBDEVICE.get(f"__nv_{_OCML.get(match[1], match[1])}{'f' if match[2] == '32' else ''}")


def extern_renderer(call: ScalarCall) -> str:
    """The C expression of a ``tt.extern_elementwise``: a function of libdevice or of AMD's libraries, by name."""
    symbol = call.operation.attributes.get("symbol")
    if not isinstance(symbol, str):
        raise RefusedError("it names no function")
    renderer = LIBDEVICE.get(symbol) or _of_amd(symbol)
    if renderer is not None:
        return renderer(call)
    if symbol in _REFUSED:
        raise RefusedError(f"{symbol}: {_REFUSED[symbol]}")
    own = "" if symbol.startswith("__nv_") else "; only functions of libdevice and of AMD's ocml exist on a CPU"
    raise RefusedError(f"the external function {symbol} has no CPU form{own}")

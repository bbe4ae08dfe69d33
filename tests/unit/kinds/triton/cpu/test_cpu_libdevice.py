"""Every function of libdevice by name, against mpmath or exact integers."""
# ruff: noqa: E501, N806  # tables read best as rows; capitals are the same numbers without a width

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from cpu_operations import NUMPY, Batch, needs_compiler, operation, within
from silo.kinds.triton.cpu import ops
from silo.kinds.triton.front.operations.nvidia.libdevice import LIBDEVICE

pytestmark = needs_compiler

RNG = np.random.default_rng(17)
TESTED: set[str] = set()


def call(symbol, inputs, output):
    TESTED.add(symbol)
    return operation("tt.extern_elementwise", inputs, output, symbol=symbol)


def near(ulp):
    """``expected`` holds mpmath numbers, or floats for zeros, infinities and NaN."""

    def same(label, inputs, got, expected):
        for index, (value, wanted) in enumerate(zip(got.tolist(), expected.tolist(), strict=True)):
            at = f"{label}: {[array[index] for array in inputs]} gave {value!r}, expected {wanted}"
            if mpmath.isnan(wanted):
                assert math.isnan(value), at
                continue
            with np.errstate(over="ignore"):
                rounded = got.dtype.type(float(wanted))
            if not np.isfinite(rounded) or rounded == 0:
                assert value == rounded, at
                if isinstance(wanted, float):
                    assert math.copysign(1, value) == math.copysign(1, wanted), at
                continue
            assert abs(mpmath.mpf(value) - wanted) <= ulp * float(np.spacing(np.abs(rounded))), at

    return same


def uniform(low, high, count=40):
    return RNG.uniform(low, high, count)


def powers(low, high, count=40):
    return np.exp2(RNG.uniform(low, high, count))


def erfc_inverse(x):
    """By bisection: mpmath's erfinv loses the digits of 1 - x."""
    x = mpmath.mpf(x)
    if x >= 2 or x <= 0:
        return mpmath.nan
    if x > 1:
        return -erfc_inverse(2 - x)
    guess = mpmath.sqrt(-mpmath.log(x)) if x < 0.5 else mpmath.mpf(0.3)
    return mpmath.findroot(lambda t: mpmath.log(mpmath.erfc(t)) - mpmath.log(x), guess)


INF, NAN = math.inf, math.nan
BOTH_SIGNS = np.concatenate([powers(-20, 8), -powers(-20, 8)])
# Function of mpmath, arguments, largest error in units in the last place in f32 and in f64, special values.
UNARY = {
    "exp": (mpmath.exp, uniform(-80, 80), 1.2, 1, [(INF, INF), (-INF, 0.0), (NAN, NAN)]),
    "exp2": (lambda x: mpmath.mpf(2) ** x, uniform(-120, 120), 1.1, 1, [(INF, INF), (-INF, 0.0)]),
    "exp10": (lambda x: mpmath.mpf(10) ** x, uniform(-37, 38), 1.1, 1, [(INF, INF), (-INF, 0.0), (2.0, 100.0)]),
    "expm1": (mpmath.expm1, BOTH_SIGNS / 4, 1.6, 1, [(INF, INF), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0)]),
    "log": (mpmath.log, powers(-100, 100), 1, 1, [(0.0, -INF), (-1.0, NAN), (INF, INF)]),
    "log2": (lambda x: mpmath.log(x, 2), powers(-100, 100), 2.1, 1, [(0.0, -INF), (-1.0, NAN), (8.0, 3.0)]),
    "log10": (mpmath.log10, powers(-100, 100), 2.1, 1.6, [(0.0, -INF), (-1.0, NAN), (1000.0, 3.0)]),
    "log1p": (mpmath.log1p, powers(-30, 30), 1.6, 1, [(-1.0, -INF), (-2.0, NAN), (0.0, 0.0)]),
    "sin": (mpmath.sin, uniform(-50, 50), 1.6, 1, [(0.0, 0.0), (-0.0, -0.0), (INF, NAN)]),
    "cos": (mpmath.cos, uniform(-50, 50), 1.6, 1, [(0.0, 1.0), (INF, NAN)]),
    "tan": (mpmath.tan, uniform(-50, 50), 2, 1, [(0.0, 0.0), (-0.0, -0.0), (INF, NAN)]),
    "sinpi": (mpmath.sinpi, uniform(-50, 50), 1.6, 1.6, [(0.0, 0.0), (-0.0, -0.0), (3.0, 0.0), (-2.0, -0.0), (0.5, 1.0), (INF, NAN)]),
    "cospi": (mpmath.cospi, uniform(-50, 50), 1.6, 1.6, [(0.0, 1.0), (0.5, 0.0), (-1.5, 0.0), (1.0, -1.0), (INF, NAN)]),
    "asin": (mpmath.asin, uniform(-1, 1), 2, 1, [(1.5, NAN), (0.0, 0.0), (-0.0, -0.0)]),
    "acos": (mpmath.acos, uniform(-1, 1), 2, 1, [(1.5, NAN), (1.0, 0.0)]),
    "atan": (mpmath.atan, BOTH_SIGNS, 2, 1, [(0.0, 0.0), (-0.0, -0.0)]),
    "sinh": (mpmath.sinh, BOTH_SIGNS / 4, 2.1, 2, [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)]),
    "cosh": (mpmath.cosh, BOTH_SIGNS / 4, 2, 2, [(0.0, 1.0), (INF, INF), (-INF, INF)]),
    "tanh": (mpmath.tanh, BOTH_SIGNS / 8, 1.6, 2, [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)]),
    "asinh": (mpmath.asinh, BOTH_SIGNS, 2.1, 2, [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)]),
    "acosh": (mpmath.acosh, 1 + powers(-15, 30), 2.1, 2, [(1.0, 0.0), (0.5, NAN), (INF, INF)]),
    "atanh": (mpmath.atanh, uniform(-1, 1), 2.1, 2, [(1.0, INF), (-1.0, -INF), (2.0, NAN), (-0.0, -0.0)]),
    "sqrt": (mpmath.sqrt, powers(-100, 100), 0.5, 0.5, [(0.0, 0.0), (-0.0, -0.0), (-1.0, NAN)]),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), powers(-100, 100), 1.6, 1.6, [(0.0, INF), (-1.0, NAN), (INF, 0.0)]),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), BOTH_SIGNS, 1.1, 2, [(0.0, 0.0), (-0.0, -0.0), (27.0, 3.0)]),
    "rcbrt": (lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)), BOTH_SIGNS, 1.1, 2, [(0.0, INF), (-0.0, -INF), (INF, 0.0)]),
    "erf": (mpmath.erf, BOTH_SIGNS / 100, 1.6, 1, [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)]),
    "erfc": (mpmath.erfc, uniform(-4, 9), 3, 2, [(INF, 0.0), (-INF, 2.0)]),
    "erfcx": (lambda x: mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x), uniform(-9, 40), 0.6, 4, [(-INF, INF), (INF, 0.0)]),
    "erfinv": (mpmath.erfinv, uniform(-1, 1), 0.6, 3, [(1.0, INF), (-1.0, -INF), (0.0, 0.0), (-0.0, -0.0), (2.0, NAN)]),
    "erfcinv": (erfc_inverse, np.concatenate([uniform(0.001, 2), powers(-120, -3)]), 0.6, 3, [(0.0, INF), (2.0, -INF), (-1.0, NAN), (3.0, NAN), (1.0, 0.0)]),
    "normcdf": (mpmath.ncdf, uniform(-12, 6), 0.6, 3, [(INF, 1.0), (-INF, 0.0)]),
    "normcdfinv": (lambda x: -mpmath.sqrt(2) * erfc_inverse(2 * mpmath.mpf(x)), np.concatenate([uniform(0.001, 0.99), powers(-120, -3)]), 0.6, 4, [(0.0, -INF), (1.0, INF), (2.0, NAN)]),
    "lgamma": (lambda x: mpmath.log(abs(mpmath.gamma(x))), np.concatenate([uniform(3, 60), uniform(0.01, 0.9)]), 4, 4, [(0.0, INF), (INF, INF), (1.0, 0.0)]),
    "tgamma": (mpmath.gamma, uniform(0.1, 30), 8, 8, [(0.0, INF), (-1.0, NAN), (INF, INF), (5.0, 24.0)]),
    "j0": (lambda x: mpmath.besselj(0, x), uniform(0.1, 2.2), 4, 4, [(0.0, 1.0), (INF, 0.0)]),
    "j1": (lambda x: mpmath.besselj(1, x), uniform(0.1, 3.5), 4, 4, [(0.0, 0.0), (INF, 0.0)]),
    "y0": (lambda x: mpmath.bessely(0, x), uniform(1.2, 3.5), 8, 8, [(0.0, -INF), (-1.0, NAN), (INF, 0.0)]),
    "y1": (lambda x: mpmath.bessely(1, x), uniform(0.1, 2), 4, 4, [(0.0, -INF), (-1.0, NAN), (INF, 0.0)]),
    "cyl_bessel_i0": (lambda x: mpmath.besseli(0, x), uniform(-80, 80), 0.6, 6, [(0.0, 1.0), (INF, INF), (-INF, INF)]),
    "cyl_bessel_i1": (lambda x: mpmath.besseli(1, x), uniform(-80, 80), 0.6, 6, [(0.0, 0.0), (INF, INF), (-INF, -INF)]),
}  # fmt: skip


def test_functions_of_one_number():
    batch = Batch()
    mpmath.mp.dps = 40
    for name, (function, arguments, ulp32, ulp64, special) in UNARY.items():
        for symbol, kind, ulp in ((f"__nv_{name}f", "f32", ulp32), (f"__nv_{name}", "f64", max(ulp64, 4))):
            given = arguments.astype(NUMPY[kind])
            expected = [function(mpmath.mpf(float(x))) for x in given]
            given = np.concatenate([given, np.array([*(x for x, _ in special), NAN], NUMPY[kind])])
            expected = np.array([*expected, *(y for _, y in special), NAN], object)
            batch.add(call(symbol, (kind,), kind), (given,), expected, same=near(ulp))
            for fast in {f"__nv_fast_{name}f", f"__nv_fast_{name}"} & set(LIBDEVICE):
                if kind == "f32" or not fast.endswith("f"):
                    batch.add(call(fast, (kind,), kind), (given,), expected, same=near(ulp))
    batch.run()


BINARY = {
    "atan2": (mpmath.atan2, BOTH_SIGNS, 2, 1),
    "hypot": (mpmath.hypot, BOTH_SIGNS, 1.1, 1),
    "rhypot": (lambda x, y: 1 / mpmath.hypot(x, y), BOTH_SIGNS, 0.6, 2),
    "pow": (mpmath.power, powers(-3, 3), 1.1, 1),
    "fmod": (lambda x, y: mpmath.mpf(math.fmod(x, y)), BOTH_SIGNS, 0, 0),
    "remainder": (lambda x, y: mpmath.mpf(math.remainder(x, y)), BOTH_SIGNS, 0, 0),
    "fdim": (lambda x, y: max(x - y, mpmath.mpf(0)), BOTH_SIGNS, 0.5, 0.5),
    "fmax": (max, BOTH_SIGNS, 0, 0),
    "fmin": (min, BOTH_SIGNS, 0, 0),
    "copysign": (lambda x, y: abs(x) * mpmath.sign(y), BOTH_SIGNS, 0, 0),
}


def test_functions_of_several_numbers():
    batch = Batch()
    mpmath.mp.dps = 40
    for name, (function, arguments, ulp32, ulp64) in BINARY.items():
        for symbol, kind, ulp in ((f"__nv_{name}f", "f32", ulp32), (f"__nv_{name}", "f64", ulp64)):
            x = arguments.astype(NUMPY[kind])
            y = RNG.permutation(x)
            expected = np.array(
                [function(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(x, y, strict=True)], object
            )
            batch.add(call(symbol, (kind, kind), kind), (x, y), expected, same=near(ulp))
            for fast in {f"__nv_fast_{name}f", f"__nv_fast_{name}"} & set(LIBDEVICE):
                if kind == "f32" or not fast.endswith("f"):
                    batch.add(call(fast, (kind, kind), kind), (x, y), expected, same=near(ulp))
    for count in (3, 4):
        for kind, ending, ulp in (("f32", "f", 0.6), ("f64", "", 3)):
            given = [RNG.permutation(BOTH_SIGNS).astype(NUMPY[kind]) for _ in range(count)]
            length = [mpmath.sqrt(sum(mpmath.mpf(float(x)) ** 2 for x in row)) for row in zip(*given, strict=True)]
            op = call(f"__nv_norm{count}d{ending}", (kind,) * count, kind)
            batch.add(op, given, np.array(length, object), same=near(ulp))
            op = call(f"__nv_rnorm{count}d{ending}", (kind,) * count, kind)
            batch.add(op, given, np.array([1 / x for x in length], object), same=near(ulp))
    for kind, ending in (("f32", "f"), ("f64", "")):
        x, n = powers(-2, 2).astype(NUMPY[kind]), np.arange(-20, 20, dtype=np.int32)
        expected = [mpmath.mpf(float(a)) ** int(b) for a, b in zip(x, n, strict=True)]
        batch.add(call(f"__nv_powi{ending}", (kind, "i32"), kind), (x, n), np.array(expected, object), same=near(1))
        x, n = uniform(3, 9).astype(NUMPY[kind]), np.arange(40, dtype=np.int32) % 4
        for letter, function in (("j", mpmath.besselj), ("y", mpmath.bessely)):
            expected = np.array([function(int(b), mpmath.mpf(float(a))) for a, b in zip(x, n, strict=True)], object)
            op = call(f"__nv_{letter}n{ending}", ("i32", kind), kind)
            batch.add(op, (n, x), expected, same=near(200))  # zeros lie among them
    batch.run()


def test_pow_of_special_values():
    batch = Batch()
    values = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, -3.0, 2.5, INF, -INF, NAN])
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    for symbol, kind in (("__nv_powf", "f32"), ("__nv_pow", "f64")):
        op = call(symbol, (kind, kind), kind)
        batch.add(op, (x.astype(NUMPY[kind]), y.astype(NUMPY[kind])), expected, same=within(1))
    batch.run()


def test_rounding_and_parts_of_numbers():
    batch = Batch()
    for kind, ending in (("f32", "f"), ("f64", "")):
        dtype = NUMPY[kind]
        tiny = float(np.finfo(dtype).smallest_subnormal)
        x = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 7.1, -7.9, 1e30, -1e30, tiny, 3 * tiny, -tiny, INF, -INF, NAN, *BOTH_SIGNS], dtype)  # fmt: skip
        y = np.roll(x, 3)
        away = np.copysign(np.floor(np.abs(x.astype(np.longdouble)) + 0.5).astype(dtype), x)
        for name, value in {
            "floor": np.floor(x),
            "ceil": np.ceil(x),
            "trunc": np.trunc(x),
            "rint": np.rint(x),
            "nearbyint": np.rint(x),
            "round": away,
            "fabs": np.abs(x),
            "logb": np.where(np.isfinite(x) & (x != 0), np.frexp(x)[1] - 1, np.where(x == 0, -INF, x * x)),
        }.items():
            batch.add(call(f"__nv_{name}{ending}", (kind,), kind), (x,), value.astype(dtype))
        batch.add(call(f"__nv_nextafter{ending}", (kind, kind), kind), (x, y), np.nextafter(x, y))
        low, high = -(2**31), 2**31 - 1
        exponent = np.where(np.isfinite(x) & (x != 0), np.frexp(x)[1] - 1, np.where(np.isinf(x), high, low))
        batch.add(call(f"__nv_ilogb{ending}", (kind,), "i32"), (x,), exponent.astype(np.int32))
        long = saturated(np.rint(x), "i64")
        batch.add(call(f"__nv_llrint{ending}", (kind,), "i64"), (x,), long)
        batch.add(call(f"__nv_llround{ending}", (kind,), "i64"), (x,), saturated(away, "i64"))
        for name, value in {"isnan": np.isnan(x), "isinf": np.isinf(x), "signbit": np.signbit(x)}.items():
            spelled = f"__nv_{name}{'f' if kind == 'f32' else 'd'}"
            batch.add(call(spelled, (kind,), "i32"), (x,), value.astype(np.int32))
        spelled = "__nv_finitef" if kind == "f32" else "__nv_isfinited"
        batch.add(call(spelled, (kind,), "i32"), (x,), np.isfinite(x).astype(np.int32))
        n = np.resize(np.array([0, 1, -1, 30, -30, 150, -150, 1100, -1100, -2100, 2**31 - 1, -(2**31)]), x.size)
        n = n.astype(np.int32)
        with np.errstate(all="ignore"):
            scaled = np.ldexp(x, n)
        for name in ("ldexp", "scalbn"):
            batch.add(call(f"__nv_{name}{ending}", (kind, "i32"), kind), (x, n), scaled)
    with np.errstate(invalid="ignore"):
        x = BOTH_SIGNS.astype(np.float32)
        x = np.concatenate([x, np.float32([NAN, INF, -INF, 0.5, -0.0])])
        batch.add(call("__nv_saturatef", ("f32",), "f32"), (x,), np.clip(np.nan_to_num(x, nan=0), 0, 1) + np.float32(0))
    batch.run()


def test_names_of_old_releases_for_both_forms_of_isnan_and_isinf():
    batch = Batch()
    x = np.array([1.0, NAN, INF, -INF])
    batch.add(call("__nv_isnan", ("f64",), "i32"), (x,), np.isnan(x).astype(np.int32))
    batch.add(call("__nv_isinf", ("f64",), "i32"), (x,), np.isinf(x).astype(np.int32))
    batch.run()


def saturated(values, kind):
    bits = int(kind[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "i" else (0, (1 << bits) - 1)
    result = [0 if np.isnan(x) else int(min(max(x, low), high)) if np.isfinite(x) else (high if x > 0 else low) for x in values.tolist()]  # fmt: skip
    return np.array(result, f"{kind[0]}{bits // 8}").view(f"i{bits // 8}")


def test_integers():
    batch = Batch()
    edges = [0, 1, -1, 2, 255, -256, 0x7FFFFF, 0x800000, 0xFFFFFF, 2**31 - 1, -(2**31), 0x12345678]
    a = np.concatenate([np.repeat(edges, len(edges)), RNG.integers(-(2**31), 2**31, 200)]).astype(np.int32)
    b = np.concatenate([np.tile(edges, len(edges)), RNG.integers(-(2**31), 2**31, 200)]).astype(np.int32)
    c = RNG.permutation(a)
    la, lb = (x.astype(np.int64) * 0x123456789 + np.roll(x, 1) for x in (a, b))
    A, B = a.astype(object), b.astype(object)
    UA, UB, UC = (x.view(np.uint32).astype(object) for x in (a, b, c))
    LA, LB = la.astype(object), lb.astype(object)
    ULA, ULB = la.view(np.uint64).astype(object), lb.view(np.uint64).astype(object)

    def low24(x, *, signed):
        x = x & 0xFFFFFF
        return x - (1 << 24) if signed and x >> 23 else x

    def permuted(x, y, s):
        both = y << 32 | x
        return sum((both >> 8 * (s >> 4 * n & 7) & 255) << 8 * n for n in range(4))

    for symbol, (arguments, values, kind) in {
        "__nv_clz": ((a,), [32 - int(x).bit_length() for x in UA], "i32"),
        "__nv_clzll": ((la,), [64 - int(x).bit_length() for x in ULA], "i32"),
        "__nv_popc": ((a,), [int(x).bit_count() for x in UA], "i32"),
        "__nv_popcll": ((la,), [int(x).bit_count() for x in ULA], "i32"),
        "__nv_ffs": ((a,), [(int(x) & -int(x)).bit_length() for x in UA], "i32"),
        "__nv_ffsll": ((la,), [(int(x) & -int(x)).bit_length() for x in ULA], "i32"),
        "__nv_brev": ((a,), [int(f"{x:032b}"[::-1], 2) for x in UA], "i32"),
        "__nv_brevll": ((la,), [int(f"{x:064b}"[::-1], 2) for x in ULA], "i64"),
        "__nv_byte_perm": ((a, b, c), [permuted(*row) for row in zip(UA, UB, UC, strict=True)], "i32"),
        "__nv_mulhi": ((a, b), A * B >> 32, "i32"),
        "__nv_umulhi": ((a, b), UA * UB >> 32, "i32"),
        "__nv_mul64hi": ((la, lb), LA * LB >> 64, "i64"),
        "__nv_umul64hi": ((la, lb), ULA * ULB >> 64, "i64"),
        "__nv_mul24": ((a, b), [low24(x, signed=True) * low24(y, signed=True) for x, y in zip(A, B, strict=True)], "i32"),
        "__nv_umul24": ((a, b), [low24(x, signed=False) * low24(y, signed=False) for x, y in zip(A, B, strict=True)], "i32"),
        "__nv_sad": ((a, b, c), abs(A - B) + UC, "i32"),
        "__nv_usad": ((a, b, c), abs(UA - UB) + UC, "i32"),
        "__nv_hadd": ((a, b), A + B >> 1, "i32"),
        "__nv_uhadd": ((a, b), UA + UB >> 1, "i32"),
        "__nv_rhadd": ((a, b), A + B + 1 >> 1, "i32"),
        "__nv_urhadd": ((a, b), UA + UB + 1 >> 1, "i32"),
        "__nv_abs": ((a,), abs(A), "i32"),
        "__nv_llabs": ((la,), abs(LA), "i64"),
        "__nv_min": ((a, b), np.minimum(A, B), "i32"),
        "__nv_max": ((a, b), np.maximum(A, B), "i32"),
        "__nv_umin": ((a, b), np.minimum(UA, UB), "i32"),
        "__nv_umax": ((a, b), np.maximum(UA, UB), "i32"),
    }.items():  # fmt: skip
        bits = int(kind[1:])
        wrapped = np.array([int(x) & ((1 << bits) - 1) for x in values], f"u{bits // 8}").view(NUMPY[kind])
        kinds = tuple("i64" if x.dtype == np.int64 else "i32" for x in arguments)
        batch.add(call(symbol, kinds, kind), arguments, wrapped)
    f = a.view(np.float32)
    d = la.view(np.float64)
    for name in ("int_as_float", "uint_as_float"):
        batch.add(call(f"__nv_{name}", ("i32",), "f32"), (a,), f)
    for name in ("float_as_int", "float_as_uint"):
        batch.add(call(f"__nv_{name}", ("f32",), "i32"), (f,), a)
    batch.add(call("__nv_longlong_as_double", ("i64",), "f64"), (la,), d)
    batch.add(call("__nv_double_as_longlong", ("f64",), "i64"), (d,), la)
    high, low = (la >> 32).astype(np.int32), la.astype(np.int32)
    batch.add(call("__nv_hiloint2double", ("i32", "i32"), "f64"), (high, low), d)
    batch.add(call("__nv_double2hiint", ("f64",), "i32"), (d,), high)
    batch.add(call("__nv_double2loint", ("f64",), "i32"), (d,), low)
    batch.run()


# ---- directed rounding, against fractions


def directed(exact, dtype, mode, *, zero=0.0):
    """A fraction rounded to the type; ``zero`` is what an exact zero gives."""
    if exact == 0:
        return dtype(zero)
    with np.errstate(over="ignore"):
        near = dtype(exact.numerator / exact.denominator) if dtype is np.float64 else nearest_single(exact)
    if mode == "rn":
        return near
    wanted_below = mode == "rd" or (mode == "rz" and exact > 0)
    if np.isinf(near) or Fraction(float(near)) != exact:
        is_above = near == INF or (np.isfinite(near) and Fraction(float(near)) > exact)
        if is_above and wanted_below:
            return np.nextafter(near, dtype(-INF))
        if not is_above and not wanted_below:
            return np.nextafter(near, dtype(INF))
    return near


def nearest_single(exact):
    near = np.float32(exact.numerator / exact.denominator)
    if np.isinf(near):
        limit = Fraction(float(np.finfo(np.float32).max)) + Fraction(2) ** 103
        return np.copysign(np.finfo(np.float32).max, near) if abs(exact) < limit else near
    around = sorted(
        {float(near), float(np.nextafter(near, np.float32(INF))), float(np.nextafter(near, np.float32(-INF)))}
    )
    even = {value: int(np.float32(value).view(np.uint32)) & 1 for value in around}
    return np.float32(min((v for v in around if np.isfinite(v)), key=lambda v: (abs(Fraction(v) - exact), even[v])))


def single_values():
    edges = [1.0, -1.0, 0.0, 3.0, -7.0, 1 + 2.0**-23, 2.0**-149, -(2.0**-149), 2.0**-126, 3.4028234663852886e38, 1 / 3]
    return np.concatenate([np.float32(edges), (BOTH_SIGNS * RNG.uniform(1, 2, BOTH_SIGNS.size)).astype(np.float32)])


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
def test_arithmetic_rounds_as_its_name_says(mode):
    batch = Batch()
    a = single_values()
    a = np.concatenate([a, a])
    b, c = np.roll(a, 5), np.roll(a, 11)
    b[: a.size // 8] = -a[: a.size // 8]  # sums of exactly zero
    negative = -0.0 if mode == "rd" else 0.0

    def each(function, *arrays):
        rows = zip(*(map(float, array) for array in arrays), strict=True)
        return np.array([function(*row) for row in rows], np.float32)

    def add(x, y):
        both_zero = x == 0 and y == 0 and math.copysign(1, x) == math.copysign(1, y)
        return directed(Fraction(x) + Fraction(y), np.float32, mode, zero=x + y if both_zero else negative)

    def multiply(x, y):
        return directed(Fraction(x) * Fraction(y), np.float32, mode, zero=x * y)

    def divide(x, y):
        if y == 0:
            return np.float32(x) / np.float32(y)
        return directed(Fraction(x) / Fraction(y), np.float32, mode, zero=math.copysign(0.0, x) * math.copysign(1, y))

    def root(x):
        if x <= 0:
            return np.sqrt(np.float32(x))
        mpmath.mp.dps = 60
        value = mpmath.sqrt(x)
        return directed(Fraction(int(mpmath.floor(value * 2**180)), 2**180) + (value * 2**180 != mpmath.floor(value * 2**180)) * Fraction(1, 2**181), np.float32, mode)  # fmt: skip

    def fused(x, y, z):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        return directed(
            exact,
            np.float32,
            mode,
            zero=z if x * y == 0 == z and math.copysign(1, x * y) == math.copysign(1, z) else negative,
        )

    with np.errstate(all="ignore"):
        for name, (arguments, function) in {
            "add": ((a, b), add),
            "sub": ((a, -b), lambda x, y: add(x, -y)),
            "mul": ((a, b), multiply),
            "div": ((a, c), divide),
            "rcp": ((a,), lambda x: divide(1.0, x)),
            "sqrt": ((a,), root),
        }.items():
            op = call(f"__nv_f{name}_{mode}", ("f32",) * len(arguments), "f32")
            batch.add(op, arguments, each(function, *arguments))
        batch.add(call(f"__nv_fmaf_{mode}", ("f32",) * 3, "f32"), (a, b, c), each(fused, a, b, c))
    batch.run()


def test_double_arithmetic_to_nearest_is_not_fused():
    batch = Batch()
    x, y, z = (RNG.standard_normal(200) for _ in range(3))
    with np.errstate(invalid="ignore"):
        for name, value in {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y}.items():
            batch.add(call(f"__nv_d{name}_rn", ("f64", "f64"), "f64"), (x, y), value)
        batch.add(call("__nv_dsqrt_rn", ("f64",), "f64"), (x,), np.sqrt(x))
        batch.add(call("__nv_drcp_rn", ("f64",), "f64"), (x,), 1 / x)
    exact = [float(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in zip(x, y, z, strict=True)]
    batch.add(call("__nv_fma_rn", ("f64",) * 3, "f64"), (x, y, z), np.array(exact))
    batch.add(call("__nv_fma", ("f64",) * 3, "f64"), (x, y, z), np.array(exact))
    s, t, u = (v.astype(np.float32) for v in (x, y, z))
    exact = [directed(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)), np.float32, "rn") for a, b, c in zip(s, t, u, strict=True)]  # fmt: skip
    batch.add(call("__nv_fmaf", ("f32",) * 3, "f32"), (s, t, u), np.array(exact))
    batch.add(call("__nv_fast_fdividef", ("f32", "f32"), "f32"), (s, t), s / t)
    roots = [nearest_single(Fraction(int(mpmath.nstr(1 / mpmath.sqrt(float(v)) * 2**150, 60).split(".")[0]), 2**150)) for v in np.abs(s)]  # fmt: skip
    batch.add(call("__nv_frsqrt_rn", ("f32",), "f32"), (np.abs(s),), np.array(roots))
    batch.run()


def test_a_product_that_must_not_be_fused_is_not():
    batch = Batch()
    x, y, z = (RNG.standard_normal(500) for _ in range(3))
    expected = x * y + z
    multiply = call("__nv_dmul_rn", ("f64", "f64"), "f64")
    types = [value.type for value in multiply.operands]
    product = ops.scalar_expression(multiply, ["x0[i]", "x1[i]"], types, multiply.result.type)
    add = operation("arith.addf", ("f64", "f64"), "f64")
    text = ops.scalar_expression(add, [product, "x2[i]"], types, add.result.type)
    batch.add(operation("math.fma", ("f64",) * 3, "f64"), (x, y, z), expected)
    batch.pieces.add("directed")
    batch.text[0] = batch.text[0].split("out[i] =", 1)[0] + f"out[i] = {text};\n}}\n"
    batch.run(contract=True)


INTEGERS = {"int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
def test_conversions_round_as_their_name_says(mode):
    batch = Batch()
    rounding = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}[mode]
    for source, element in (("float", "f32"), ("double", "f64")):
        dtype = NUMPY[element]
        x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.1, -0.1, 1e6 + 0.5, 3e9, -3e9, 1e19, -1e19, 2e19, INF, -INF, NAN], dtype)  # fmt: skip
        x = np.concatenate([x, (BOTH_SIGNS * 300).astype(dtype)])
        for name, kind in INTEGERS.items():
            wide = "i64" if kind.endswith("64") else "i32"
            op = call(f"__nv_{source}2{name}_{mode}", (element,), wide)
            batch.add(op, (x,), saturated(rounding(x), kind))
    for name, kind in INTEGERS.items():
        bits = int(kind[1:])
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "i" else (0, (1 << bits) - 1)
        exact = [low, high, high - 1, low + 1, 0, 1, (1 << 24) + 1, (1 << 25) + 3, high // 3]
        exact += [int(v) for v in RNG.integers(low, high, 60, dtype=f"{kind[0]}{bits // 8}")]
        whole = np.array(exact, f"{kind[0]}{bits // 8}").view(f"i{bits // 8}")
        for target, element in (("float", "f32"), ("double", "f64")):
            symbol = f"__nv_{name}2{target}_{mode}"
            if symbol in LIBDEVICE:
                expected = np.array([directed(Fraction(v), NUMPY[element], mode) for v in exact], NUMPY[element])
                batch.add(call(symbol, (f"i{bits}",), element), (whole,), expected)
    x = np.concatenate(
        [BOTH_SIGNS, [1 + 2.0**-24, 1 + 2.0**-30, -1 - 2.0**-30, 1e300, -1e300, 1e-60, -1e-60, 0.0, 1e-40]]
    )
    expected = [directed(Fraction(float(v)), np.float32, mode) for v in x]
    batch.add(call(f"__nv_double2float_{mode}", ("f64",), "f32"), (x,), np.array(expected, np.float32))
    batch.run()


def test_every_function_of_the_table_was_tested():
    """Runs last in this file; alone it has nothing to say."""
    if len(TESTED) > 250:
        assert set(LIBDEVICE) - TESTED == set()


def test_every_function_that_triton_names_is_there_or_refused_with_a_reason():
    libdevice = pytest.importorskip("triton.language.extra.cuda.libdevice")
    import inspect
    import re

    named = set(re.findall(r'"(__nv_\w+)"', inspect.getsource(libdevice)))
    assert len(named) > 250
    for symbol in sorted(named - set(LIBDEVICE)):
        reason = ops.refusal(operation("tt.extern_elementwise", ("f64",), "f64", symbol=symbol))
        assert "rounds to nearest only" in reason or "hardware" in reason, (symbol, reason)


def rows_of_amd():
    """The operand types, the symbol and the type of the result of each function of AMD's that Triton names."""
    import inspect
    import re

    libdevice = pytest.importorskip("triton.language.extra.hip.libdevice")
    elements = {"fp32": "f32", "fp64": "f64", "int32": "i32", "int64": "i64", "int1": "i1"}
    row = re.compile(
        r"\(((?:core\.dtype\(\"\w+\"\), ?)+(?:core\.dtype\(\"\w+\"\))?)\): ?\(\"(\w+)\", core\.dtype\(\"(\w+)\"\)\)"
    )
    found = [
        (tuple(elements[word] for word in re.findall(r'"(\w+)"', inputs)), symbol, elements[output])
        for inputs, symbol, output in row.findall(inspect.getsource(libdevice))
    ]
    assert len(found) > 90
    return found


def test_every_function_of_amds_that_triton_names_is_there():
    for inputs, symbol, output in rows_of_amd():
        assert ops.refusal(operation("tt.extern_elementwise", inputs, output, symbol=symbol)) == "", symbol


def test_functions_of_amds_are_those_of_libdevice():
    batch = Batch()
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 1e9, -7.25, 3.0])
    narrow = x.astype(np.float32)
    batch.add(operation("tt.extern_elementwise", ("f32",), "f32", symbol="__ocml_round_f32"), (narrow,), np.float32([1, 2, 3, -1, -3, 1e9, -7, 3]))  # fmt: skip
    batch.add(operation("tt.extern_elementwise", ("f32",), "f32", symbol="__triton_hip_rint"), (narrow,), np.float32([0, 2, 2, -0.0, -2, 1e9, -7, 3]))  # fmt: skip
    batch.add(
        operation("tt.extern_elementwise", ("f64",), "i64", symbol="__triton_hip_llrint"),
        (x,),
        np.rint(x).astype(np.int64),
    )
    batch.add(
        operation("tt.extern_elementwise", ("f32",), "i32", symbol="__ocml_signbit_f32"),
        (narrow,),
        np.signbit(x).astype(np.int32),
    )
    words = np.array([0, 1, -1, 1 << 40, 255, 1 << 62, -5, 7])
    leading = np.array([64, 63, 0, 23, 56, 1, 0, 61])
    batch.add(operation("tt.extern_elementwise", ("i64",), "i64", symbol="__ockl_clz_u64"), (words,), leading)
    batch.add(operation("tt.extern_elementwise", ("i64",), "i64", symbol="__triton_hip_iabs"), (words,), np.abs(words))
    batch.run()

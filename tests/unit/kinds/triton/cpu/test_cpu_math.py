"""Mathematical functions on the CPU: their errors over wide ranges, and libdevice functions by name."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from cpu_operations import (
    NUMPY,
    Batch,
    needs_compiler,
    operation,
    within,
)

pytestmark = needs_compiler


def _scalar(function):
    return np.vectorize(function, otypes=[float])


# Largest error in units in the last place that the page states, over all arguments, and what is drawn besides.
MATH = {
    "exp": (np.exp, 1.2, (-104.0, 89.0)),
    "exp2": (np.exp2, 1.1, (-150.0, 128.5)),
    "expm1": (np.expm1, 1.6, (-20.0, 89.0)),
    "log": (np.log, 1.0, (0.4, 2.5)),
    "log2": (np.log2, 2.1, (0.4, 2.5)),
    "log10": (np.log10, 0.51, (0.4, 2.5)),
    "log1p": (np.log1p, 1.6, (-0.9, 2.0)),
    "tanh": (np.tanh, 1.6, (-10.0, 10.0)),
    "erf": (_scalar(math.erf), 1.6, (-4.5, 4.5)),
    "erfc": (_scalar(math.erfc), 0.55, (-4.5, 10.3)),
    "sin": (np.sin, 1.6, (-100.0, 100.0)),
    "cos": (np.cos, 1.6, (-100.0, 100.0)),
    "tan": (np.tan, 0.51, (-10.0, 10.0)),
    "asin": (np.arcsin, 2.0, (-1.0, 1.0)),
    "acos": (np.arccos, 1.6, (-1.0, 1.0)),
    "atan": (np.arctan, 1.6, (-10.0, 10.0)),
    "sinh": (np.sinh, 2.1, (-90.0, 90.0)),
    "cosh": (np.cosh, 1.6, (-90.0, 90.0)),
    "asinh": (np.arcsinh, 0.51, (-10.0, 10.0)),
    "acosh": (np.arccosh, 0.51, (1.0, 10.0)),
    "atanh": (np.arctanh, 0.51, (-1.0, 1.0)),
    "cbrt": (np.cbrt, 0.51, (-10.0, 10.0)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6, (0.0, 100.0)),
}


@pytest.mark.parametrize("contract", [True, False])
def test_mathematical_functions_stay_within_their_stated_error(contract):
    batch = Batch()
    generator = np.random.default_rng(11)
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        math.inf,
        -math.inf,
        math.nan,
        1e-45,
        -1e-45,
        1e-38,
        3e38,
        -3e38,
        88.72284,
        88.7229,
    ]
    for name, (function, ulp, (low, high)) in MATH.items():
        any_bits = generator.integers(0, 1 << 32, 60_000, dtype=np.uint32).view(np.float32)
        values = np.concatenate(
            [any_bits, generator.uniform(low, high, 60_000).astype(np.float32), np.float32(special)]
        )
        expected = function(values.astype(np.float64))
        batch.add(operation(f"math.{name}", ("f32",), "f32"), (values,), expected, same=within(ulp))
    batch.run(contract)


def test_the_angles_hardest_to_reduce():
    """Floats of every size that lie next to a multiple of pi / 2, the closest of all (16367173 * 2^72) among them."""
    batch = Batch()
    mpmath.mp.prec = 300
    values = [16367173 * 2.0**72, 3e38, 2.0**127, -(2.0**100), 2.0**28, 2.0**81, 2.0**82, 2.0**83]
    quarter = mpmath.pi / 2
    for power in range(2, 127, 3):
        near = np.float32(float(mpmath.nint(mpmath.mpf(2) ** power / quarter) * quarter))
        values += [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0))]
    values = np.array(values, np.float32)
    for name, function, ulp in (("sin", mpmath.sin, 1.6), ("cos", mpmath.cos, 1.6), ("tan", mpmath.tan, 0.51)):
        expected = np.array([float(function(mpmath.mpf(float(x)))) for x in values])
        batch.add(operation(f"math.{name}", ("f32",), "f32"), (values,), expected, same=within(ulp))
    batch.run()
    mpmath.mp.prec = 53


def test_functions_of_two_numbers():
    batch = Batch()
    generator = np.random.default_rng(21)
    edges = np.float32([0.0, -0.0, 1, -1, 0.5, -2, 3, -3, 2.5, 1e-40, -1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan])
    x, y = (grid.ravel() for grid in np.meshgrid(edges, edges))
    bits = generator.integers(0, 1 << 32, (2, 40_000), dtype=np.uint32).view(np.float32)
    usual = generator.uniform(-8, 8, (2, 40_000)).astype(np.float32)
    positive = np.abs(usual) * np.float32([[1], [-1]])
    x, y = (np.concatenate(parts) for parts in zip((x, y), bits, usual, positive, strict=True))
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    batch.add(operation("math.powf", ("f32",) * 2, "f32"), (x, y), np.power(wide_x, wide_y), same=within(0.51))
    batch.add(operation("math.atan2", ("f32",) * 2, "f32"), (x, y), np.arctan2(wide_x, wide_y), same=within(2))
    batch.run()


def test_functions_of_f64():
    batch = Batch()
    mpmath.mp.prec = 120
    generator = np.random.default_rng(22)
    edges = [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.0**-1023, 1e308, np.inf, -np.inf, np.nan]
    for name, function, ulp, low, high in (
        ("exp", mpmath.exp, 1, -745, 709.7),
        ("exp2", lambda x: mpmath.mpf(2) ** x, 1.1, -1074, 1024),
        ("log", mpmath.log, 1, 0.5, 2),
        ("log2", lambda x: mpmath.log(x) / mpmath.log(2), 1, 0.5, 2),
        ("tanh", mpmath.tanh, 1.6, -3, 3),
    ):
        values = np.concatenate([generator.uniform(low, high, 400), edges])
        reference = {"tanh": np.tanh, "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2}[name]
        special = reference(values[400:])
        exact = [function(mpmath.mpf(x)) for x in values[:400].tolist()]
        op = operation(f"math.{name}", ("f64",), "f64")
        batch.add(op, (values,), np.array([*exact, *special.tolist()], object), same=near_double(ulp))
    batch.run()
    mpmath.mp.prec = 53


def near_double(ulp):
    def same(label, inputs, got, expected):
        for at, value, wanted in zip(inputs[0].tolist(), got.tolist(), expected.tolist(), strict=True):
            where = f"{label}: {at!r} gave {value!r}, expected {wanted}"
            if isinstance(wanted, float) and (not math.isfinite(wanted) or wanted == 0):
                assert math.isnan(value) if math.isnan(wanted) else value == wanted, where
                assert math.isnan(wanted) or math.copysign(1, value) == math.copysign(1, wanted), where
            else:
                assert abs(mpmath.mpf(value) - wanted) <= ulp * np.spacing(abs(float(wanted))), where

    return same


def test_functions_of_halves_and_of_f64():
    batch = Batch()
    generator = np.random.default_rng(3)
    for name in ("exp", "log", "sin", "tanh", "sqrt", "erf", "floor"):
        function = {"sqrt": np.sqrt, "floor": np.floor}.get(name) or MATH[name][0]
        for kind in ("f16", "bf16"):
            halves = generator.uniform(-8, 8, 2000).astype(NUMPY[kind])
            batch.add(
                operation(f"math.{name}", (kind,), kind),
                (halves,),
                function(halves.astype(np.float32).astype(np.float64)).astype(np.float32).astype(NUMPY[kind]),
                same=close_halves,
            )
        wide = generator.uniform(-8, 8, 2000)
        batch.add(operation(f"math.{name}", ("f64",), "f64"), (wide,), function(wide), same=close_wide)
    x, y = generator.uniform(0.1, 8, 500).astype(np.float32), generator.uniform(-5, 5, 500).astype(np.float32)
    batch.add(
        operation("math.powf", ("f32", "f32"), "f32"),
        (x, y),
        np.power(x.astype(np.float64), y).astype(np.float32),
        same=close_single,
    )
    batch.run()


def close_halves(label, inputs, got, expected):
    a, b = got.astype(np.float64), expected.astype(np.float64)
    step = np.spacing(np.abs(expected)).astype(np.float64)
    assert (np.isnan(a) == np.isnan(b)).all(), label
    good = ~np.isnan(b) & np.isfinite(b)
    assert (np.abs(a - b)[good] <= step[good]).all(), label


def close_wide(label, inputs, got, expected):
    np.testing.assert_allclose(got, expected, rtol=4e-16, atol=0, err_msg=label)


def close_single(label, inputs, got, expected):
    np.testing.assert_allclose(got, expected, rtol=2.5e-7, atol=0, err_msg=label)


def test_libdevice_functions_by_name():
    batch = Batch()
    x, y = (np.random.default_rng(seed).uniform(0.1, 5, 300).astype(np.float32) for seed in (1, 2))
    w, v = x.astype(np.float64), y.astype(np.float64)
    for symbol, function in {
        "__nv_rsqrtf": lambda: 1 / np.sqrt(w),
        "__nv_tanhf": lambda: np.tanh(w),
        "__nv_expf": lambda: np.exp(w),
        "__nv_logf": lambda: np.log(w),
        "__nv_log1pf": lambda: np.log1p(w),
        "__nv_fabsf": lambda: w,
        "__nv_floorf": lambda: np.floor(w),
        "__nv_fast_expf": lambda: np.exp(w),
    }.items():
        batch.add(
            operation("tt.extern_elementwise", ("f32",), "f32", symbol=symbol),
            (x,),
            function().astype(np.float32),
            same=close_single,
        )
    batch.add(
        operation("tt.extern_elementwise", ("f32", "f32"), "f32", symbol="__nv_powf"),
        (x, y),
        np.power(w, v).astype(np.float32),
        same=close_single,
    )
    batch.add(
        operation("tt.extern_elementwise", ("f64", "f64"), "f64", symbol="__nv_pow"),
        (w, v),
        np.power(w, v),
        same=close_wide,
    )
    batch.add(operation("tt.extern_elementwise", ("f32",), "i32", symbol="__nv_isnanf"), (x,), np.zeros(300, np.int32))
    batch.run()

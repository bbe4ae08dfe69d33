"""Mathematical functions on the CPU: their errors over wide ranges, and libdevice functions by name."""

from __future__ import annotations

import math

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


# Largest error in units in the last place that the runtime states, over all arguments, and what is drawn.
MATH = {
    "exp": (np.exp, 1.2, (-104.0, 89.0)),
    "exp2": (np.exp2, 1.1, (-150.0, 128.5)),
    "expm1": (np.expm1, 1.6, (-20.0, 89.0)),
    "log": (np.log, 1.0, (0.4, 2.5)),
    "log2": (np.log2, 2.1, (0.4, 2.5)),
    "log1p": (np.log1p, 1.6, (-0.9, 2.0)),
    "tanh": (np.tanh, 1.6, (-10.0, 10.0)),
    "erf": (np.vectorize(math.erf, otypes=[float]), 1.6, (-4.5, 4.5)),
    "sin": (np.sin, 1.6, (-100.0, 100.0)),
    "cos": (np.cos, 1.6, (-100.0, 100.0)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6, (0.0, 100.0)),
    "tan": (np.tan, 1.1, (-10.0, 10.0)),
    "log10": (np.log10, 2.5, (0.0, 10.0)),
    "atan": (np.arctan, 1.1, (-10.0, 10.0)),
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
        if name in ("sin", "cos"):
            values = values[~(np.isfinite(values) & (np.abs(values) > 2.0**28))]
        expected = function(values.astype(np.float64))
        batch.add(operation(f"math.{name}", ("f32",), "f32"), (values,), expected, same=within(ulp))
    batch.run(contract)


def test_angles_too_large_to_reduce_give_nan():
    batch = Batch()
    values = np.array([3e38, -3e38, 2.0**29], np.float32)
    batch.add(operation("math.sin", ("f32",), "f32"), (values,), np.full(3, np.nan, np.float32))
    batch.add(operation("math.cos", ("f32",), "f32"), (values,), np.full(3, np.nan, np.float32))
    batch.run()


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

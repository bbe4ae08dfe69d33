"""8-bit floating-point types: conversions in every direction and rounding, and operations that are computed in f32."""

from __future__ import annotations

import numpy as np
import pytest

from cpu_operations import EDGES, FP8, NUMPY, Batch, needs_compiler, operation
from silo.errors import UnsupportedError
from silo.kinds.triton.front.operations.cpu.c_types import literal

pytestmark = needs_compiler

EVERY = np.arange(256, dtype=np.uint8)


def numbers(kind):
    """Every finite number of the type from 0 up, as f64, and its bits."""
    values = EVERY[:128].view(NUMPY[kind]).astype(np.float64)
    return values[np.isfinite(values)]


def wide_values(kind):
    """Numbers of the type, their neighbours in f32, the midpoints, and values far out of range; all f32."""
    steps = numbers(kind).astype(np.float32)
    middle = (steps[1:] + steps[:-1]) / 2
    beyond = np.float32([steps[-1] * factor for factor in (1.01, 1.04, 1.0625, 1.07, 1.125, 1.13, 1.5, 2, 1e30)])
    exact = np.concatenate([steps, middle, beyond])
    near = [np.nextafter(exact, np.float32(side)) for side in (np.inf, -np.inf)]
    random = np.random.default_rng(5).uniform(-1.2, 1.2, 3000).astype(np.float32)
    random = np.concatenate([random * steps[-1], random * steps[1] * 4])
    values = np.concatenate([exact, *near, random, np.float32(EDGES)])
    return np.concatenate([values, -values])


def rounded(values, kind, *, zero=False, infinite=False):
    """What a conversion gives: the neighbours among the type's numbers, searched one by one.

    ``infinite``: an infinity stays one where the type has it, as in results of operations.
    """
    steps, dtype = numbers(kind), NUMPY[kind]
    size = np.minimum(np.abs(values.astype(np.float64)), steps[-1])
    size = np.where(np.isnan(size), 0, size)
    low = np.searchsorted(steps, size, side="right") - 1
    high = np.minimum(low + 1, steps.size - 1)
    down, up = size - steps[low], steps[high] - size
    to_even = np.where(low % 2 == 0, low, high)
    nearest = np.where(down < up, low, np.where(down > up, high, to_even))
    chosen = steps[low if zero else nearest]
    result = np.copysign(chosen, values)
    if (zero or infinite) and kind == "f8E5M2":
        result = np.where(np.isinf(values), values.astype(np.float64), result)
    return np.where(np.isnan(values), np.nan, result).astype(dtype)


@pytest.mark.parametrize("kind", FP8)
def test_every_number_widens_exactly(kind):
    batch = Batch()
    every = EVERY.view(NUMPY[kind])
    for name in ("tt.fp_to_fp", "arith.extf"):
        batch.add(operation(name, (kind,), "f32"), (every,), every.astype(np.float32))
        batch.add(operation(name, (kind,), "f64"), (every,), every.astype(np.float64))
        batch.add(operation(name, (kind,), "f16"), (every,), every.astype(np.float16))
        batch.add(operation(name, (kind,), "bf16"), (every,), every.astype(NUMPY["bf16"]))
    batch.run()


@pytest.mark.parametrize("kind", FP8)
def test_numbers_narrow_to_nearest_even_or_toward_zero_and_saturate(kind):
    batch = Batch()
    values = wide_values(kind)
    for source in ("f32", "f64", "f16", "bf16"):
        given = values.astype(NUMPY[source])
        for rounding in (1, 0):
            op = operation("tt.fp_to_fp", (source,), kind, rounding=rounding)
            batch.add(op, (given,), rounded(given, kind, zero=rounding == 0))
        batch.add(operation("arith.truncf", (source,), kind), (given,), rounded(given, kind))
    # By less than f32 can tell beside a tie.
    steps = numbers(kind)
    middle = (steps[1:] + steps[:-1]) / 2
    close = np.concatenate([middle * (1 + 2.0**-40), middle * (1 - 2.0**-40)])
    batch.add(operation("tt.fp_to_fp", ("f64",), kind, rounding=1), (close,), rounded(close, kind))
    batch.run()


def test_one_type_to_another():
    batch = Batch()
    for source in FP8:
        every = EVERY.view(NUMPY[source])
        for target in FP8:
            op = operation("tt.fp_to_fp", (source,), target, rounding=1)
            expected = every if source == target else rounded(every.astype(np.float32), target)
            batch.add(op, (every,), expected)
    batch.run()


def test_rounding_of_wider_types_toward_zero():
    batch = Batch()
    values = np.concatenate([wide_values("f8E5M2"), np.float32([65519, 65520, 1e-8, 1e-41, 3.39e38, -7e4])])
    values = np.concatenate([values, np.random.default_rng(8).integers(0, 1 << 32, 5000, dtype=np.uint32).view("f4")])
    wide = np.concatenate([values.astype(np.float64), [1 + 2.0**-24, 1e300, -1e300, 1e-50, 1 - 2.0**-30]])
    for kind in ("f16", "bf16"):
        batch.add(operation("tt.fp_to_fp", ("f32",), kind, rounding=0), (values,), toward_zero(values, kind))
        batch.add(operation("tt.fp_to_fp", ("f64",), kind, rounding=0), (wide,), toward_zero(wide, kind))
    batch.add(operation("tt.fp_to_fp", ("f64",), "f32", rounding=0), (wide,), toward_zero(wide, "f32"))
    batch.add(operation("arith.truncf", ("f64",), "f32", roundingmode=3), (wide,), toward_zero(wide, "f32"))
    batch.run()


def toward_zero(values, kind):
    dtype = np.dtype(NUMPY[kind])
    with np.errstate(all="ignore"):
        near = values.astype(dtype)
    wide = np.abs(near.astype(np.float64)) > np.abs(values.astype(np.float64))
    bits = near.view(f"u{dtype.itemsize}") - wide.astype(f"u{dtype.itemsize}")
    return bits.view(dtype)


@pytest.mark.parametrize("kind", FP8)
def test_operations_are_computed_in_f32_and_rounded(kind):
    batch = Batch()
    a, b = (x.ravel().view(NUMPY[kind]) for x in np.meshgrid(EVERY, EVERY[::5]))
    wa, wb = a.astype(np.float32), b.astype(np.float32)
    for name, value in {"addf": wa + wb, "subf": wa - wb, "mulf": wa * wb}.items():
        batch.add(operation(f"arith.{name}", (kind, kind), kind), (a, b), rounded(value, kind, infinite=True))
    batch.add(operation("arith.cmpf", (kind, kind), "i1", predicate=4), (a, b), (wa < wb).astype(np.uint8))
    batch.add(operation("arith.maxnumf", (kind, kind), kind), (a, b), np.fmax(wa, wb).astype(NUMPY[kind]))
    flag = (np.arange(a.size) % 2).astype(np.uint8)
    batch.add(operation("arith.select", ("i1", kind, kind), kind), (flag, a, b), np.where(flag, a, b))
    every = EVERY.view(NUMPY[kind])
    wide = every.astype(np.float32)
    batch.add(operation("arith.negf", (kind,), kind), (every,), (-wide).astype(NUMPY[kind]))
    batch.add(operation("math.absf", (kind,), kind), (every,), np.abs(wide).astype(NUMPY[kind]))
    batch.add(operation("math.exp", (kind,), kind), (every,), rounded(np.exp(wide), kind, infinite=True))
    limited = np.clip(np.nan_to_num(wide.astype(np.float64)), -(2.0**31), 2.0**31 - 1)
    batch.add(operation("arith.fptosi", (kind,), "i32"), (every,), limited.astype(np.int32))
    whole = np.arange(-300, 300, dtype=np.int32)
    batch.add(operation("arith.sitofp", ("i32",), kind), (whole,), rounded(whole.astype(np.float32), kind))
    batch.add(operation("tt.bitcast", (kind,), "i8"), (every,), EVERY.view(np.int8))
    batch.add(operation("tt.bitcast", ("i8",), kind), (EVERY.view(np.int8),), every)
    batch.run()


@pytest.mark.parametrize("kind", FP8)
def test_constants_have_the_bits_of_their_type(kind):
    for bits, value in zip(EVERY, EVERY.view(NUMPY[kind]).astype(np.float64), strict=True):
        if not np.isnan(value):
            assert literal(value, kind) == f"((uint8_t)0x{bits:02x})"
    nan = int(literal(np.nan, kind)[len("((uint8_t)") : -1], 16)
    assert np.isnan(np.array(nan, np.uint8).view(NUMPY[kind]).astype(np.float64))
    with pytest.raises(UnsupportedError, match="not a number of type"):
        literal(1e6, kind)
    with pytest.raises(UnsupportedError, match="not a number of type"):
        literal(1.01, kind)

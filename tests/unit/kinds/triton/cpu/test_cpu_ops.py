"""Every elementwise operation, compiled and compared with numpy over edge values and random ones."""

from __future__ import annotations

import math
import struct
import warnings

import numpy as np
import pytest

from cpu_operations import (
    EDGES,
    FLOATS,
    INTS,
    NUMPY,
    Batch,
    floats,
    integers,
    needs_compiler,
    operation,
)
from silo.errors import UnsupportedError
from silo.kinds.triton.cpu import ops
from silo.kinds.triton.front.operations.operation_table import RENDERED
from silo.kinds.triton.front.ssa import Dense, Type

pytestmark = needs_compiler


def test_integer_arithmetic_wraps_and_never_traps():
    batch = Batch()
    for kind in INTS:
        bits = int(kind[1:])
        a, b = integers(kind)
        dtype, unsigned = NUMPY[kind], np.dtype(f"u{bits // 8}")
        big_a, big_b = a.astype(object), b.astype(object)
        ua, ub = a.view(unsigned).astype(object), b.view(unsigned).astype(object)

        def wrap(values, dtype=dtype, bits=bits):
            return np.array([(int(v) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)) for v in values]).astype(
                dtype
            )

        def quotient(x, y):
            return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

        divided = [quotient(x, y) for x, y in zip(big_a, big_b, strict=True)]
        rest = [x if y == 0 else x - quotient(x, y) * y for x, y in zip(big_a, big_b, strict=True)]
        expected = {
            "arith.addi": big_a + big_b,
            "arith.subi": big_a - big_b,
            "arith.muli": big_a * big_b,
            "arith.andi": big_a & big_b,
            "arith.ori": big_a | big_b,
            "arith.xori": big_a ^ big_b,
            "arith.divsi": divided,
            "arith.remsi": rest,
            "arith.divui": [-1 if y == 0 else x // y for x, y in zip(ua, ub, strict=True)],
            "arith.remui": [x if y == 0 else x % y for x, y in zip(ua, ub, strict=True)],
            "arith.floordivsi": [-1 if y == 0 else x // y for x, y in zip(big_a, big_b, strict=True)],
            "arith.ceildivsi": [-1 if y == 0 else -(-x // y) for x, y in zip(big_a, big_b, strict=True)],
            "arith.minsi": np.minimum(a, b),
            "arith.maxsi": np.maximum(a, b),
            "arith.minui": [min(x, y) for x, y in zip(ua, ub, strict=True)],
            "arith.maxui": [max(x, y) for x, y in zip(ua, ub, strict=True)],
            "arith.shli": [x << y if y < bits else 0 for x, y in zip(ua, ub, strict=True)],
            "arith.shrui": [x >> y if y < bits else 0 for x, y in zip(ua, ub, strict=True)],
            "arith.shrsi": [x >> min(y, bits - 1) for x, y in zip(big_a, ub, strict=True)],
        }
        if kind == "i64":  # the 64-bit minimum divided by -1 has no larger type to be exact in
            expected.pop("arith.floordivsi")
            expected.pop("arith.ceildivsi")
        for name, values in expected.items():
            batch.add(operation(name, (kind, kind), kind), (a, b), wrap(values))
        shift = (np.arange(a.size) % bits).astype(dtype)
        batch.add(
            operation("arith.shli", (kind, kind), kind),
            (a, shift),
            wrap([x << int(s) for x, s in zip(ua, shift, strict=True)]),
        )
        batch.add(operation("math.absi", (kind,), kind), (a,), wrap([abs(x) for x in big_a]))
        if bits >= 32:
            batch.add(
                operation("tt.mulhiui", (kind, kind), kind),
                (a, b),
                wrap([(x * y) >> bits for x, y in zip(ua, ub, strict=True)]),
            )
            batch.add(operation("math.ctlz", (kind,), kind), (a,), wrap([bits - int(x).bit_length() for x in ua]))
            batch.add(
                operation("math.cttz", (kind,), kind),
                (a,),
                wrap([(int(x) & -int(x)).bit_length() - 1 if x else bits for x in ua]),
            )
        batch.add(operation("math.ctpop", (kind,), kind), (a,), wrap([int(x).bit_count() for x in ua]))
    batch.run()


def test_integer_comparisons_and_casts():
    batch = Batch()
    for kind in INTS:
        bits = int(kind[1:])
        a, b = integers(kind)
        ua, ub = a.view(f"u{bits // 8}"), b.view(f"u{bits // 8}")
        results = [a == b, a != b, a < b, a <= b, a > b, a >= b, ua < ub, ua <= ub, ua > ub, ua >= ub]
        for predicate, result in enumerate(results):
            batch.add(operation("arith.cmpi", (kind, kind), "i1", predicate=predicate), (a, b), result.astype(np.uint8))
        for other in INTS:
            if int(other[1:]) > bits:
                batch.add(operation("arith.extsi", (kind,), other), (a,), a.astype(NUMPY[other]))
                batch.add(operation("arith.extui", (kind,), other), (a,), ua.astype(NUMPY[other]))
            elif int(other[1:]) < bits:
                batch.add(operation("arith.trunci", (kind,), other), (a,), a.astype(NUMPY[other]))
        batch.add(operation("arith.trunci", (kind,), "i1"), (a,), (a & 1).astype(np.uint8))
        for other in ("f32", "f64", "f16", "bf16"):
            through = np.float64 if other == "f64" else np.float32
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                batch.add(operation("arith.sitofp", (kind,), other), (a,), a.astype(through).astype(NUMPY[other]))
                batch.add(operation("arith.uitofp", (kind,), other), (a,), ua.astype(through).astype(NUMPY[other]))
        condition = (np.arange(a.size) % 3 == 0).astype(np.uint8)
        batch.add(operation("arith.select", ("i1", kind, kind), kind), (condition, a, b), np.where(condition, a, b))
    batch.run()


def test_bools_are_one_bit_integers():
    batch = Batch()
    a, b = np.array([0, 0, 1, 1], np.uint8), np.array([0, 1, 0, 1], np.uint8)
    sa, sb = -a.astype(np.int8), -b.astype(np.int8)  # as signed numbers a set bit is -1
    for name, result in {
        "addi": a ^ b,
        "subi": a ^ b,
        "muli": a & b,
        "andi": a & b,
        "ori": a | b,
        "xori": a ^ b,
        "minsi": -np.minimum(sa, sb),
        "maxsi": -np.maximum(sa, sb),
        "minui": np.minimum(a, b),
        "maxui": np.maximum(a, b),
    }.items():
        batch.add(operation(f"arith.{name}", ("i1", "i1"), "i1"), (a, b), result.astype(np.uint8))
    results = [a == b, a != b, sa < sb, sa <= sb, sa > sb, sa >= sb, a < b, a <= b, a > b, a >= b]
    for predicate, result in enumerate(results):
        batch.add(operation("arith.cmpi", ("i1", "i1"), "i1", predicate=predicate), (a, b), result.astype(np.uint8))
    batch.add(operation("arith.extsi", ("i1",), "i32"), (a,), sa.astype(np.int32))
    batch.add(operation("arith.extui", ("i1",), "i64"), (a,), a.astype(np.int64))
    batch.add(operation("arith.uitofp", ("i1",), "f32"), (a,), a.astype(np.float32))
    batch.add(operation("arith.sitofp", ("i1",), "f32"), (a,), sa.astype(np.float32) + 0.0)
    batch.run()


def test_floating_point_arithmetic_is_rounded_once():
    batch = Batch()
    for kind in FLOATS:
        a, b = floats(kind)
        dtype = NUMPY[kind]
        wide = np.float64 if kind != "f64" else np.longdouble
        for name, function in {"addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide}.items():
            # f64 is innocuous for one rounding of f32 results, and numpy's own f64 is exact for f64.
            expected = function(a, b) if kind == "f64" else function(a.astype(wide), b.astype(wide)).astype(dtype)
            batch.add(operation(f"arith.{name}", (kind, kind), kind), (a, b), expected)
        batch.add(
            operation("tt.precise_divf", (kind, kind), kind),
            (a, b),
            (a.astype(wide) / b.astype(wide)).astype(dtype) if kind != "f64" else a / b,
        )
        batch.add(
            operation("arith.remf", (kind, kind), kind),
            (a, b),
            np.fmod(a.astype(np.float64), b.astype(np.float64)).astype(dtype),
        )
        batch.add(operation("arith.negf", (kind,), kind), (a,), -a)
        batch.add(operation("math.absf", (kind,), kind), (a,), np.abs(a))
        batch.add(operation("tt.precise_sqrt", (kind,), kind), (a,), np.sqrt(a.astype(np.float64)).astype(dtype))
        batch.add(operation("math.sqrt", (kind,), kind), (a,), np.sqrt(a.astype(np.float64)).astype(dtype))
        for name, function in {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "roundeven": np.rint}.items():
            batch.add(operation(f"math.{name}", (kind,), kind), (a,), function(a.astype(np.float64)).astype(dtype))
        wide_a = a.astype(np.float64)
        away = np.copysign(np.trunc(np.abs(wide_a)) + (np.abs(wide_a) - np.trunc(np.abs(wide_a)) >= 0.5), wide_a)
        batch.add(operation("math.round", (kind,), kind), (a,), away.astype(dtype))
        batch.add(
            operation("math.copysign", (kind, kind), kind),
            (a, b),
            np.copysign(a.astype(np.float64), b.astype(np.float64)).astype(dtype),
        )
    batch.run()
    batch.run(contract=False)


def test_fma_rounds_once():
    batch = Batch()
    generator = np.random.default_rng(5)
    a, b, c = (generator.standard_normal(400).astype(np.float32) for _ in range(3))
    c[:200] = -(a[:200] * b[:200])  # what is left is the rounding error of the product
    exact = (a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)).astype(np.float32)
    batch.add(operation("math.fma", ("f32",) * 3, "f32"), (a, b, c), exact)
    for kind in ("f16", "bf16"):
        h = [x.astype(NUMPY[kind]) for x in (a, b, c)]
        w = [x.astype(np.float64) for x in h]
        batch.add(operation("math.fma", (kind,) * 3, kind), h, (w[0] * w[1] + w[2]).astype(NUMPY[kind]))
    batch.run(contract=False)


def test_minima_and_maxima_with_nan_and_signed_zeros():
    batch = Batch()
    for kind in FLOATS:
        a, b = floats(kind)
        wa, wb = a.astype(np.float64), b.astype(np.float64)
        order_a, order_b = (
            np.where(wa == 0, np.copysign(1e-300, wa), wa),
            np.where(wb == 0, np.copysign(1e-300, wb), wb),
        )
        larger, smaller = np.where(order_a >= order_b, wa, wb), np.where(order_a <= order_b, wa, wb)
        nan = np.isnan(wa) | np.isnan(wb)
        other = np.where(np.isnan(wa), wb, wa)
        for name, value in {
            "maximumf": np.where(nan, np.nan, larger),
            "minimumf": np.where(nan, np.nan, smaller),
            "maxnumf": np.where(nan, other, larger),
            "minnumf": np.where(nan, other, smaller),
        }.items():
            batch.add(operation(f"arith.{name}", (kind, kind), kind), (a, b), value.astype(NUMPY[kind]))
        low, high = np.full_like(a, -1.5), np.full_like(a, 2.5)
        clipped = np.clip(wa, -1.5, 2.5)
        for mode, value in {0: np.where(np.isnan(wa), -1.5, clipped), 0xFFFF: clipped}.items():
            op = operation("tt.clampf", (kind,) * 3, kind, propagateNan=mode)
            batch.add(op, (a, low, high), value.astype(NUMPY[kind]))
    batch.run()


def test_floating_point_comparisons():
    batch = Batch()
    for kind in FLOATS:
        a, b = floats(kind)
        wa, wb = a.astype(np.float64), b.astype(np.float64)
        nan = np.isnan(wa) | np.isnan(wb)
        eq, gt, lt = wa == wb, wa > wb, wa < wb
        never, always = np.zeros_like(nan), np.ones_like(nan)
        ordered = [eq, gt, gt | eq, lt, lt | eq, gt | lt, ~nan]
        results = [never, *ordered, *[r | nan for r in (eq, gt, gt | eq, lt, lt | eq, gt | lt)], nan, always]
        for predicate, result in enumerate(results):
            batch.add(operation("arith.cmpf", (kind, kind), "i1", predicate=predicate), (a, b), result.astype(np.uint8))
    batch.run()


def test_float_to_integer_saturates():
    batch = Batch()
    for kind in FLOATS:
        a, _ = floats(kind)
        limits = [2.0**n + d for n in (7, 8, 15, 16, 31, 32, 63, 64) for d in (0, -1, -0.5, 1)]
        a = np.concatenate([a, np.array([*limits, *[-x for x in limits]]).astype(NUMPY[kind])])
        wide = a.astype(np.float64)
        for to in INTS:
            bits = int(to[1:])

            def saturated(low, high, wide=wide):
                return [0 if math.isnan(x) else high if x >= high else low if x <= low else int(x) for x in wide]

            signed = np.array(saturated(-(1 << (bits - 1)), (1 << (bits - 1)) - 1), np.int64).astype(NUMPY[to])
            unsigned = np.array(saturated(0, (1 << bits) - 1), np.uint64).astype(f"u{bits // 8}").view(NUMPY[to])
            batch.add(operation("arith.fptosi", (kind,), to), (a,), signed)
            batch.add(operation("arith.fptoui", (kind,), to), (a,), unsigned)
    batch.run()


def test_every_half_converts_exactly():
    batch = Batch()
    every = np.arange(1 << 16, dtype=np.uint16)
    for kind in ("f16", "bf16"):
        halves = every.view(NUMPY[kind])
        batch.add(operation("arith.extf", (kind,), "f32"), (halves,), halves.astype(np.float32))
        batch.add(operation("arith.extf", (kind,), "f64"), (halves,), halves.astype(np.float64))
        # Every half, its neighbours in f32, and the midpoints between halves, where ties are decided.
        exact = halves.astype(np.float32)
        middle = (exact.view(np.uint32) + (0x1000 if kind == "f16" else 0x8000)).view(np.float32)
        near = [exact, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
        bits = np.random.default_rng(1).integers(0, 1 << 32, 200_000, dtype=np.uint32)
        values = np.concatenate([*near, bits.view(np.float32), np.float32(EDGES)])
        batch.add(operation("arith.truncf", ("f32",), kind), (values,), values.astype(NUMPY[kind]))
        wide = values.astype(np.float64)
        batch.add(operation("arith.truncf", ("f64",), kind), (wide,), values.astype(NUMPY[kind]))
    batch.run()


def test_f64_to_half_rounds_once():
    batch = Batch()
    # Just above a tie of f16, by less than f32 can tell: two roundings would give the even neighbour below.
    values = np.array([1 + 2**-11 + 2**-40, -(1 + 2**-11 + 2**-40), 1 + 3 * 2**-11 - 2**-40, 65519.9999999, 65520.0])
    expected = np.array([1 + 2**-10, -(1 + 2**-10), 1 + 2**-10, 65504, np.inf], np.float16)
    batch.add(operation("arith.truncf", ("f64",), "f16"), (values,), expected)
    brain = np.array([1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40])
    batch.add(
        operation("arith.truncf", ("f64",), "bf16"),
        (brain,),
        np.array([1 + 2**-7, 1 + 2**-7], np.float32).astype(NUMPY["bf16"]),
    )
    batch.run()


def test_bits_and_pointers():
    batch = Batch()
    single = np.random.default_rng(2).integers(0, 1 << 32, 100, dtype=np.uint32).view(np.int32)
    double = np.random.default_rng(2).integers(-(1 << 63), 1 << 63, 100, dtype=np.int64)
    half = np.arange(0, 1 << 16, 97, dtype=np.uint16).view(np.int16)
    batch.add(operation("tt.bitcast", ("f32",), "i32"), (single.view(np.float32),), single)
    batch.add(operation("arith.bitcast", ("i32",), "f32"), (single,), single.view(np.float32))
    batch.add(operation("tt.bitcast", ("f64",), "i64"), (double.view(np.float64),), double)
    batch.add(operation("tt.bitcast", ("bf16",), "i16"), (half.view(NUMPY["bf16"]),), half)
    batch.add(operation("tt.bitcast", ("i16",), "f16"), (half,), half.view(np.float16))
    address = np.arange(0, 800, 8, dtype=np.int64)
    batch.add(operation("tt.int_to_ptr", ("i64",), "*f32"), (address,), address)
    batch.add(operation("tt.ptr_to_int", ("*f32",), "i64"), (address,), address)
    batch.add(
        operation("tt.addptr", ("*bf16", "i32"), "*bf16"), (address, single), address + 2 * single.astype(np.int64)
    )
    batch.add(operation("tt.bitcast", ("*f32",), "*i8"), (address,), address)
    batch.run()


def test_pointers_to_pointers():
    batch = Batch()
    one = "*!tt.ptr<f32>"
    address, other = np.arange(0, 800, 8, dtype=np.int64), np.arange(800, 0, -8, dtype=np.int64)
    offset = np.arange(100, dtype=np.int32) - 50
    batch.add(operation("tt.addptr", (one, "i32"), one), (address, offset), address + 8 * offset.astype(np.int64))
    batch.add(operation("tt.bitcast", (one,), "*i64"), (address,), address)
    batch.add(operation("tt.bitcast", ("*i64",), one), (address,), address)
    batch.add(operation("tt.int_to_ptr", ("i64",), one), (address,), address)
    batch.add(operation("tt.ptr_to_int", (one,), "i64"), (address,), address)
    batch.add(
        operation("arith.cmpi", (one, one), "i1", predicate=6), (address, other), (address < other).astype(np.uint8)
    )
    chosen = (np.arange(100) % 2).astype(np.uint8)
    batch.add(
        operation("arith.select", ("i1", one, one), one), (chosen, address, other), np.where(chosen, address, other)
    )
    batch.run()


def test_a_sum_of_a_product_of_halves_is_rounded_once():
    """Where the product is a tie and the addend is too small for f64 to hold beside it."""
    batch = Batch()
    a, b, c = (np.array([x, x, -x], np.float32) for x in (1 + 2.0**-4, 1 + 2.0**-4, 2.0**-70))
    a, b = np.abs(a), np.abs(b) * np.array([1, -1, 1], np.float32)
    given = [x.astype(NUMPY["bf16"]) for x in (a, b, c)]
    # (1 + 2^-4)^2 = 1 + 2^-3 + 2^-8: halfway between two numbers of bf16.
    expected = np.array([1 + 2.0**-3 + 2.0**-7, -(1 + 2.0**-3), 1 + 2.0**-3], np.float32).astype(NUMPY["bf16"])
    batch.add(operation("math.fma", ("bf16",) * 3, "bf16"), given, expected)
    batch.run()


def test_constants():
    batch = Batch()
    for kind, values in {
        "f32": [0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, struct.unpack("<f", b"\1\0\0\0")[0]],
        "f64": [1e300, -1e-300, math.inf, 0.1],
        "f16": [1.0, -65504.0, math.inf, math.nan],
        "bf16": [1.0, -3.0, math.inf, math.nan],
        "i1": [True, False],
        "i8": [-128, 127, 255],
        "i32": [-(1 << 31), (1 << 32) - 1],
        "i64": [-(1 << 63), (1 << 63) - 1],
    }.items():
        for value in values:
            wrapped = value
            if kind in INTS:
                bits = int(kind[1:])
                wrapped = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
            expected = np.array([wrapped] * 8).astype(NUMPY[kind])
            batch.add(operation("arith.constant", (), kind, value=value), (), expected)
            dense = Dense((value,), Type(kind, (8,), tensor=True))
            batch.add(operation("arith.constant", (), kind, value=dense), (), expected)
    batch.run()


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (operation("tt.extern_elementwise", ("f32",), "f32", symbol="__spirv_exp"), "only functions of libdevice"),
        (operation("tt.extern_elementwise", ("f64", "f64"), "f64", symbol="__nv_dadd_rz"), "rounds to nearest only"),
        (operation("tt.extern_elementwise", ("f64",), "f64", symbol="__nv_rcp64h"), "hardware"),
        (operation("tt.extern_elementwise", ("f32",), "i32", symbol="__nv_clz"), "it takes i32 and gives i32"),
        (operation("tt.fp_to_fp", ("f32",), "f8E8M0FNU"), "f8E8M0FNU"),
        (operation("tt.fp_to_fp", ("f32",), "f16", rounding=2), "rounding mode 2"),
        (operation("tt.bitcast", ("f32",), "i16"), "a bitcast from f32 to i16"),
        (operation("arith.divsi", ("i1", "i1"), "i1"), "i1"),
        (operation("arith.cmpi", ("i32", "i32"), "i1", predicate=10), "predicate 10"),
        (operation("tt.dot", ("f32", "f32"), "f32"), "not an elementwise operation"),
        (operation("arith.constant", (), "f32", value=Dense((1.0, 2.0), Type("f32", (2,), tensor=True))), "differ"),
    ],
)
def test_what_has_no_expression_is_refused_with_the_reason(op, words):
    with pytest.raises(UnsupportedError, match=words):
        ops.scalar_expression(op, ["a", "b"], [v.type for v in op.operands], op.result.type)
    assert words in ops.refusal(op)


def test_operands_are_used_at_most_once():
    """An operand may be a long expression: repeating it would make the text grow without end."""
    seen = 0
    for name in sorted(RENDERED - {"arith.constant"}):
        for inputs, output in [
            (("f32",), "f32"),
            (("f32", "f32"), "f32"),
            (("f32",) * 3, "f32"),
            (("i32",), "i32"),
            (("i32", "i32"), "i32"),
            (("f16",), "f32"),
            (("f32",), "i32"),
            (("i32",), "f32"),
            (("i1", "f32", "f32"), "f32"),
        ]:
            op = operation(name, inputs, output, predicate=1, symbol="__nv_expf")
            names = [f"operand{i}" for i in range(len(inputs))]
            try:
                text = ops.scalar_expression(op, names, [v.type for v in op.operands], op.result.type)
            except (UnsupportedError, IndexError):
                continue
            seen += 1
            assert all(text.count(operand) <= 1 for operand in names), (name, text)
    assert seen > 80


def test_cheap_operations_are_supported_ones():
    cheap = {name for name in RENDERED if ops.is_cheap(name)}
    assert {"arith.addi", "arith.select", "tt.addptr", "arith.cmpi"} <= cheap
    assert not cheap & {"math.exp", "arith.divf", "tt.load"}

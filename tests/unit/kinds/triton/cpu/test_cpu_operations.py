"""Every elementwise operation as a kernel of its own, in both schedules, against numpy and Python's integers."""
# pyright: reportAssignmentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("triton", reason="shares its parts with tests that lower by Triton")

from cpu_oracle import SHAPES, Row, check, floats
from cpu_samples import MODES, needs_compiler
from silo.kinds.triton.front.operations.operation_table import RENDERED

pytestmark = [needs_compiler, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
INTS = ("i8", "i16", "i32", "i64")
FLOATS = ("f16", "bf16", "f32", "f64")


def _bits(kind: str) -> int:
    return {"i1": 1, "index": 64}.get(kind) or int(kind[1:])


def _unsigned(value: int, kind: str) -> int:
    return int(value) % (1 << _bits(kind))


def _each(function: Callable[..., object]) -> Callable[..., np.ndarray]:
    """``function`` of Python numbers, for each element."""
    return lambda *arrays: np.array([function(*values) for values in zip(*arrays, strict=True)], object)


def _quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return a if b == 0 else a - _quotient(a, b) * b


def _shift(kind: str, step: Callable[[int, int], int], beyond: Callable[[int], int]) -> Callable[..., np.ndarray]:
    return _each(lambda a, b: step(a, _unsigned(b, kind)) if _unsigned(b, kind) < _bits(kind) else beyond(a))


def _integer_rows(kind: str) -> Iterator[Row]:
    def u(value: int) -> int:
        return _unsigned(value, kind)

    two = {
        "arith.addi": lambda a, b: a + b,
        "arith.subi": lambda a, b: a - b,
        "arith.muli": lambda a, b: a * b,
        "arith.andi": lambda a, b: a & b,
        "arith.ori": lambda a, b: a | b,
        "arith.xori": lambda a, b: a ^ b,
        "arith.minsi": min,
        "arith.maxsi": max,
        "arith.minui": lambda a, b: min(u(a), u(b)),
        "arith.maxui": lambda a, b: max(u(a), u(b)),
        "arith.divsi": _quotient,
        "arith.remsi": _remainder,
        "arith.divui": lambda a, b: -1 if b == 0 else u(a) // u(b),
        "arith.remui": lambda a, b: a if b == 0 else u(a) % u(b),
        "arith.floordivsi": lambda a, b: -1 if b == 0 else a // b,
        "arith.ceildivui": lambda a, b: -1 if b == 0 else -(-u(a) // u(b)),
        "arith.ceildivsi": lambda a, b: -1 if b == 0 else -(-a // b),
    }
    for name, function in two.items():
        yield Row(name, (kind, kind), kind, _each(function))
    yield Row("arith.shli", (kind, kind), kind, _shift(kind, lambda a, b: a << b, lambda _: 0))
    yield Row("arith.shrui", (kind, kind), kind, _shift(kind, lambda a, b: u(a) >> b, lambda _: 0))
    yield Row("arith.shrsi", (kind, kind), kind, _shift(kind, lambda a, b: a >> b, lambda a: -1 if a < 0 else 0))
    yield Row("math.absi", (kind,), kind, _each(abs))
    yield Row("math.ctpop", (kind,), kind, _each(lambda a: u(a).bit_count()))
    if kind in {"i32", "i64"}:
        yield Row("math.ctlz", (kind,), kind, _each(lambda a: _bits(kind) - u(a).bit_length()))
        yield Row("math.cttz", (kind,), kind, _each(lambda a: _bits(kind) if a == 0 else (a & -a).bit_length() - 1))
    yield Row("arith.constant", (), kind, lambda: -77, attributes={"value": -77})
    yield Row("ub.poison", (), kind, lambda: 0)
    if kind in {"i32", "i64"}:
        yield Row("tt.mulhiui", (kind, kind), kind, _each(lambda a, b: u(a) * u(b) >> _bits(kind)))


def _comparison_rows() -> Iterator[Row]:
    signs = [
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a < b,
        lambda a, b: a <= b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
    ]
    for kind in INTS:
        for predicate in range(10):
            compare = signs[predicate] if predicate < 6 else signs[predicate - 4]

            def test(a: int, b: int, compare=compare, kind=kind, unsigned=predicate > 5) -> bool:
                return compare(_unsigned(a, kind), _unsigned(b, kind)) if unsigned else compare(a, b)

            yield Row("arith.cmpi", (kind, kind), "i1", _each(test), attributes={"predicate": predicate})
    # Ordered predicates are false with a NaN, unordered ones true.
    ordered = [lambda a, b: a == b, lambda a, b: a > b, lambda a, b: a >= b, lambda a, b: a < b, lambda a, b: a <= b,
               lambda a, b: a != b, lambda a, b: True]  # fmt: skip
    tests = [lambda a, b: False]
    tests += [lambda a, b, t=t: not (math.isnan(a) or math.isnan(b)) and t(a, b) for t in ordered]
    tests += [lambda a, b, t=t: math.isnan(a) or math.isnan(b) or t(a, b) for t in [*ordered[:6], lambda a, b: False]]
    tests.append(lambda a, b: True)
    for kind in FLOATS:
        for predicate, test in enumerate(tests):
            yield Row("arith.cmpf", (kind, kind), "i1", _each(test), attributes={"predicate": predicate})


def _bool_rows() -> Iterator[Row]:
    two = {
        "arith.andi": lambda a, b: a and b,
        "arith.ori": lambda a, b: a or b,
        "arith.xori": lambda a, b: a != b,
        "arith.addi": lambda a, b: a != b,
        "arith.subi": lambda a, b: a != b,
        "arith.muli": lambda a, b: a and b,
        # As a one-bit number 1 is -1.
        "arith.minsi": lambda a, b: a or b,
        "arith.maxsi": lambda a, b: a and b,
        "arith.minui": lambda a, b: a and b,
        "arith.maxui": lambda a, b: a or b,
    }
    for name, function in two.items():
        yield Row(name, ("i1", "i1"), "i1", _each(function))
    for kind in [*INTS, "i1"]:
        yield Row("arith.select", ("i1", kind, kind), kind, lambda c, a, b: np.where(c.astype(bool), a, b))
    for kind in FLOATS:
        yield Row("arith.select", ("i1", kind, kind), kind, lambda c, a, b: np.where(c.astype(bool), a, b))
    yield Row("arith.constant", (), "i1", lambda: True, attributes={"value": True})
    for kind in INTS:
        yield Row("arith.extui", ("i1",), kind, _each(int))
        yield Row("arith.extsi", ("i1",), kind, _each(lambda a: -int(a)))
        yield Row("arith.trunci", (kind,), "i1", _each(lambda a: a & 1))
    for kind in FLOATS:
        yield Row("arith.uitofp", ("i1",), kind, _each(float))


def _single(values: np.ndarray) -> np.ndarray:
    """Integers rounded to float32: what halves are made from."""
    return np.array([float(np.float32(int(value))) for value in values])


def _clamped(kind: str, *, signed: bool) -> Callable[[np.ndarray], np.ndarray]:
    low, high = (-(1 << (_bits(kind) - 1)), (1 << (_bits(kind) - 1)) - 1) if signed else (0, (1 << _bits(kind)) - 1)

    def one(value: float) -> int:
        if math.isnan(value):
            return 0
        return low if value <= low else high if value >= high else int(value)

    return _each(one)


def _cast_rows() -> Iterator[Row]:
    for small in INTS:
        for large in INTS:
            if _bits(small) < _bits(large):
                yield Row("arith.extsi", (small,), large, lambda a: a)
                yield Row("arith.extui", (small,), large, _each(lambda a, k=small: _unsigned(a, k)))
                yield Row("arith.trunci", (large,), small, lambda a: a)
    for kind in INTS:
        for real in FLOATS:
            exact = real == "f64"
            yield Row("arith.sitofp", (kind,), real, _each(float) if exact else _single)
            positive = _each(lambda a, k=kind: _unsigned(a, k))
            yield Row(
                "arith.uitofp", (kind,), real,
                (lambda a, p=positive: p(a).astype(float)) if exact else (lambda a, p=positive: _single(p(a))),
            )  # fmt: skip
            yield Row("arith.fptosi", (real,), kind, _clamped(kind, signed=True))
            yield Row("arith.fptoui", (real,), kind, _clamped(kind, signed=False))
    for narrow, wide in [("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("f32", "f64")]:
        yield Row("arith.extf", (narrow,), wide, lambda a: a)
        yield Row("arith.truncf", (wide,), narrow, lambda a: a)
        yield Row("tt.fp_to_fp", (wide,), narrow, lambda a: a, attributes={"rounding": 1})
    for narrow, other in [("f16", "bf16"), ("bf16", "f16")]:
        yield Row("arith.convertf", (narrow,), other, lambda a: a)
    yield Row("arith.index_castui", ("i32",), "index", _each(lambda a: _unsigned(a, "i32")))
    yield Row("arith.index_castui", ("index",), "i32", lambda a: a)
    yield Row("arith.index_cast", ("i32",), "index", lambda a: a)
    yield Row("arith.index_cast", ("index",), "i64", lambda a: a)
    for name in ("arith.bitcast", "tt.bitcast"):
        yield Row(name, ("i32",), "f32", lambda a: np.array(a, np.int64).astype(np.int32).view(np.float32))
        yield Row(name, ("f64",), "i64", lambda a: np.asarray(a, np.float64).view(np.int64), values=_no_nan)
        yield Row(name, ("f16",), "i16", lambda a: np.asarray(a).astype(np.float16).view(np.int16), values=_no_nan)
    yield Row("tt.int_to_ptr", ("i64",), "*i32", lambda a: a)
    yield Row("tt.ptr_to_int", ("*f16",), "i64", lambda a: a)
    yield Row("tt.addptr", ("*i32", "i32"), "*i32", _each(lambda a, b: a + 4 * b))
    yield Row("tt.addptr", ("*f64", "i64"), "*f64", _each(lambda a, b: a + 8 * b))


def _no_nan(kind: str) -> np.ndarray:
    values = floats(kind)
    return values[~np.isnan(values)]


def _least(a: float, b: float, *, nan: bool) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan if nan else (b if math.isnan(a) else a)
    return min(a, b, key=lambda x: (x, math.copysign(1, x)))


def _most(a: float, b: float, *, nan: bool) -> float:
    return -_least(-a, -b, nan=nan)


def _fused(kind: str) -> Callable[..., np.ndarray]:
    def one(a: float, b: float, c: float) -> float:
        if not all(map(math.isfinite, (a, b, c))):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
        from fractions import Fraction

        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact == 0:
            return a * b + c
        # Rounded to odd at 60 bits less than any result needs: rounding again is as if it had been the only one.
        near = float(np.float64(exact.numerator / exact.denominator)) if kind == "f64" else float(exact)
        if kind == "f64" or Fraction(near) == exact:
            return near
        away = (Fraction(near) < exact) == (near > 0)
        bits = np.array(near).view(np.int64)
        odd = bits if bits & 1 else (bits + 1 if away else bits - 1)
        return float(np.array(odd).view(np.float64))

    return _each(one)


def _float_rows(kind: str) -> Iterator[Row]:
    two = {
        "arith.addf": np.add,
        "arith.subf": np.subtract,
        "arith.mulf": np.multiply,
        "arith.divf": np.divide,
        "arith.remf": np.fmod,
        "arith.minnumf": _each(lambda a, b: _least(a, b, nan=False)),
        "arith.maxnumf": _each(lambda a, b: _most(a, b, nan=False)),
        "arith.minimumf": _each(lambda a, b: _least(a, b, nan=True)),
        "arith.maximumf": _each(lambda a, b: _most(a, b, nan=True)),
        "math.copysign": np.copysign,
        "tt.approx_divf": np.divide,
        "tt.precise_divf": np.divide,
    }
    for name, function in two.items():
        yield Row(name, (kind, kind), kind, function)
    one = {
        "arith.negf": np.negative,
        "math.absf": np.abs,
        "math.floor": np.floor,
        "math.ceil": np.ceil,
        "math.trunc": np.trunc,
        "math.round": lambda a: np.copysign(np.floor(np.abs(a) + 0.5), a),
        "math.roundeven": np.rint,
        "math.sqrt": np.sqrt,
        "tt.precise_sqrt": np.sqrt,
    }
    for name, function in one.items():
        values = _halves_only if name == "math.round" else None  # numpy's way of rounding half away is inexact beyond
        yield Row(name, (kind,), kind, function, values=values)
    yield Row("math.fma", (kind,) * 3, kind, _fused(kind), ulp=0.5 if kind in {"f16", "bf16"} else 0, values=_moderate)
    yield Row("arith.constant", (), kind, lambda: -2.5, attributes={"value": -2.5})
    yield Row("ub.poison", (), kind, lambda: 0.0)
    for word, function in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
        yield Row(f"math.{word}", (kind,), "i1", lambda a, f=function: f(a))
    for flag, nan in ((0, False), (0xFFFF, True)):
        yield Row(
            "tt.clampf", (kind,) * 3, kind,
            _each(lambda x, a, b, nan=nan: _least(_most(x, a, nan=nan), b, nan=nan)),
            attributes={"propagateNan": flag},
        )  # fmt: skip


def _halves_only(kind: str) -> np.ndarray:
    return np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.25, 100.5, np.inf, -np.inf, np.nan, 3.0])


def _moderate(kind: str) -> np.ndarray:
    values = floats(kind)
    return values[~np.isfinite(values) | (np.abs(values) < 1e4) & ((np.abs(values) > 1e-3) | (values == 0))]


# The largest error in units in the last place: of f32 as docs/cpu.md says, of f64 (the C library's) with room.
_FUNCTIONS: dict[str, tuple[Callable[..., object], float]] = {
    "math.exp": (np.exp, 1.2),
    "math.exp2": (np.exp2, 1.1),
    "math.expm1": (np.expm1, 1.6),
    "math.log": (np.log, 1.0),
    "math.log2": (np.log2, 2.1),
    "math.log10": (np.log10, 4),
    "math.log1p": (np.log1p, 1.6),
    "math.sin": (np.sin, 1.6),
    "math.cos": (np.cos, 1.6),
    "math.tan": (np.tan, 4),
    "math.asin": (np.arcsin, 4),
    "math.acos": (np.arccos, 4),
    "math.atan": (np.arctan, 4),
    "math.sinh": (np.sinh, 4),
    "math.cosh": (np.cosh, 4),
    "math.tanh": (np.tanh, 1.6),
    "math.asinh": (np.arcsinh, 4),
    "math.acosh": (np.arccosh, 4),
    "math.atanh": (np.arctanh, 4),
    "math.cbrt": (np.cbrt, 4),
    "math.rsqrt": (lambda a: 1 / np.sqrt(a), 2),
    "math.erf": (_each(math.erf), 1.6),
    "math.erfc": (_each(math.erfc), 4),
}


def _within_reach(kind: str) -> np.ndarray:
    """Arguments of functions; angles that are reduced exactly."""
    values = floats(kind)
    return np.where(np.abs(values) > 2e8, 12.5, values) if kind != "f16" else values


def _function_rows() -> Iterator[Row]:
    for name, (function, ulp) in _FUNCTIONS.items():
        angles = name in {"math.sin", "math.cos", "math.tan"}
        for kind in FLOATS:
            # A half is rounded once more.
            allowed = ulp if kind == "f32" else 4 if kind == "f64" else 0.51
            yield Row(name, (kind,), kind, function, ulp=allowed, values=_within_reach if angles else None)
    for kind in ("f32", "f64"):
        yield Row("math.atan2", (kind, kind), kind, np.arctan2, ulp=4)
        yield Row("math.powf", (kind, kind), kind, _each(_power), ulp=4)
        yield Row("tt.extern_elementwise", (kind,), kind, np.hypot(3, 4) and np.exp, ulp=4 if kind == "f64" else 1.2,
                  attributes={"symbol": "__nv_exp" if kind == "f64" else "__nv_expf", "libname": "", "libpath": "",
                              "pure": True})  # fmt: skip
    for kind in ("f32", "f16", "bf16"):
        text = {"asm_string": f"tanh.approx.{kind} $0, $1;", "constraints": "=r,r", "packed_element": 1, "pure": True}
        yield Row(
            "tt.elementwise_inline_asm", (kind,), kind, np.tanh, ulp=1.6 if kind == "f32" else 0.51, attributes=text
        )


def _power(a: float, b: float) -> float:
    return float(np.float64(a) ** np.float64(b))


def rows() -> list[Row]:
    """Every row."""
    found = [row for kind in INTS for row in _integer_rows(kind)]
    found += [row for kind in FLOATS for row in _float_rows(kind)]
    return [*found, *_comparison_rows(), *_bool_rows(), *_cast_rows(), *_function_rows()]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("mode", MODES)
def test_every_operation_gives_what_numpy_gives(mode, part):
    """Each row over one shape, the shapes in turn, others in one schedule than in the other."""
    first = MODES.index(mode) * 2
    check([(row, SHAPES[(place + first) % len(SHAPES)]) for place, row in enumerate(rows())][part::4], mode)


def test_no_operation_is_without_a_test():
    assert {row.name for row in rows()} == RENDERED

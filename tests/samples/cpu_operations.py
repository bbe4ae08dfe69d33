"""Batches of elementwise operations: compiled into one file, run, and compared with numpy."""

from __future__ import annotations

import ctypes
import math
import shutil
import warnings

import ml_dtypes
import numpy as np
import pytest

from silo.compile.c_compiler import find_compiler
from silo.drivers.cpu.levels import LEVELS, gather_facts, highest_level
from silo.kinds.triton.cpu import ops, runtime
from silo.kinds.triton.cpu.object_build import build, compile_flags
from silo.kinds.triton.front.ssa import Operation, Type, Value

needs_compiler = [
    pytest.mark.skipif(
        shutil.which("cc") is None or highest_level(gather_facts()) is None,
        reason="needs a C compiler and a known CPU level",
    ),
    # the tests overflow and make NaN on purpose, of which numpy warns
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

NUMPY = {
    "i1": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
}
INTS = ("i8", "i16", "i32", "i64")
FLOATS = ("f16", "bf16", "f32", "f64")
FP8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ")


def operation(name, inputs, output, **attributes):
    operands = [Value(f"v{i}", _type(kind)) for i, kind in enumerate(inputs)]
    op = Operation(name, operands, [], dict(attributes))
    op.results.append(Value("r", _type(output), op))
    return op


def _type(kind):
    return Type(kind[1:], pointer=True) if kind.startswith("*") else Type(kind)


class Batch:
    """Many operations compiled as one object, with one loop for each operation."""

    def __init__(self):
        self.text, self.pieces, self.cases, self._library = [], set(), [], None

    def add(self, op, inputs, expected, *, same=None):
        """Add an operation with its input arrays, its expected array, and the function ``same`` that compares them."""
        index = len(self.cases)
        types = [value.type for value in op.operands]
        arguments = "".join(f"{ops.c_type(t)} const *x{i}, " for i, t in enumerate(types))
        element = [f"x{i}[i]" for i in range(len(types))]
        expression = ops.scalar_expression(op, element, types, op.result.type)
        self.pieces |= ops.runtime_pieces(op)
        out = ops.c_type(op.result.type)
        self.text.append(
            f"void case{index}({arguments}{out} *out, int64_t n) {{\n"
            f"#pragma omp simd\n  for (int64_t i = 0; i < n; i++) out[i] = {expression};\n}}\n"
        )
        self.cases.append((op, [np.ascontiguousarray(x) for x in inputs], np.asarray(expected), same or identical))

    def run(self, contract=True):
        """Run at the highest and at the lowest CPU level (without fused multiply-add and rounding instructions)."""
        top = highest_level(gather_facts())
        lowest = next(name for name in LEVELS if name.split("-")[0] == top.split("-")[0])
        for name in {top, lowest}:
            self._run(LEVELS[name], contract)

    def _run(self, level, contract):
        source = runtime.text(self.pieces, level.vector_bits) + "".join(self.text)
        built = build(source, compile_flags(level, contract=contract, libm=True), find_compiler(None))
        assert built.log == ""
        library = load_library(built.data)
        for index, (op, inputs, expected, same) in enumerate(self.cases):
            kind = np.int64 if op.result.type.pointer else NUMPY[op.result.type.element]
            out = np.empty(inputs[0].shape if inputs else (8,), kind)
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, out)]
            getattr(library, f"case{index}")(*pointers, ctypes.c_int64(out.size))
            label = f"{op.name} {[v.type.element for v in op.operands]} -> {op.result.type.element} {op.attributes}"
            same(label, inputs, out, expected)


def load_library(data):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ops.so")
        path.write_bytes(data)
        return ctypes.CDLL(str(path))


def identical(label, inputs, got, expected):
    """Fail unless the values and signs are equal; any NaN equals any NaN."""
    if expected.dtype.kind not in "iub":
        wide_got, wide = got.astype(np.float64), expected.astype(np.float64)
        good = (wide_got == wide) & (np.signbit(wide_got) == np.signbit(wide)) | np.isnan(wide_got) & np.isnan(wide)
    else:
        good = got == expected
    if not good.all():
        at = int(np.flatnonzero(~good)[0])
        pytest.fail(f"{label}: {[array[at] for array in inputs]} gave {got[at]!r}, expected {expected[at]!r}")


def within(ulp):
    def same(label, inputs, got, expected):
        """Fail unless the result is within ``ulp`` units in the last place of ``expected``, which is float64."""
        kind = got.dtype
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rounded = expected.astype(kind)
        finite = np.isfinite(rounded.astype(np.float64))
        identical(label, [x[~finite] for x in inputs], got[~finite], rounded[~finite])
        unit = np.spacing(np.abs(rounded[finite])).astype(np.float64)
        error = np.abs(got[finite].astype(np.float64) - expected[finite]) / unit
        assert error.size == 0 or error.max() <= ulp, (
            f"{label}: {error.max():.3f} ulp at {[x[finite][error.argmax()] for x in inputs]}"
        )
        zero = rounded == 0
        assert (np.signbit(got[zero].astype(np.float64)) == np.signbit(rounded[zero].astype(np.float64))).all(), label

    return same


def integers(kind, count=500, seed=0):
    low, high = -(1 << (int(kind[1:]) - 1)), (1 << (int(kind[1:]) - 1)) - 1
    edges = [0, 1, -1, 2, -2, 3, 7, -7, low, low + 1, high, high - 1]
    random = np.random.default_rng(seed).integers(low, high, count, endpoint=True)
    values = np.array([*edges, *random], np.int64).astype(NUMPY[kind])
    return pairs(values, edges, NUMPY[kind])


def pairs(values, edges, kind):
    edge = np.array(edges, kind)
    left = np.concatenate([np.repeat(edge, edge.size), values])
    right = np.concatenate([np.tile(edge, edge.size), np.roll(values, 7)])
    return left, right


EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -1.5,
    2.5,
    3.5,
    65504.0,
    -65504.0,
    1e-7,
    6e-8,
    1e-40,
    1e38,
    math.inf,
    -math.inf,
    math.nan,
]


def floats(kind, count=1000, seed=0):
    generator = np.random.default_rng(seed)
    dtype = np.dtype(NUMPY[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bits = generator.integers(0, 1 << 16, count, dtype=np.uint16) if dtype.itemsize == 2 else None
        wide = generator.standard_normal(count) * np.exp(generator.uniform(-20, 20, count))
        values = bits.view(dtype) if bits is not None else wide.astype(dtype)
        return pairs(values, np.array(EDGES).astype(dtype), dtype)

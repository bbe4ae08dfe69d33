"""Reductions in lanes of a vector: which loops are cut, and that every length and special value folds to the same."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import both, module_of, needs_compiler, run  # noqa: E402
from silo.core.device import Target  # noqa: E402
from silo.drivers.cpu.levels import gather_facts, highest_level  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopProgram  # noqa: E402
from silo.kinds.triton.cpu.lower.reduction import reduce_in_lanes  # noqa: E402

pytestmark = needs_compiler

LENGTHS = [1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 100, 257, 511, 512]


@triton.jit
def folds(x, sums, most, least, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + row * BLOCK + i)
    tl.store(sums + row, tl.sum(tl.where(mask, v, 0), axis=0))
    tl.store(most + row, tl.max(tl.load(x + row * BLOCK + i, mask=mask, other=-100), axis=0))
    tl.store(least + row, tl.min(tl.load(x + row * BLOCK + i, mask=mask, other=100), axis=0))


@triton.jit
def bits(x, out, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.xor_sum(tl.load(x + row * BLOCK + i), axis=0))


@triton.jit
def tile_maximum(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    v = tl.load(x + i[:, None] * COLUMNS + j[None, :])
    tl.store(out + i, tl.max(v, axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.float16, np.int16])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_length_of_a_row(n, dtype):
    x = np.random.default_rng(n).integers(-50, 50, size=(3, 512)).astype(dtype)
    arrays = {name: np.zeros(3, dtype) for name in ("sums", "most", "least")}
    for result in both(folds, (3,), x=x, **arrays, n=n, BLOCK=512):
        part = x[:, :n]
        np.testing.assert_array_equal(result["sums"], part.sum(axis=1).astype(dtype))
        np.testing.assert_array_equal(result["most"], part.max(axis=1))
        np.testing.assert_array_equal(result["least"], part.min(axis=1))


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("n", [5, 16, 37, 512])
def test_the_lanes_of_every_level(level, n):
    highest = highest_level(gather_facts()) or ""
    if not highest.startswith("x86") or level > highest:
        pytest.skip(f"this CPU has no {level}")
    x = np.random.default_rng(n).integers(-50, 50, size=(3, 512)).astype(np.float32)
    sums, most, least = (np.zeros(3, np.float32) for _ in range(3))
    target = Target.parse(f"cpu:{level}")
    run(folds, (3,), "optimized", target=target, x=x, sums=sums, most=most, least=least, n=n, BLOCK=512)
    np.testing.assert_array_equal(sums, x[:, :n].sum(axis=1))
    np.testing.assert_array_equal(most, x[:, :n].max(axis=1))
    np.testing.assert_array_equal(least, x[:, :n].min(axis=1))


@pytest.mark.parametrize("block", [2, 8, 16, 64, 512])
def test_bits_of_integers(block):
    x = np.random.default_rng(block).integers(-(2**31), 2**31, size=(4, block)).astype(np.int32)
    for result in both(bits, (4,), x=x, out=np.zeros(4, np.int32), BLOCK=block):
        np.testing.assert_array_equal(result["out"], np.bitwise_xor.reduce(x, axis=1))


@pytest.mark.parametrize("columns", [4, 16, 64])
def test_a_maximum_passes_over_nan_in_any_lane(columns):
    """One row a place of the only number; a row that has none is NaN, and one of infinities keeps them."""
    x = np.full((columns * 2, columns), np.nan, np.float32)
    for place in range(columns):
        x[place, place] = -np.inf if place % 3 == 0 else place
    x[columns + 1] = -np.inf
    expected = np.array([-np.inf if p % 3 == 0 else p for p in range(columns)] + [np.nan] * columns, np.float32)
    expected[columns + 1] = -np.inf
    for result in both(
        tile_maximum, (1,), x=x, out=np.zeros(columns * 2, np.float32), ROWS=columns * 2, COLUMNS=columns
    ):
        np.testing.assert_array_equal(result["out"], expected)


@triton.jit
def sums_of_rows(x, out, R, C, BR: tl.constexpr, BC: tl.constexpr):
    i = tl.program_id(0) * BR + tl.arange(0, BR)
    total = tl.zeros((BR,), x.dtype.element_ty)
    for k in range(0, C, BC):
        j = k + tl.arange(0, BC)
        inside = (i[:, None] < R) & (j[None, :] < C)
        total += tl.sum(tl.load(x + i[:, None] * C + j[None, :], mask=inside, other=0), 1)
    tl.store(out + i, total, mask=i < R)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64, np.float16])
@pytest.mark.parametrize("tile", [(4, 16), (8, 64), (16, 32), (16, 64), (64, 32), (2, 64), (16, 8)])
@pytest.mark.parametrize("columns", [1, 15, 16, 33, 40, 64, 130])
def test_sums_of_several_rows_together(dtype, tile, columns):
    """Also the last rows of a tile, which masks exclude; NaN and infinities stay in their own row."""
    rows = 37
    most = 50 if dtype is not np.float16 else 3  # all sums are exact
    x = np.random.default_rng(columns).integers(-most, most, size=(rows, columns)).astype(dtype)
    if dtype is not np.int32:
        x[3, 0], x[5, -1], x[6, columns // 2] = np.nan, np.inf, -np.inf
    for result in both(
        sums_of_rows,
        (-(-rows // tile[0]),),
        x=x,
        out=np.full(rows + 16, 7, dtype),
        R=rows,
        C=columns,
        BR=tile[0],
        BC=tile[1],
    ):
        np.testing.assert_array_equal(result["out"][:rows], x.sum(axis=1).astype(dtype))
        assert (result["out"][rows:] == 7).all()


def text_of_sums(rows: int, columns: int, vector_bits: int = 512, dtype: type = np.float32) -> str:
    x = np.zeros((40, 40), dtype)
    arguments = {"x": x, "out": np.zeros(40, dtype), "R": 40, "C": 40, "BR": rows, "BC": columns}
    return emit_c(module_of(sums_of_rows, arguments), CpuOptions(vector_bits=vector_bits)).source


def test_short_rows_alone_are_folded_together():
    assert "silo_fold_16_rows_sum_float(" in text_of_sums(32, 64)
    assert "silo_fold_8_rows_sum_uint32_t(" in text_of_sums(8, 16, dtype=np.int32)
    for alone in (text_of_sums(2, 64), text_of_sums(16, 128), text_of_sums(16, 64, 256), text_of_sums(16, 8)):
        assert "_rows_sum" not in alone
    assert "_rows_sum" not in text_of_sums(16, 64, dtype=np.float64)
    assert "silo_fold_16_rows_sum_float(" in text_of_sums(16, 64, dtype=np.float16)


@triton.jit
def one_row(x, out, C, BC: tl.constexpr):
    j = tl.arange(0, BC)
    tl.store(out, tl.sum(tl.load(x + j, mask=j < C, other=0.0)))


def test_rows_together_add_in_the_order_of_a_row_alone():
    x = np.random.default_rng(1).standard_normal((16, 61)).astype(np.float32) * 10.0 ** (
        np.arange(61, dtype=np.float32) % 7
    )
    together, alone = np.zeros(16, np.float32), np.zeros((16, 1), np.float32)
    run(sums_of_rows, (1,), "optimized", x=x, out=together, R=16, C=61, BR=16, BC=64)
    for row, result in zip(x, alone, strict=True):
        run(one_row, (1,), "optimized", x=row.copy(), out=result, C=61, BC=64)
    assert together.tobytes() == alone.tobytes()


@triton.jit
def extremes(x, most, least, sums, n, BLOCK: tl.constexpr):
    """Three reductions of the same elements; only the extremes pass over NaN."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    inside = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    tl.store(most + row, tl.max(inside, axis=0))
    tl.store(least + row, tl.min(tl.load(x + row * n + i, mask=i < n, other=float("inf")) * 2, axis=0))
    tl.store(sums + row, tl.sum(v, axis=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("n", [1, 15, 16, 40, 64, 130, 256])
def test_extremes_of_rows_without_a_number_above_the_start(n, dtype):
    """Rows of NaN alone, of infinities alone, of both, and of numbers beside them; with and without masked elements."""
    inf, nan = np.inf, np.nan
    x = np.random.default_rng(n).integers(-50, 50, size=(10, n)).astype(dtype)
    x[0], x[1], x[2], x[3, 1:], x[4, :-1] = nan, -inf, inf, nan, nan
    x[5], x[5, -1] = nan, -inf
    x[6], x[6, 0] = nan, inf
    x[7, ::2], x[8, 1::3] = nan, -inf
    x[9] = -0.0
    lowest = np.where(np.isnan(x), -inf, x).max(axis=1)
    highest = np.where(np.isnan(x), inf, x).min(axis=1)
    exact = n & (n - 1) == 0 and n > 1  # without masked elements, NaN is the result if there is no number
    empty = np.isnan(x).all(axis=1)
    block = max(2, triton.next_power_of_2(n))
    arrays = {name: np.zeros(10, dtype) for name in ("most", "least", "sums")}
    for result in both(extremes, (10,), x=x, **arrays, n=n, BLOCK=block):
        np.testing.assert_array_equal(result["most"], np.where(empty & exact, nan, lowest))
        np.testing.assert_array_equal(result["least"], np.where(empty & exact, nan, highest * 2))
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(result["sums"], x.astype(np.float64).sum(axis=1).astype(dtype))


def test_numbers_are_looked_for_only_if_a_maximum_is_its_start():
    text = source(64, 512)
    assert "lanes2" not in text.partition("silo_fold_max_float(lanes1)")[2]
    assert text.count("== -__builtin_inff()") == 1


def source(columns: int, vector_bits: int) -> str:
    arguments = {"x": np.zeros((16, columns), np.float32), "out": np.zeros(16, np.float32), "ROWS": 16}
    options = CpuOptions(vector_bits=vector_bits)
    return emit_c(module_of(tile_maximum, {**arguments, "COLUMNS": columns}), options).source


@pytest.mark.parametrize("vector_bits", [128, 256, 512])
def test_rows_are_folded_by_halves_where_a_vector_fits(vector_bits):
    lanes = vector_bits // 32
    assert f"vector_size({lanes} * sizeof(float))" in source(64, vector_bits)
    assert "silo_lanes_float lanes1_vector" in source(64, vector_bits)
    assert "reduction(max:" not in source(64, vector_bits)
    assert "silo_fold_max_float" not in source(lanes // 2, vector_bits)


def loop(end: str, body: list[Define | Assign], ctype: str = "float") -> LoopProgram:
    reducing = For("i", "0", end, [*body], simd=True, reductions=(("+", "acc1"),))
    return LoopProgram("k", [], [], [], [Define(ctype, "acc1", "0", mutable=True), reducing])


def test_what_is_left_of_the_last_vector_is_a_plain_loop():
    program = loop("n", [Assign("acc1", "acc1 + x[i]")])
    reduce_in_lanes(program, 128)
    _, unless_empty = program.body
    assert isinstance(unless_empty, If)
    assert (unless_empty.condition, unless_empty.otherwise) == ("0 < n", [])
    *_, rest = unless_empty.then
    assert isinstance(rest, For)
    assert (rest.start, rest.end, rest.simd, rest.reductions) == ("whole3", "n", False, ())


def test_narrow_accumulators_and_short_rows_stay_as_they_are():
    for program in (loop("64", [Assign("acc1", "acc1 + x[i]")], "int16_t"), loop("8", [Assign("acc1", "acc1 + x[i]")])):
        before = list(program.body)
        reduce_in_lanes(program, 512)
        assert program.body == before
        assert not program.constants


@triton.jit
def powers_and_sums(x, out, sums, n, TWO: tl.constexpr, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    powers = tl.exp2(v) if TWO else tl.exp(v)
    tl.store(out + row * n + i, powers, mask=i < n)
    tl.store(sums + row, tl.sum(powers, axis=0))


@triton.jit
def powers_alone(x, out, n, TWO: tl.constexpr, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n)
    tl.store(out + row * n + i, tl.exp2(v) if TWO else tl.exp(v), mask=i < n)


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("n", [250, 256])
def test_functions_of_whole_vectors_have_the_bits_of_those_of_elements(two, n):
    random = np.random.default_rng(n)
    x = random.integers(0, 1 << 32, (2000, n), dtype=np.uint64).astype(np.uint32).view(np.float32)
    x[:1000] = random.uniform(-160, 140, (1000, n))
    x[1000:1010] = random.uniform(-104, -86, (10, n))  # subnormal results
    x[0, :12] = [np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 88.72283, 88.7229, 128.0, -103.97, -149.0, 1e38]
    out, alone = np.zeros_like(x), np.zeros_like(x)
    arguments = {"n": n, "TWO": two, "BLOCK": 256}
    run(powers_and_sums, (len(x),), "optimized", x=x, out=out, sums=np.zeros(len(x), np.float32), **arguments)
    run(powers_alone, (len(x),), "optimized", x=x, out=alone, **arguments)
    number = ~np.isnan(x)
    assert np.isnan(out[~number]).all()
    np.testing.assert_array_equal(out[number].view(np.uint32), alone[number].view(np.uint32))


@pytest.mark.parametrize("vector_bits", [128, 256, 512])
def test_functions_of_whole_vectors_are_called_if_a_vector_is_known(vector_bits):
    x = np.zeros(64, np.float32)
    arguments = {"x": x, "out": x.copy(), "sums": x.copy(), "n": 60, "TWO": False, "BLOCK": 64}
    text = emit_c(module_of(powers_and_sums, arguments), CpuOptions(vector_bits=vector_bits)).source
    assert ("silo_exp_lanes_f32((void *)" in text) == (vector_bits == 512)


@pytest.mark.parametrize(
    "body",
    [
        [Define("int64_t", "t1", "x[i]"), Define("float", "t2", "silo_exp_f32(t3)"), Assign("acc1", "acc1 + t2 + t1")],
        [Define("float", "t2", "silo_exp_f32(t3)", mutable=True), Assign("acc1", "acc1 + t2")],
    ],
)
def test_values_that_fill_no_vector_keep_functions_of_elements(body):
    program = loop("64", [Define("float", "t3", "y[i]"), *body])
    reduce_in_lanes(program, 512)
    assert "silo_exp_lanes_f32" not in repr(program.body)
    assert "silo_exp_f32" in repr(program.body)

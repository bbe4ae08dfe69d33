"""Innermost loops: runs in which i // d stays the same, tails past the end of a row, tiles read along another axis."""

from __future__ import annotations

import re

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, module_of, needs_compiler, run  # noqa: E402
from silo.errors import LaunchError  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler
RNG = np.random.default_rng(6)


@triton.jit
def add_rows(x, bias, scale, out, n, d, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    values = tl.load(x + i, mask=inside) + tl.load(bias + i % d, mask=inside)
    tl.store(out + i, values * tl.load(scale + i // d, mask=inside), mask=inside)


@triton.jit
def rows_of_a_table(table, rows, out, n, d, count, least, BLOCK: tl.constexpr):
    """A lookup: one row for each quotient, by an index in memory that counts from the end where it is negative."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) + least
    row = tl.load(rows + i // d, mask=i < n, other=0)
    row = tl.where(row < 0, row + count, row)
    tl.device_assert((row >= 0) & (row < count), "no such row")
    tl.store(out + i, tl.load(table + row * d + i % d, mask=i < n) + row, mask=i < n)


@triton.jit
def rows_in_place(rows, d, BLOCK: tl.constexpr):
    """The index is overwritten by what it leads to."""
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i // d)
    tl.store(rows + i, row * 2 + i % d)


@triton.jit
def rows_that_change(rows, x, out, D: tl.constexpr, BLOCK: tl.constexpr):
    """What was read before the store is used before it and after it."""
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i // D)
    tl.store(out + i, row + tl.sum(tl.load(x + i), axis=0))
    tl.store(rows + i, i + 100)
    tl.store(out + BLOCK + i, row * 2 + tl.max(tl.load(x + i), axis=0))


debugged_rows = triton.jit(rows_of_a_table.fn, debug=True)


@triton.jit(debug=True)
def rows_of_a_length(table, rows, out, n, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + i // D, mask=i < n, other=0)
    tl.device_assert((row >= 0) & (row < 10), "no such row")
    tl.store(out + i, tl.load(table + row * D + i % D, mask=i < n) * 2, mask=i < n)
    tl.store(rows + i // D, row, mask=i < 0)  # never, but memory that may be written is not read again


@triton.jit
def quotients(out, least, d, BLOCK: tl.constexpr):
    i = least + tl.arange(0, BLOCK)
    tl.store(out + tl.arange(0, BLOCK), i // d)
    tl.store(out + BLOCK + tl.arange(0, BLOCK), i % d)


@triton.jit
def within_groups(x, out, d, groups, BLOCK: tl.constexpr):
    """A mask over the remainder, which differs from run to run."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i % d, mask=i % d < groups, other=-1.0))


@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + i, mask=i < columns, other=-float("inf"))
    exponents = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + i, exponents / tl.sum(exponents, axis=0), mask=i < columns)


@triton.jit
def everything_of_a_row(x, out, columns, other, BLOCK: tl.constexpr):
    """Reductions that a value past the row's end changes, of every kind."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * BLOCK + i, mask=i < columns, other=other)
    whole = values.to(tl.int32)
    out += row * 8
    tl.store(out, tl.sum(values, axis=0))
    tl.store(out + 1, tl.max(values + 1, axis=0))
    tl.store(out + 2, tl.min(values * 2, axis=0))
    tl.store(out + 3, tl.sum(whole, axis=0))
    tl.store(out + 4, tl.xor_sum(whole, axis=0))
    tl.store(out + 5, tl.max(whole, axis=0))
    tl.store(out + 6, tl.sum(tl.where(i < columns, 1, 5), axis=0))
    tl.store(out + 7, tl.sum(values * i, axis=0))


@triton.jit
def twice_masked(x, out, columns, other_columns, BLOCK: tl.constexpr):
    """Two ends: neither is the one past which nothing is."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * BLOCK + i, mask=i < columns, other=3.0)
    values += tl.load(x + row * BLOCK + i, mask=i < other_columns, other=5.0)
    tl.store(out + row * BLOCK + i, values - tl.sum(values, axis=0), mask=i < columns)


@triton.jit
def transpose(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WRITES_ROWS: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    tile = tl.load(x + i[:, None] * columns + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < columns))
    if WRITES_ROWS:
        inside = (j[:, None] < columns) & (i[None, :] < rows)
        tl.store(out + j[:, None] * rows + i[None, :], tl.trans(tile), mask=inside)
    else:
        tl.store(out + j[None, :] * rows + i[:, None], tile, mask=(i[:, None] < rows) & (j[None, :] < columns))


@triton.jit
def read_across_a_mask(x, out, rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Past the last row there is one value along the axis of the read, not along the axis of the write."""
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(out + i * COLUMNS + j, tl.load(x + j * ROWS + i, mask=i < rows, other=7.0))


@triton.jit
def transpose_in_place(x, SIZE: tl.constexpr):
    i, j = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    tile = tl.load(x + i * SIZE + j)
    tl.store(x + j * SIZE + i, tile + 1)


def text_of(kernel, **arguments):
    return emit_c(module_of(kernel, arguments), CpuOptions(vector_bits=512)).source.split("int32_t silo_")[-1]


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("n", "d"), [(4096, 64), (4096, 64 * 64), (1000, 17), (1000, 16), (1000, 15), (1000, 1), (1025, 1024), (4000, 999)]
)
def test_a_bias_of_a_row_and_a_scale_of_a_group(mode, n, d):
    x, bias, scale = floats(n), floats(d), floats(n // d + 1)
    out = np.full(n, np.nan, np.float32)
    run(add_rows, (-(-n // 256),), mode, x=x, bias=bias, scale=scale, out=out, n=n, d=d, BLOCK=256)
    i = np.arange(n)
    np.testing.assert_allclose(out, (x + bias[i % d]) * scale[i // d], rtol=1e-6)


def test_addresses_of_quotients_have_no_division_an_element():
    x = floats(1024)
    text = text_of(add_rows, x=x, bias=x, scale=x, out=x, n=1000, d=100, BLOCK=256)
    assert "nest_quotient" in text
    assert "silo_remsi_i32" not in text
    assert "silo_divsi_i32" not in text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [rows_of_a_table, debugged_rows])
@pytest.mark.parametrize(("n", "d", "least"), [(2048, 64, 0), (2000, 48, 0), (1000, 16, 5), (700, 7, 0), (256, 300, 0)])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_row_of_a_table_for_each_quotient(mode, kernel, n, d, least, kind):
    table = floats(10, d)
    rows = RNG.integers(-10, 10, n // d + 2).astype(kind)
    out = np.full(n, np.nan, np.float32)
    grid = (-(-n // 256),)
    run(kernel, grid, mode, table=table, rows=rows, out=out, n=n, d=d, count=10, least=least, BLOCK=256)
    i = np.arange(least, n)
    np.testing.assert_array_equal(out[least:], table[rows[i // d], i % d] + (rows[i // d] % 10).astype(np.float32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrong", [0, 16, 700, 1999])
def test_a_row_that_the_table_has_not_is_found(mode, wrong):
    d, n = 16, 2000
    rows = RNG.integers(-10, 10, n // d + 2).astype(np.int64)
    rows[wrong // d] = -11
    table, out = floats(10, d), np.zeros(n, np.float32)
    with pytest.raises(LaunchError) as raised:
        run(debugged_rows, (8,), mode, table=table, rows=rows, out=out, n=n, d=d, count=10, least=0, BLOCK=256)
    first = wrong // d * d
    assert f"no such row; program ({first // 256}, 0, 0), index ({first % 256})" in str(raised.value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("d", [4, 8, 12, 15, 16, 64, 100])
def test_rows_of_a_length_that_the_compiler_knows(mode, d):
    table, rows = floats(10, d), RNG.integers(0, 10, 1000 // d + 1).astype(np.int64)
    out, i = np.zeros(1000, np.float32), np.arange(1000)
    run(rows_of_a_length, (4,), mode, table=table, rows=rows, out=out, n=1000, D=d, BLOCK=256)
    np.testing.assert_array_equal(out, table[rows[i // d], i % d] * 2)


@pytest.mark.parametrize(("d", "shortest"), [(3, 16), (4, 4), (12, 12), (15, 15), (64, 16)])
def test_short_rows_of_a_length_that_the_compiler_knows_are_runs(d, shortest):
    """Otherwise each element is read by itself, which is not vectorized: four times as long in a graph layer."""
    table, rows = floats(10, d), np.zeros(1000, np.int64)
    text = text_of(rows_of_a_length, table=table, rows=rows, out=table, n=1000, D=d, BLOCK=256)
    assert f", (int64_t)((int32_t){d}), {shortest}, limit" in text


@triton.jit
def as_numbers(x, y, small, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = (tl.load(x + i) >= tl.load(y + i)) & (tl.load(x + i) < 1.0)
    tl.store(out + i, inside.to(tl.float32) + tl.load(small + i).to(tl.float32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
def test_truth_values_and_small_numbers_become_floats(mode, kind):
    x, y, out = floats(256), floats(256), np.zeros(256, np.float32)
    small = np.linspace(0, np.iinfo(kind).max, 256).astype(kind)
    run(as_numbers, (1,), mode, x=x, y=y, small=small, out=out, BLOCK=256)
    np.testing.assert_array_equal(out, ((x >= y) & (x < 1)).astype(np.float32) + small.astype(np.float32))


def test_truth_values_become_floats_in_vectors():
    """By way of an unsigned number of 32 bits gcc makes one after the other."""
    x = floats(256)
    text = text_of(as_numbers, x=x, y=x, small=np.zeros(256, np.uint32), out=x, BLOCK=256)
    assert "(float)((int32_t)(uint32_t)" in text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shared", [False, True])
def test_rows_that_change_between_two_uses_are_read_once(mode, shared):
    memory = np.concatenate([RNG.integers(0, 50, 512), np.zeros(1024)]).astype(np.int32)
    rows, x, out = memory[:512], np.arange(512, dtype=np.int32), memory[512:]
    if not shared:
        rows, out = rows.copy(), out.copy()
    before, i = rows.copy(), np.arange(512)
    run(rows_that_change, (1,), mode, rows=rows, x=x, out=out, D=32, BLOCK=512)
    np.testing.assert_array_equal(out[:512], before[i // 32] + x.sum())
    np.testing.assert_array_equal(out[512:], before[i // 32] * 2 + x.max())
    np.testing.assert_array_equal(rows, i + 100)


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_are_overwritten_are_read_before(mode):
    rows = RNG.integers(0, 100, 512).astype(np.int32)
    before = rows.copy()
    run(rows_in_place, (1,), mode, rows=rows, d=32, BLOCK=512)
    i = np.arange(512)
    np.testing.assert_array_equal(rows, before[i // 32] * 2 + i % 32)


def test_a_row_of_a_table_is_looked_up_once_and_read_in_order():
    x, rows = floats(4096), np.zeros(64, np.int64)
    text = text_of(debugged_rows, table=x, rows=rows, out=x, n=2048, d=64, count=10, least=0, BLOCK=256)
    runs = text.split("nest_quotient(")[1:]
    assert len(runs) >= 2
    for run_ in runs:
        inner = run_.split("#pragma omp simd")[1].split("}")[0]
        assert "a1" not in inner  # the index is not read for each element


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("least", [-200, -(2**31), 2**31 - 256, -7, 0])
@pytest.mark.parametrize("d", [0, 1, -1, 2, -3, 7, 100, 2**31 - 1, -(2**31)])
def test_quotients_by_a_shared_divisor_are_those_of_the_reference(mode, least, d):
    out = np.zeros(512, np.int32)
    run(quotients, (1,), mode, out=out, least=least, d=d, BLOCK=256)
    dividends = [least + i for i in range(256)]
    if d == 0:  # as the CPU target defines it
        expected = [-1] * 256, dividends
    else:
        whole = [abs(one) // abs(d) * (1 if (one < 0) == (d < 0) else -1) for one in dividends]
        expected = whole, [one - d * quotient for one, quotient in zip(dividends, whole, strict=True)]
    assert out[:256].tolist() == [(one + 2**31) % 2**32 - 2**31 for one in expected[0]]
    assert out[256:].tolist() == expected[1]


@pytest.mark.parametrize("mode", MODES)
def test_a_mask_over_remainders_is_looked_at_in_every_run(mode):
    x, out = floats(40), np.zeros(512, np.float32)
    run(within_groups, (2,), mode, x=x, out=out, d=40, groups=11, BLOCK=256)
    i = np.arange(512)
    np.testing.assert_array_equal(out, np.where(i % 40 < 11, x[i % 40], -1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("columns", [257, 512, 1, 300, 600])
def test_a_row_that_ends_within_its_block(mode, columns):
    x = floats(5, columns)
    out = np.full_like(x, np.nan)
    run(softmax, (5,), mode, x=x, out=out, stride=columns, columns=columns, BLOCK=512)
    rows = x[:, :512].astype(np.float64)
    exponents = np.exp(rows - rows.max(1, keepdims=True))
    np.testing.assert_allclose(out[:, :512], exponents / exponents.sum(1, keepdims=True), rtol=1e-5)
    assert np.isnan(out[:, 512:]).all()


def test_past_the_end_of_a_row_one_element_is_computed():
    x = floats(512)
    text = text_of(softmax, x=x, out=x, stride=257, columns=257, BLOCK=512)
    loops = re.findall(r"for \(int64_t (\w+) = limit\w+; [^{]*\{([^}]*)\}", text)
    assert len(loops) == 1
    assert all("exp" not in body and "if" not in body for _, body in loops)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("columns", [0, 1, 100, 127, 128, 200, -5])
@pytest.mark.parametrize("other", [0.0, 7.0, -3.0])
def test_what_is_past_the_end_counts_in_reductions(mode, columns, other):
    x = np.round(floats(3, 128) * 8)
    out = np.zeros((3, 8), np.float32)
    run(everything_of_a_row, (3,), mode, x=x, out=out, columns=columns, other=other, BLOCK=128)
    i = np.arange(128)
    values = np.where(i < columns, x, np.float32(other))
    whole = values.astype(np.int32)
    marks = np.full(3, np.where(i < columns, 1, 5).sum())
    expected = [
        *(values.sum(1), (values + 1).max(1), (values * 2).min(1), whole.sum(1)),
        *(np.bitwise_xor.reduce(whole, 1), whole.max(1), marks, (values * i).sum(1)),
    ]
    np.testing.assert_allclose(out, np.stack(expected, 1), rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("columns", "other_columns"), [(30, 50), (50, 30), (64, 10), (0, 64), (40, 40)])
def test_two_ends_of_one_row(mode, columns, other_columns):
    x, out = floats(2, 64), np.full((2, 64), np.nan, np.float32)
    run(twice_masked, (2,), mode, x=x, out=out, columns=columns, other_columns=other_columns, BLOCK=64)
    i = np.arange(64)
    values = np.where(i < columns, x, 3) + np.where(i < other_columns, x, 5)
    expected = np.where(i < columns, values - values.sum(1, keepdims=True), np.nan)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("writes_rows", [True, False])
@pytest.mark.parametrize("shape", [(64, 96), (50, 70), (1, 33)])
def test_transposes(mode, writes_rows, shape):
    rows, columns = shape
    x, out = floats(rows, columns), np.full((columns, rows), np.nan, np.float32)
    grid = (-(-rows // 32), -(-columns // 16))
    constants = {"ROWS": 32, "COLUMNS": 16, "WRITES_ROWS": writes_rows}
    run(transpose, grid, mode, x=x, out=out, rows=rows, columns=columns, **constants)
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("writes_rows", [True, False])
def test_a_transpose_reads_and_writes_along_the_rows_of_memory(writes_rows):
    x = floats(64, 64)
    constants = {"ROWS": 32, "COLUMNS": 16, "WRITES_ROWS": writes_rows}
    text = text_of(transpose, x=x, out=x, rows=64, columns=64, **constants)
    accesses = re.findall(r"\bt\d+\[([^]]+)\]", text)
    assert accesses
    assert all(re.fullmatch(r"i\d+", place) for place in accesses)


@pytest.mark.parametrize("mode", MODES)
def test_a_tail_is_one_along_its_own_axis(mode):
    x, out = floats(64, 8), np.zeros((8, 64), np.float32)
    run(read_across_a_mask, (1,), mode, x=x, out=out, rows=5, ROWS=8, COLUMNS=64)
    np.testing.assert_array_equal(out, np.where(np.arange(8)[:, None] < 5, x.T, 7))


@triton.jit
def read_across_before_a_store(x, out, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The tile is read before the first store, in another nest, writes over it."""
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(x + j * ROWS + i)
    tl.store(x + tl.arange(0, COLUMNS)[:, None] * stride + tl.arange(0, ROWS)[None, :] * 2, 1.0)
    tl.store(out + i * COLUMNS + j, tile)


@pytest.mark.parametrize("mode", MODES)
def test_a_tile_read_across_is_read_before_what_writes_over_it(mode):
    x, out = floats(80), np.zeros((4, 16), np.float32)
    expected = x[:64].reshape(16, 4).T.copy()
    run(read_across_before_a_store, (1,), mode, x=x, out=out, stride=4, ROWS=4, COLUMNS=16)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_transpose_in_place_reads_its_tile_before_it_writes(mode):
    x = floats(32, 32)
    expected = x.T + 1
    run(transpose_in_place, (1,), mode, x=x, SIZE=32)
    np.testing.assert_array_equal(x, expected)


@triton.jit
def turn(x, out, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Read along the first axis of the tile, written along the last."""
    i, j = tl.arange(0, ROWS)[:, None], tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(x + j * ROWS + i, mask=j < width)
    tl.store(out + i * width + j, tile, mask=j < width)


# Extents below the vectors' part, of one part, of many; elements that are turned by vectors, and bytes, which are not.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [np.int8, np.float16, np.int32, np.float64])
@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (4, 16), (16, 128), (64, 8)])
def test_tiles_of_every_size_are_turned(mode, kind, rows, columns):
    width = columns * 2 - 3
    x = RNG.integers(-100, 100, (width, rows)).astype(kind)
    out = np.zeros((rows, width), kind)
    run(turn, (2,), mode, x=x, out=out, width=width, ROWS=rows, COLUMNS=columns)
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize(
    ("kind", "extent", "turned"), [(np.float32, 16, True), (np.int8, 16, False), (np.int16, 4, False)]
)
def test_a_tile_is_turned_by_vectors(kind, extent, turned):
    x = np.zeros((64, 64), kind)
    assert ("silo_turn_" in text_of(turn, x=x, out=x, width=64, ROWS=extent, COLUMNS=16)) is turned


@triton.jit(debug=True)
def asked_and_used(x, out, used, least, BLOCK: tl.constexpr):
    """The condition lies in memory, for it is stored, too."""
    i = tl.arange(0, BLOCK)
    fits = tl.load(x + i) > least
    tl.device_assert(fits, "too small")
    tl.store(used + i, fits)
    tl.store(out + i, tl.where(fits, tl.load(x + i), 0) + tl.sum(fits.to(tl.int32), 0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrong", [None, 0, 17, 255])
def test_a_condition_that_is_stored_is_asked_for_every_element(mode, wrong):
    x, out, used = np.arange(5, 261, dtype=np.int32), np.zeros(256, np.int32), np.zeros(256, np.bool_)
    arguments = {"x": x, "out": out, "used": used, "least": 2, "BLOCK": 256}
    if wrong is None:
        run(asked_and_used, (1,), mode, **arguments)
        assert used.all()
        np.testing.assert_array_equal(out, x + 256)
    else:
        x[wrong] = 2
        with pytest.raises(LaunchError, match=rf"too small; program \(0, 0, 0\), index \({wrong}\)"):
            run(asked_and_used, (1,), mode, **arguments)


@triton.jit
def chosen(x, out, n, row_limit, BLOCK: tl.constexpr):
    """Selections by the masks of accesses, by others, and by what a row shares."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    inside, rows = i < n, row < row_limit
    value = tl.load(x + row * BLOCK + i, mask=inside & rows, other=5.0)
    low = tl.where(inside & rows, value, -1.0)
    other = tl.where(i < n - 1, value * 2, 7.0)
    same = tl.where(rows, row + 1, -3)
    whole = tl.where(rows, value, 11.0)
    tl.store(out + row * BLOCK + i, low + other + same + whole + tl.sum(low, axis=0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [0, 1, 63, 64, 100])
def test_a_selection_takes_what_its_mask_says(mode, n):
    x, out = RNG.integers(-9, 9, (4, 64)).astype(np.float32), np.zeros((4, 64), np.float32)
    run(chosen, (4,), mode, x=x, out=out, n=n, row_limit=3, BLOCK=64)
    i, row = np.arange(64)[None, :], np.arange(4)[:, None]
    inside, rows = i < n, row < 3
    value = np.where(inside & rows, x, 5)
    low = np.where(inside & rows, value, -1)
    other = np.where(i < n - 1, value * 2, 7)
    expected = low + other + np.where(rows, row + 1, -3) + np.where(rows, value, 11) + low.sum(1, keepdims=True)
    np.testing.assert_array_equal(out, expected)


@triton.jit
def masked_sum(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out, tl.sum(tl.where(i < n, tl.maximum(value, 2.0), 1.0), axis=0))


def test_where_a_mask_holds_nothing_is_selected():
    x = floats(64)
    text = text_of(masked_sum, x=x, out=x, n=60, BLOCK=64)
    assert not re.search(r"\(\(\w+\) \? \(", text)
    assert re.search(r"\(float\)\(64 - limit\d+\) \* 0x1\.0", text)  # past the end every element is 1

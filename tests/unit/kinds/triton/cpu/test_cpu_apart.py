"""Kernels whose caller says that elements keep apart: nothing is put aside first, and barriers are heeded."""

from __future__ import annotations

import re

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, compiled, module_of, needs_compiler, run  # noqa: E402
from silo.errors import LaunchError  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler
APART = {"cpu_elements_apart": True, "cpu_launch_atomics": True}
RNG = np.random.default_rng(0)


@triton.jit
def add_rows(rows, values, sums, n, d: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + i // d, mask=i < n, other=0)
    row = tl.where(row < 0, row + 11, row)
    tl.device_assert((row >= 0) & (row < 11), "no such row")
    tl.atomic_add(sums + row * d + i % d, tl.load(values + i, mask=i < n) + 1, mask=i < n, sem="relaxed")


@triton.jit
def add_everywhere(values, sums, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sums + i, tl.load(values + i), sem="relaxed")
    tl.atomic_add(sums + (i & 7), tl.load(values + i), mask=(i & 1) == 0, sem="relaxed")
    tl.atomic_add(sums + i * 0 + 3, 1, sem="relaxed")


@triton.jit
def look_up(rows, table, out, n, d: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + i // d, mask=i < n, other=0)
    tl.store(out + i, tl.load(table + row * d + i % d, mask=i < n) * 2, mask=i < n)


@triton.jit
def checked_look_up(rows, table, out, n, d: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (i < n) if MASKED else None
    row = tl.load(rows + i // d, mask)
    tl.device_assert((row >= 0) & (row < 11), "no such row", mask)
    tl.store(out + i, tl.load(table + row * d + i % d, mask) * 2, mask)


@triton.jit
def in_place(x, y, out, more, n, BLOCK: tl.constexpr):
    """Two stores after loads of the same memory, at the same indices."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n), tl.load(y + i, mask=i < n)
    tl.store(out + i, a + b * 2, mask=i < n)
    tl.store(more + i, a - b, mask=i < n)


@triton.jit
def row_in_place(x, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(out + row * n + i, value - tl.sum(value, axis=0), mask=i < n)


@triton.jit
def spread(x, out, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """What one index reads, all of a row's do: no promise covers that."""
    i, k = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + i)
    tl.store(out + i[:, None] * COLUMNS + k[None, :], value[:, None] + k[None, :])


@triton.jit
def add_turned(x, y, z, out, more, n, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    k = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (i < n) & (k < m)
    turned = tl.load(y + k * n + i, mask=inside, other=1)
    value = tl.load(x + i * m + k, mask=inside) + turned * tl.load(z + k * n + i, mask=inside)
    tl.store(out + i * m + k, value, mask=inside)
    tl.store(more + i * m + k, value - turned, mask=inside)


@triton.jit
def turn_round(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + BLOCK - 1 - i)
    tl.debug_barrier()
    tl.store(out + i, value)


debugged_add = triton.jit(add_rows.fn, debug=True)
checked_rows = triton.jit(checked_look_up.fn, debug=True)


def text_of(kernel, options, **arguments):
    return emit_c(module_of(kernel, arguments), CpuOptions(**options)).source.split("int32_t silo_")[-1]


def rows_of(dtype, d, n):
    rows = RNG.integers(-11, 11, -(-n // d) + 1)
    values = RNG.integers(-3, 4, n).astype(dtype)
    expected = np.zeros(11 * d, dtype)
    np.add.at(expected, rows[np.arange(n) // d] % 11 * d + np.arange(n) % d, values + 1)
    return rows, values, np.zeros_like(expected), expected


# Widths that are a vector's, that vectors do not fit into, longer than a block, and of which none is a run.
@pytest.mark.parametrize("d", [64, 16, 20, 100, 3, 1, 300])
@pytest.mark.parametrize("dtype", ["int32", "uint64", "float16", "float32", "float64"])
def test_rows_are_added_where_they_are(dtype, d):
    n = 2037
    rows, values, sums, expected = rows_of(dtype, d, n)
    run(add_rows, (8,), "optimized", options=APART, rows=rows, values=values, sums=sums, n=n, d=d, BLOCK=256)
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("options", [APART, {"cpu_elements_apart": True}, {"cpu_launch_atomics": True}, {}])
def test_places_that_meet_are_added_one_after_the_other(options):
    values, sums = RNG.integers(-9, 9, 512), np.zeros(512, np.int64)
    run(add_everywhere, (2,), "optimized", options=options, values=values, sums=sums, BLOCK=256)
    expected = values.copy()
    np.add.at(expected, np.arange(0, 512, 2) & 7, values[::2])
    expected[3] += 512
    np.testing.assert_array_equal(sums, expected)


def test_nothing_is_put_aside():
    rows, values, sums, _ = rows_of("float32", 64, 2048)
    given = {"rows": rows, "values": values, "sums": sums, "n": 2048, "d": 64, "BLOCK": 256}
    members = {"launch_atomics": True, "vector_bits": 512}
    assert "scratch + 0" in text_of(add_rows, members, **given)
    apart = text_of(add_rows, {**members, "elements_apart": True}, **given)
    assert "silo_add_plain_f32(&" in apart
    assert "silo_add_tile" not in apart
    given = {"rows": rows, "table": values, "out": values, "n": 2048, "d": 64, "BLOCK": 256}
    assert "scratch + 0" in text_of(look_up, {}, **given)
    assert "float *const b" not in text_of(look_up, {"elements_apart": True}, **given).replace("_stream", "")


@pytest.mark.parametrize("d", [64, 16, 100, 7])
@pytest.mark.parametrize("n", [2048, 2000, 3])
def test_rows_are_looked_up(d, n):
    rows, table = RNG.integers(0, 11, 2048 // d + 1), RNG.standard_normal((11, d)).astype(np.float32)
    out = np.zeros(2048, np.float32)
    run(look_up, (8,), "optimized", options=APART, rows=rows, table=table, out=out, n=n, d=d, BLOCK=256)
    i = np.arange(n)
    np.testing.assert_array_equal(out[:n], table[rows[i // d], i % d] * 2)
    assert not out[n:].any()


@triton.jit
def one_place_or_none(x, table, out, copies, d: tl.constexpr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    one = tl.load(x + i // d * 0, mask=i < n, other=i.to(tl.int64))
    tl.store(copies + i, tl.load(table + i // d))
    tl.store(out + i, one)


# With runs of 16 and of 32 elements, and of 2, which are none; a mask that holds for some, for none, and for all.
@pytest.mark.parametrize("d", [2, 16, 32])
@pytest.mark.parametrize("n", [0, 1, 24, 48, 64])
def test_a_masked_load_of_one_place_is_not_made_outside_of_its_runs(d, n):
    """Its value is not that of elements for which the mask does not hold; and it is not read if no mask holds."""
    x, table = np.full(1, -4, np.int64), np.arange(64, dtype=np.int64)
    out, copies, i = np.zeros(64, np.int64), np.zeros(64, np.int64), np.arange(64)
    given = {"x": x, "table": table, "out": out, "copies": copies, "d": d, "n": n, "BLOCK": 64}
    run(one_place_or_none, (1,), "optimized", options=APART, **given)
    np.testing.assert_array_equal(out, np.where(i < n, -4, i))
    np.testing.assert_array_equal(copies, table[i // d])


@triton.jit
def where_loaded(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, i, mask=tl.load(x + i, mask=i < n, other=i % 4) == 2)


@pytest.mark.parametrize("n", [0, 1, 7, 16, 63, 64])
def test_a_mask_that_is_loaded_holds_where_its_own_load_does_not(n):
    """A store ends where its mask ends, and not where the mask of a load within it does."""
    x, out, i = RNG.integers(0, 4, 64).astype(np.int32), np.full(64, -7, np.int32), np.arange(64)
    run(where_loaded, (1,), "optimized", options=APART, x=x, out=out, n=n, BLOCK=64)
    np.testing.assert_array_equal(out, np.where(np.where(i < n, x, i % 4) == 2, i, -7))


# Rows of which a block has one, some, and more than a vector; that blocks cut; and wrong ones at each end of a block.
@pytest.mark.parametrize("d", [16, 64, 20, 512, 7])
@pytest.mark.parametrize("n", [2048, 1999])
@pytest.mark.parametrize("wrong", [None, 0, 511, 512, 1500, 1998, 2048])
def test_rows_that_a_table_has_not_are_found_and_no_others(d, n, wrong):
    masked = n != 2048
    rows, table = RNG.integers(0, 11, 4096 // d), RNG.standard_normal((11, d)).astype(np.float32)
    if wrong is not None:
        rows[wrong // d] = RNG.choice([-1, 11, 1 << 40])
    out, i = np.zeros(2048, np.float32), np.arange(n)
    given = {"rows": rows, "table": table, "out": out, "n": n, "d": d, "MASKED": masked, "BLOCK": 512}
    if wrong is not None and wrong // d <= (n - 1) // d:
        with pytest.raises(LaunchError, match="no such row"):
            run(checked_rows, (4,), "optimized", options=APART, **given)
        return
    run(checked_rows, (4,), "optimized", options=APART, **given)
    np.testing.assert_array_equal(out[:n], table[rows[i // d], i % d] * 2)
    assert not out[n:].any()


@pytest.mark.parametrize("d", [64, 20, 3])
def test_rows_that_count_from_the_end_are_added_to_once_they_are_checked(d):
    rows, values, sums, expected = rows_of("float32", d, 2037)
    given = {"rows": rows, "values": values, "sums": sums, "n": 2037, "d": d, "BLOCK": 256}
    run(debugged_add, (8,), "optimized", options=APART, **given)
    np.testing.assert_array_equal(sums, expected)
    rows[-2] = 12  # the last that is used
    with pytest.raises(LaunchError, match="no such row"):
        run(debugged_add, (8,), "optimized", options=APART, **given)


@pytest.mark.parametrize("masked", [False, True])
def test_a_row_is_checked_once(masked):
    x, rows = np.zeros(2048, np.float32), np.zeros(64, np.int64)
    given = {"rows": rows, "table": x, "out": x, "n": 2048, "d": 64, "MASKED": masked, "BLOCK": 512}
    text = text_of(checked_rows, {"elements_apart": True}, **given)
    assert re.search(r"for \(int64_t quotient\d+ = \w+; quotient\d+ < high\d+; quotient\d+\+\+\)", text)
    assert re.search(r"if \(last\d+ - first\d+ == 64\)", text)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("into", ["x", "y", "both", "neither"])
def test_a_place_may_be_read_by_the_index_that_writes_it(mode, into):
    x, y = (RNG.integers(-9, 9, 1000).astype(np.float32) for _ in range(2))
    a, b = x.copy(), y.copy()
    out = x if into in {"x", "both"} else y if into == "y" else np.zeros_like(x)
    more = y if into == "both" else np.zeros_like(x)
    run(in_place, (4,), mode, options=APART, x=x, y=y, out=out, more=more, n=1000, BLOCK=256)
    np.testing.assert_array_equal(out, a + b * 2)
    np.testing.assert_array_equal(more, a - b)


@pytest.mark.parametrize("options", [APART, {}])
def test_a_row_in_place(options):
    x = RNG.integers(-9, 9, (7, 100)).astype(np.float32)
    expected = x - x.sum(1, keepdims=True)
    run(row_in_place, (7,), "optimized", options=options, x=x, out=x, n=100, BLOCK=128)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("options", [APART, {}])
def test_what_a_whole_row_reads_is_read_first(options):
    memory = np.arange(600, dtype=np.int32)
    expected = memory[:32, None] + np.arange(16)
    run(spread, (1,), "optimized", options=options, x=memory, out=memory, COLUMNS=16, ROWS=32)
    np.testing.assert_array_equal(memory[:512].reshape(32, 16), expected)


# Blocks that divide what there is and that do not, in one direction and in both; and one that has no parts.
@pytest.mark.parametrize("sizes", [(64, 96), (61, 96), (64, 90), (61, 90), (5, 7)])
@pytest.mark.parametrize("blocks", [(32, 32), (16, 64), (64, 16), (8, 64)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize("into", ["x", "neither"])
def test_tiles_are_turned_in_parts(sizes, blocks, dtype, into):
    (n, m), (rows, columns) = sizes, blocks
    x, y, z = (RNG.integers(-9, 9, shape).astype(dtype) for shape in ((n, m), (m, n), (m, n)))
    expected = x + y.T * z.T
    out, more = x if into == "x" else np.zeros_like(x), np.zeros_like(x)
    given = {"x": x, "y": y, "z": z, "out": out, "more": more, "n": n, "m": m, "ROWS": rows, "COLUMNS": columns}
    run(add_turned, (-(-n // rows), -(-m // columns)), "optimized", options=APART, **given)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(more, expected - y.T)


def test_only_tiles_of_four_bytes_in_whole_parts_are_turned_in_parts():
    def text(dtype="float32", blocks=(32, 64), **members):
        x = np.zeros((128, 128), dtype)
        rows, columns = blocks
        given = {"x": x, "y": x, "z": x, "out": x, "more": x, "n": 128, "m": 128, "ROWS": rows, "COLUMNS": columns}
        return text_of(add_turned, {"elements_apart": True, **members}, **given)

    assert text().count("#pragma GCC unroll 16") == 1
    assert text().count("silo_turn_lines_4(tile") == 2
    assert "int32_t whole" not in text().partition("tile")[0]  # the masks of rows follow from those of columns
    for other in (text("float64"), text(blocks=(8, 64)), text(elements_apart=False), text(mode="reference")):
        assert "silo_turn_lines_4(tile" not in other


def test_a_barrier_takes_the_promise_back():
    x = np.arange(256, dtype=np.int32)
    run(turn_round, (1,), "optimized", options=APART, x=x, out=x, BLOCK=256)
    np.testing.assert_array_equal(x, np.arange(256)[::-1])
    text = text_of(turn_round, {"elements_apart": True}, x=x, out=x, BLOCK=256)
    assert text == text_of(turn_round, {}, x=x, out=x, BLOCK=256)


def test_only_a_caller_says_so():
    x = np.zeros(256, np.float32)
    given = {"x": x, "y": x, "out": x, "more": x, "n": 256, "BLOCK": 256}
    assert "high" in text_of(in_place, {}, **given)
    assert "high" not in text_of(in_place, {"elements_apart": True}, **given)
    assert compiled(in_place, "optimized", options=APART, **given) is not compiled(in_place, "optimized", **given)

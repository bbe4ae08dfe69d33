"""Scans, reductions by any function, shuffles, atomics and calls, in both schedules against numpy."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="kernels are lowered by Triton")

import triton
import triton.language as tl

from cpu_samples import MODES, module_of, needs_compiler, run
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.emit.kernel_text import emit_c

pytestmark = [needs_compiler, pytest.mark.parametrize("mode", MODES)]


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@triton.jit
def extremes(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(x + i, mask=i < n, other=-1e9)
    tl.store(out, tl.argmax(row, 0))
    tl.store(out + 1, tl.argmin(row, 0))
    tile = tl.reshape(row, (BLOCK // 16, 16))
    tl.store(out + 2 + tl.arange(0, 16), tl.argmax(tile, 0))
    tl.store(out + 32 + tl.arange(0, BLOCK // 16), tl.argmax(tile, 1))


def test_places_of_extremes(mode):
    x, out = normal(256), np.zeros(100, np.int32)
    run(extremes, (1,), mode, x=x, out=out, n=250, BLOCK=256)
    row = np.where(np.arange(256) < 250, x, -1e9)
    tile = row.reshape(16, 16)
    assert out[0] == row.argmax()
    assert out[1] == row.argmin()
    np.testing.assert_array_equal(out[2:18], tile.argmax(0))
    np.testing.assert_array_equal(out[32:48], tile.argmax(1))


@triton.jit
def places_beside_nans(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = tl.load(x + i[:, None] * COLUMNS + j[None, :])
    tl.store(out + i, tl.argmax(tile, 1))
    tl.store(out + ROWS + i, tl.argmin(tile, 1, tie_break_left=False))
    largest, place = tl.max(tl.trans(tile), 0, return_indices=True)
    tl.store(out + 2 * ROWS + i, place)
    tl.store(out + 3 * ROWS + i, largest.to(tl.int32))


@pytest.mark.parametrize("columns", [4, 64])
def test_places_of_extremes_are_those_of_numbers(mode, columns):
    values = np.random.default_rng(1).permuted(np.tile(np.arange(columns), (16, 1)), axis=1).astype(np.float32)
    values[np.random.default_rng(2).random(values.shape) < 0.4] = np.nan
    values[np.isnan(values).all(1), 1] = 0.0
    out = np.zeros((4, 16), np.int32)
    run(places_beside_nans, (1,), mode, x=values, out=out, ROWS=16, COLUMNS=columns)
    np.testing.assert_array_equal(out[0], np.nanargmax(values, 1))
    np.testing.assert_array_equal(out[1], np.nanargmin(values, 1))
    np.testing.assert_array_equal(out[2], np.nanargmax(values, 1))
    np.testing.assert_array_equal(out[3], np.nanmax(values, 1))


@triton.jit
def kept_first(a, i, b, j):
    less = (a < b) | ((a == b) & (i > j))
    return tl.where(less, b, a), tl.where(less, j, i)


@triton.jit
def by_another_rule(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    number, place = tl.reduce((tl.load(x + i), i), 0, kept_first)
    tl.store(out, number)
    tl.store(out + 1, place)


def test_places_by_a_rule_of_ones_own(mode):
    x, out = np.array([3.0, 7.0, 7.0, -1.0], np.float32), np.zeros(2, np.float32)
    run(by_another_rule, (1,), mode, x=x, out=out, BLOCK=4)
    np.testing.assert_array_equal(out, [7.0, 1.0])


@triton.jit
def welford(mean, square, count, mean2, square2, count2):
    delta, total = mean2 - mean, count + count2
    share = tl.where(total == 0.0, 0.0, count2 / total)
    return mean + delta * share, square + square2 + delta * delta * count * share, total


@triton.jit
def recurrence(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def by_functions(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    products, values = tl.associative_scan((a, b), 0, recurrence)
    tl.store(out + i, products)
    tl.store(out + BLOCK + i, values)
    zeros = tl.zeros_like(a)
    mean, square, count = tl.reduce((a, zeros, zeros + 1.0), 0, welford)
    tl.store(out + 2 * BLOCK, mean)
    tl.store(out + 2 * BLOCK + 1, square)
    tl.store(out + 2 * BLOCK + 2, count)


def test_several_values_are_combined_by_the_users_function(mode):
    x, y, out = 0.75 + normal(128) * 0.1, normal(128), np.zeros(259, np.float32)
    run(by_functions, (1,), mode, x=x, y=y, out=out, BLOCK=128)
    expected, last = [], 0.0
    for factor, term in zip(x, y, strict=True):
        last = last * float(factor) + float(term)
        expected.append(last)
    np.testing.assert_allclose(out[:128], np.cumprod(x.astype(np.float64)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out[128:256], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[256:], [x.mean(), x.var() * 128, 128], rtol=1e-4)


@triton.jit
def running(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(x + i)
    tl.store(out + i, tl.cumsum(tile, 0, reverse=REVERSE))
    tl.store(out + ROWS * COLUMNS + i, tl.cumsum(tile, 1, reverse=REVERSE))
    tl.store(out + 2 * ROWS * COLUMNS + i, tl.cumprod(tile, 1, reverse=REVERSE))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(8, 16), (1, 64), (32, 1), (4, 256)])
def test_scans_along_either_axis(mode, reverse, rows, columns):
    x, out = normal(rows, columns), np.zeros((3, rows, columns), np.float32)
    run(running, (1,), mode, x=x, out=out, ROWS=rows, COLUMNS=columns, REVERSE=reverse)
    wide = x.astype(np.float64)

    def expected(scan, axis):
        return np.flip(scan(np.flip(wide, axis), axis), axis) if reverse else scan(wide, axis)

    for got, scan, axis in zip(out, (np.cumsum, np.cumsum, np.cumprod), (0, 1, 1), strict=True):
        np.testing.assert_allclose(got, expected(scan, axis), rtol=1e-4, atol=1e-4)


@triton.jit
def sums_and_source(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, REVERSE: tl.constexpr):
    """What is summed is used again, and one sum is summed again in place."""
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tl.load(x + i) * 2
    sums = tl.cumsum(tile, 1, reverse=REVERSE)
    tl.store(out + i, sums)
    tl.store(out + ROWS * COLUMNS + i, tile)
    tl.store(out + 2 * ROWS * COLUMNS + i, tl.cumsum(tl.cumsum(tl.load(x + i), 1), 1, reverse=REVERSE))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 2), (2, 64)])
def test_running_sums_of_every_type_leave_their_source_alone(mode, reverse, dtype, rows, columns):
    """Of small integers, whose sums are exact in every type and order; the sign of a first zero is kept."""
    x = np.random.default_rng(1).integers(-9, 9, (rows, columns)).astype(dtype)
    x[:, [0, -1]] = -0.0
    out = np.zeros((3, rows, columns), x.dtype)
    run(sums_and_source, (1,), mode, x=x, out=out, ROWS=rows, COLUMNS=columns, REVERSE=reverse)

    def summed(values):
        return np.flip(np.cumsum(np.flip(values, 1), 1), 1) if reverse else np.cumsum(values, 1)

    wanted = np.stack([summed(x * 2), x * 2, summed(np.cumsum(x, 1))]).astype(x.dtype)
    assert out.tobytes() == wanted.tobytes()


@triton.jit
def row_runs(x, out, n, BLOCK: tl.constexpr):
    """A row from memory to memory, as one pass does it."""
    row, i = tl.program_id(0) * n, tl.arange(0, BLOCK)
    tl.store(out + row + i, tl.cumsum(tl.load(x + row + i, mask=i < n, other=0), 0), mask=i < n)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("n", [1, 7, 8, 15, 16, 33, 63, 64])
def test_running_sums_from_memory_to_memory(mode, dtype, n):
    x = np.random.default_rng(n).integers(-9, 9, (3, n)).astype(dtype)
    x[:, 0] = -0.0
    out = np.full(3 * n + 8, 77, dtype)
    run(row_runs, (3,), mode, x=x, out=out, n=n, BLOCK=64)
    assert out[: 3 * n].tobytes() == np.cumsum(x, 1).astype(dtype).tobytes()
    assert (out[3 * n :] == 77).all()


@pytest.mark.parametrize("distance", [0, 1, 5, 8, 40, 64])
@pytest.mark.parametrize("forward", [False, True])
def test_running_sums_of_overlapping_memory_load_before_they_store(mode, distance, forward):
    n = 40
    memory = np.random.default_rng(distance).integers(-9, 9, 3 * 64).astype(np.int32)
    x = memory[64 : 64 + n]
    out = memory[64 + distance :] if forward else memory[64 - distance :]
    expected = np.cumsum(x).astype(np.int32)
    run(row_runs, (1,), mode, x=x, out=out, n=n, BLOCK=64)
    np.testing.assert_array_equal(out[:n], expected)


def test_one_pass_sums_only_what_nothing_else_needs(mode):
    x = np.zeros((3, 64), np.float32)

    def text(kernel, **arguments):
        options = CpuOptions(mode=mode, vector_bits=512)
        return emit_c(module_of(kernel, {"x": x, "out": x.copy(), **arguments}), options).source

    assert ("silo_running_sum_to_f32(t" in text(row_runs, n=40, BLOCK=64)) == (mode == "optimized")
    assert "silo_running_sum_to_f32(t" not in text(row_runs, n=4, BLOCK=8)  # a row shorter than a vector
    assert "silo_running_sum_to_f32(t" not in text(sums_and_source, ROWS=1, COLUMNS=64, REVERSE=False)


@triton.jit
def narrow_runs(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BF16: tl.constexpr, REVERSE: tl.constexpr):
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    place = i[:, None] * COLUMNS + j[None, :]
    tile = tl.load(x + place).to(tl.bfloat16 if BF16 else tl.float16)
    tl.store(out + place, tl.associative_scan(tile, 1, added, REVERSE))
    tl.store(out + ROWS * COLUMNS + place, tl.associative_scan(tile, 0, added, REVERSE))
    tl.store(out + 2 * ROWS * COLUMNS + place, tl.associative_scan(tile, 1, multiplied, REVERSE))


@triton.jit
def added(a, b):
    return a + b


@triton.jit
def multiplied(a, b):
    return a * b


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bits", [8, 11], ids=["bf16", "f16"])
def test_running_sums_of_narrow_types_are_rounded_once(mode, reverse, bits):
    """Rounded at each of 256 elements they would be off by several percent."""
    x = (1.0 + np.random.default_rng(3).integers(-3, 4, (8, 256)) / 128).astype(np.float32)  # exact in either type
    out = np.zeros((3, 8, 256), np.float32)
    run(narrow_runs, (1,), mode, x=x, out=out, ROWS=8, COLUMNS=256, BF16=bits == 8, REVERSE=reverse)

    def expected(scan, axis):
        wide = x.astype(np.float64)
        return np.flip(scan(np.flip(wide, axis), axis), axis) if reverse else scan(wide, axis)

    for found, wanted in zip(
        out, [expected(np.cumsum, 1), expected(np.cumsum, 0), expected(np.cumprod, 1)], strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=2.0**-bits * 1.01)


@triton.jit
def shuffles(x, out, BLOCK: tl.constexpr):
    i, half = tl.arange(0, BLOCK), tl.arange(0, BLOCK // 2)
    row = tl.load(x + i)
    tl.store(out + i, tl.sort(row))
    tl.store(out + BLOCK + i, tl.sort(row, descending=True))
    tl.store(out + 2 * BLOCK + i, tl.flip(row, 0))
    tl.store(out + 3 * BLOCK + tl.arange(0, 4), tl.topk(row, 4))
    even, odd = tl.split(tl.reshape(row, (BLOCK // 2, 2)))
    tl.store(out + 4 * BLOCK + half, even)
    tl.store(out + 4 * BLOCK + BLOCK // 2 + half, odd)
    tl.store(out + 5 * BLOCK + i, tl.interleave(even, odd))
    tl.store(out + 6 * BLOCK + tl.arange(0, 2 * BLOCK), tl.cat(row, -row, can_reorder=True))
    tl.store(out + 8 * BLOCK + i, tl.gather(row, (i * 7) % BLOCK, 0))
    tl.store(out + 9 * BLOCK + tl.arange(0, 8), tl.histogram(i % 8, 8).to(tl.float32))
    pair = tl.join(tl.load(x), tl.load(x + 1))
    first, second = tl.split(pair)
    tl.store(out + 9 * BLOCK + 8, first)
    tl.store(out + 9 * BLOCK + 9, second)


@pytest.mark.filterwarnings("ignore:tl.cat")
def test_elements_change_places(mode):
    size = 16 if mode == "reference" else 64  # without fusion a sort's text grows with the square of its steps
    x, out = normal(size), np.zeros((10, size), np.float32)
    run(shuffles, (1,), mode, x=x, out=out, BLOCK=size)
    ordered = np.sort(x)
    wanted = np.zeros((10, size), np.float32)
    wanted[0], wanted[1], wanted[2], wanted[3, :4] = ordered, ordered[::-1], x[::-1], ordered[::-1][:4]
    wanted[4], wanted[5], wanted[6], wanted[7] = np.concatenate([x[::2], x[1::2]]), x, x, -x
    wanted[8], wanted[9, :8], wanted[9, 8:10] = x[np.arange(size) * 7 % size], size // 8, x[:2]
    np.testing.assert_array_equal(out, wanted)


@triton.jit
def added_up(x, out, places, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    place = tl.load(places + i, mask=i < n, other=0)
    tl.atomic_add(out + place, value, mask=i < n)
    tl.atomic_max(out + 64 + place, value, mask=i < n)
    tl.atomic_min(out + 128 + place, value, mask=i < n)
    old = tl.atomic_xchg(out + 192 + i, value, mask=i < n)
    tl.store(out + 512 + i, old, mask=i < n)
    tl.atomic_add(places + 300, 1)


def test_atomics_on_floats(mode):
    x, out = normal(200), np.zeros(1024, np.float32)
    places = np.random.default_rng(1).integers(0, 64, 400).astype(np.int32)
    places[300], out[192:392] = 0, 7.0
    run(added_up, (4,), mode, x=x, out=out, places=places, n=200, BLOCK=64)
    total, most, least = np.zeros(64), np.zeros(64, np.float32), np.zeros(64, np.float32)
    np.add.at(total, places[:200], x)
    np.maximum.at(most, places[:200], x)
    np.minimum.at(least, places[:200], x)
    np.testing.assert_allclose(out[:64], total, atol=1e-5)
    np.testing.assert_array_equal(out[64:128], most)
    np.testing.assert_array_equal(out[128:192], least)
    np.testing.assert_array_equal(out[192:392], x)
    np.testing.assert_array_equal(out[512:712], 7.0)
    assert places[300] == 4


@triton.jit
def integer_atomics(data, out):
    i = tl.arange(0, 16).to(data.dtype.element_ty)
    tl.store(out + i, tl.atomic_add(data + i, i + 1))
    tl.store(out + 16 + i, tl.atomic_and(data + 16 + i, i * 37))
    tl.store(out + 32 + i, tl.atomic_or(data + 32 + i, i * 37))
    tl.store(out + 48 + i, tl.atomic_xor(data + 48 + i, i * 37))
    tl.store(out + 64 + i, tl.atomic_max(data + 64 + i, i * 37 - 200))
    tl.store(out + 80 + i, tl.atomic_min(data + 80 + i, i * 37 - 200))
    tl.store(out + 96 + i, tl.atomic_cas(data + 96 + i, i * 2, i + 1000))
    tl.store(out + 112 + i, tl.atomic_xchg(data + 112 + i, i))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_atomics_on_integers(mode, dtype):
    low = 0 if dtype.startswith("u") else -500
    data = np.random.default_rng(2).integers(low, 500, (8, 16)).astype(dtype)
    data[6] = np.arange(16) * np.where(np.arange(16) % 2, 2, 3)
    before, out = data.copy(), np.zeros((8, 16), dtype)
    run(integer_atomics, (1,), mode, data=data, out=out)
    i = np.arange(16)
    other = (i * 37 - 200).astype(dtype)
    after = before.copy()
    after[0] += (i + 1).astype(dtype)
    after[1] &= (i * 37).astype(dtype)
    after[2] |= (i * 37).astype(dtype)
    after[3] ^= (i * 37).astype(dtype)
    after[4], after[5] = np.maximum(before[4], other), np.minimum(before[5], other)
    after[6] = np.where(before[6] == (i * 2).astype(dtype), i + 1000, before[6])
    after[7] = i
    np.testing.assert_array_equal(data, after)
    np.testing.assert_array_equal(out, before)


@triton.jit
def either(x, y, n):
    if n > 3:
        return x + y
    return x * y


@triton.jit(noinline=True)
def apart(place, n):
    if n > 3:
        return 5
    tl.store(place, 3.0)
    return n


@triton.jit
def calling(x, out, n):
    i = tl.arange(0, 8)
    for k in range(n):
        tl.store(out + k * 8 + i, either(tl.load(x + i), 3.0, k))
    tl.store(out + 100, apart(out + 101, n))
    tl.store(out + 102, apart(out + 103, n - 10))


def test_functions_that_are_not_inlined(mode):
    x, out = normal(8), np.zeros(128, np.float32)
    run(calling, (2,), mode, x=x, out=out, n=6)
    np.testing.assert_array_equal(out[:32].reshape(4, 8), np.tile(x * 3, (4, 1)))
    np.testing.assert_array_equal(out[32:48].reshape(2, 8), np.tile(x + 3, (2, 1)))
    np.testing.assert_array_equal(out[100:104], [5, 0, -4, 3])


@triton.jit
def selu(x, scale):
    if x > 0:
        return x
    return scale * (tl.exp(x) - 1)


@triton.jit
def swap(left, right):
    return right, left


@triton.jit
def larger(left, right):
    if left > right:
        return left
    return right


@triton.jit
def mapped(x, out):
    i = tl.arange(0, 64)
    row = tl.load(x + i)
    tl.store(out + i, tl.map_elementwise(selu, row, row * 2))
    tl.store(out + 64 + i, tl.map_elementwise(swap, row, pack=2)[0])
    tl.store(out + 128, tl.reduce(row, 0, larger))
    tl.store(out + 129 + i, tl.associative_scan(row, 0, larger))


@pytest.mark.skipif(not hasattr(tl, "map_elementwise"), reason="this Triton has no map_elementwise")
def test_functions_of_elements_may_branch(mode):
    x, out = normal(64), np.zeros(193, np.float32)
    run(mapped, (1,), mode, x=x, out=out)
    np.testing.assert_allclose(out[:64], np.where(x > 0, x, 2 * x * (np.exp(x) - 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out[64:128], x.reshape(32, 2)[:, ::-1].ravel())
    assert out[128] == x.max()
    np.testing.assert_array_equal(out[129:], np.maximum.accumulate(x))


@triton.jit
def sorted_rows(x, out, WIDTH: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, 2)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(out + i, tl.sort(tl.load(x + i), descending=DESCENDING))


# Without fusion a network's text grows with the square of its steps: one dtype is enough for the widest.
@pytest.mark.parametrize(
    ("width", "dtype"), [(2, "float32"), (32, "float32"), (2, "int64"), (8, "int64"), (2, "float16"), (8, "float16")]
)
def test_sorts_of_rows(mode, width, dtype):
    width = min(width, 16) if mode == "reference" else width
    x = (normal(2, width) * 100).astype(dtype)
    x[0, -1] = x[0, 0]
    for descending in (False, True):
        out = np.zeros_like(x)
        run(sorted_rows, (1,), mode, x=x, out=out, WIDTH=width, DESCENDING=descending)
        np.testing.assert_array_equal(out, np.sort(x, 1)[:, ::-1] if descending else np.sort(x, 1))


@triton.jit
def flipped(x, out, AXIS: tl.constexpr):
    i = tl.arange(0, 8)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out + i, tl.flip(tl.load(x + i), AXIS))


@pytest.mark.parametrize("axis", [0, 1])
def test_flips_along_either_axis(mode, axis):
    x, out = normal(8, 32), np.zeros((8, 32), np.float32)
    run(flipped, (1,), mode, x=x, out=out, AXIS=axis)
    np.testing.assert_array_equal(out, np.flip(x, axis))

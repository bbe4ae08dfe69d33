"""Kernels that were compiled wrong once, as small as they show it; most were found by tests/fuzz."""
# pyright: reportOperatorIssue=false

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def reshape_after_return(out, limit):
    i = tl.arange(0, 64)
    j = tl.arange(0, 2)
    tile = tl.broadcast_to(((i[:, None] + 2) % 2).to(tl.int64), (64, 2))
    if tl.max(i) > limit:
        return
    if tl.max(tile) >= 1:
        tl.store(out + j, tl.full((2,), 1, tl.int16))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [2, 100])
def test_a_tile_made_before_an_early_return_is_reshaped_after_it(mode, limit):
    out = np.zeros(2, np.int16)
    run(reshape_after_return, (1,), mode, out=out, limit=limit)
    assert out.tolist() == [int(limit > 63)] * 2


@triton.jit
def load_between(x, tile, out, n):
    i = tl.arange(0, 8)
    j = tl.arange(0, 16)
    table = tl.broadcast_to(((i[None, :] * 7 + 3) % 3 - 1).to(tl.int64), (16, 8))
    loaded = tl.load(x + j * 0, mask=j < n, other=tl.sum(table, 1))
    tl.store(tile + j[:, None] * 8 + i[None, :], tl.full((16, 8), 1, tl.int64))
    tl.store(out + j, loaded)


@pytest.mark.parametrize("mode", MODES)
def test_a_load_that_needs_a_sum_comes_before_a_store_that_may_overwrite_what_it_reads(mode):
    x, tile, out = np.full(4, 50), np.zeros(128, np.int64), np.zeros(16, np.int64)
    run(load_between, (1,), mode, x=tile, tile=tile, out=out, n=2)
    total = int(((np.arange(8) * 7 + 3) % 3 - 1).sum())
    assert out.tolist() == [0, 0, *[total] * 14]
    run(load_between, (1,), mode, x=x, tile=tile, out=out, n=2)
    assert out.tolist() == [50, 50, *[total] * 14]


@triton.jit
def halves_in_dots_and_rows(x, out, row):
    i, j, k = tl.arange(0, 16), tl.arange(0, 128), tl.arange(0, 32)
    left = tl.load(x + i[:, None] * 32 + k[None, :])
    right = tl.load(x + k[:, None] * 16 + i[None, :])
    tl.store(out + i[:, None] * 16 + i[None, :], tl.dot(left, right))
    tl.store(row + j, tl.load(x + j) + tl.load(x + 128 + j))


@pytest.mark.parametrize("mode", MODES)
def test_halves_in_dots_and_in_rows_of_one_kernel(mode):
    x = np.random.default_rng(0).integers(-3, 4, 512).astype(np.float16)
    out, row = np.zeros((16, 16), np.float32), np.zeros(128, np.float16)
    run(halves_in_dots_and_rows, (1,), mode, x=x, out=out, row=row)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(out, wide.reshape(16, 32) @ wide.reshape(32, 16))
    np.testing.assert_array_equal(row, x[:128] + x[128:256])


@triton.jit
def one_place_twice(out, n, first):
    i = tl.arange(0, 16)
    v = (i % 2 - 1).to(tl.float32)
    tl.store(out + i + first, v.to(tl.float16), mask=i < n)
    tl.store(out + i + first, (v - v).to(tl.float16), mask=i < n)
    tl.store(out + i + first, (v - v).to(tl.float16), mask=i < n)


@pytest.mark.parametrize("mode", MODES)
def test_the_last_of_several_stores_of_halves_stays(mode):
    out = np.ones(32, np.float16)
    run(one_place_twice, (1,), mode, out=out, n=18, first=5)
    np.testing.assert_array_equal(out[5:21], 0)


@triton.jit
def carried_and_joined(out, n, step):
    i = tl.arange(0, 16)
    carried = tl.full((16,), 1, tl.int32)
    for k in range(n):
        pair = tl.reshape(carried, (2, 8))
        tl.store(out + 32 + k * 16 + tl.arange(0, 2)[:, None] * 8 + tl.arange(0, 8)[None, :], pair)
        carried = carried + step
    tl.store(out + tl.arange(0, 32), tl.cat(carried, carried + i, can_reorder=True))


@pytest.mark.filterwarnings("ignore:tl.cat")
@pytest.mark.parametrize("mode", MODES)
def test_a_value_that_a_loop_moves_by_a_scalar_may_be_needed_as_a_whole(mode):
    out = np.zeros(96, np.int32)
    run(carried_and_joined, (1,), mode, out=out, n=4, step=5)
    np.testing.assert_array_equal(out[:16], 21)
    np.testing.assert_array_equal(out[16:32], 21 + np.arange(16))
    np.testing.assert_array_equal(out[32:].reshape(4, 16), np.repeat([1, 6, 11, 16], 16).reshape(4, 16))


@triton.jit
def unsigned_rows(x, out):
    i = tl.arange(0, 32)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_sorts_of_unsigned_numbers(mode, dtype):
    x = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, 32, dtype=dtype)
    out = np.zeros_like(x)
    run(unsigned_rows, (1,), mode, x=x, out=out)
    np.testing.assert_array_equal(out, np.sort(x))


@triton.jit
def one_value_summed(out, x, n):
    i = tl.arange(0, 4)
    half = tl.full((4,), 0.5, tl.float32) * tl.load(x)
    tl.store(out, tl.sum(tl.floor(tl.full((4,), 1.0, tl.float32) * 0.5), 0))
    tl.store(out + 1, tl.sum(half, 0))
    tl.store(out + 2 + i, tl.max(half, 0) + i)


@pytest.mark.parametrize("mode", MODES)
def test_a_sum_of_one_value_is_no_vector_loop(mode):
    out = np.zeros(6, np.float32)
    run(one_value_summed, (1,), mode, out=out, x=np.full(1, 3.0, np.float32), n=1)
    assert out.tolist() == [0.0, 6.0, 1.5, 2.5, 3.5, 4.5]
    module = module_of(one_value_summed, {"out": out, "x": out, "n": 1})
    text = emit_c(module, CpuOptions(vector_bits=512)).source
    assert "reduction(" not in text


@triton.jit
def pointers_through_two_loops(x, y, out, rows, K: tl.constexpr):
    i, k = tl.arange(0, 16), tl.arange(0, 16)
    at = x + (i[:, None] % rows) * 64 + k[None, :]
    total = tl.zeros((16, 16), tl.float32)
    for outer in range(2):
        right = y + (outer * 32 + k[:, None]) * 16 + i[None, :]
        for _ in range(K):
            total = tl.dot(tl.load(at), tl.load(right), total)
            at += 16
            right += 256
    tl.store(out + i[:, None] * 16 + k[None, :], total)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [16, 5])
def test_pointers_that_two_loops_move_are_read_by_a_dot(mode, rows):
    random = np.random.default_rng(3)
    x, y = random.integers(-4, 5, (16, 64)).astype(np.float32), random.integers(-4, 5, (64, 16)).astype(np.float32)
    out = np.zeros((16, 16), np.float32)
    run(pointers_through_two_loops, (1,), mode, x=x, y=y, out=out, rows=rows, K=2)
    assert (out == x[np.arange(16) % rows] @ y).all()


@triton.jit
def wrapped_rows_in_a_loop(x, out, rows, n):
    i = tl.arange(0, 64)
    at = x + i % rows
    to = out + i
    for _ in range(n):
        value = tl.load(at)
        tl.store(to, value + 1)
        tl.store(to + 64, value + 2)
        at += rows
        to += 128


@pytest.mark.parametrize("mode", MODES)
def test_pointers_that_wrap_and_move_may_overlap_what_is_stored(mode):
    memory = np.arange(600, dtype=np.int32)
    expected = memory.copy()
    for step in range(3):
        value = expected[np.arange(64) % 7 + 7 * step]
        start = 10 + 128 * step
        expected[start : start + 64], expected[start + 64 : start + 128] = value + 1, value + 2
    run(wrapped_rows_in_a_loop, (1,), mode, x=memory, out=memory[10:], rows=7, n=3)
    assert (memory == expected).all()


@triton.jit
def strided_sum_between_stores(x, out, spread, even, step, start):
    i, j = tl.arange(0, 4), tl.arange(0, 8)
    pid = tl.program_id(0)
    value = tl.load(x + pid * 12 + (i * step + start))
    scaled = value * tl.sum(value, 0)
    kept = tl.full((8, 4), -0.25, tl.float32)
    kept = tl.clamp(kept, kept * 0 - 1.5, kept * 0 + 2.0)
    tl.store(spread + pid * 32 + tl.reshape(tl.arange(0, 32), (8, 4)), kept)
    tl.store(even + pid * 32 + j[:, None] * 4 + i[None, :], tl.full((8, 4), 0.0625, tl.float32))
    tl.store(out + pid * 4 + i, scaled)


@pytest.mark.parametrize("mode", MODES)
def test_the_array_that_gcc_makes_for_a_sum_lies_where_its_stores_expect_it(mode):
    x = np.arange(36, dtype=np.int32)
    spread, even, out = np.zeros(96, np.float32), np.zeros(96, np.float32), np.zeros(12, np.int32)
    run(strided_sum_between_stores, (3,), mode, x=x, out=out, spread=spread, even=even, step=2, start=5)
    read = x.reshape(3, 12)[:, 5::2]
    assert (out == (read * read.sum(1, keepdims=True)).ravel()).all()
    assert (spread == -0.25).all()
    assert (even == 0.0625).all()


@triton.jit
def centred_product(x, y, out, K: tl.constexpr):
    i, j, k = tl.arange(0, 16), tl.arange(0, 64), tl.arange(0, 16)
    pid = tl.program_id(0)
    total = tl.zeros((16, 64), tl.float32)
    for step in range(K):
        left = tl.load(x + (pid * 16 + i[:, None]) * K * 16 + step * 16 + k[None, :])
        total = tl.dot(left, tl.load(y + (step * 16 + k[:, None]) * 64 + j[None, :]), total)
    centred = total - tl.sum(total, 1)[:, None] / 64
    tl.store(out + (pid * 16 + i[:, None]) * 64 + j[None, :], centred)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_panels_kept_for_the_next_program_share_no_memory_with_what_follows_their_loop(mode, steps):
    random = np.random.default_rng(0)
    x, y = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((64, steps * 16), (steps * 16, 64)))
    out = np.zeros((64, 64), np.float32)
    run(centred_product, (4,), mode, x=x, y=y, out=out, K=steps)
    product = x @ y
    np.testing.assert_array_equal(out, product - product.mean(1, keepdims=True))


@triton.jit
def product_in_place(x, y, out, rounds, K: tl.constexpr):
    i, k = tl.arange(0, 16), tl.arange(0, 16)
    for _ in range(rounds):
        total = tl.zeros((16, 16), tl.float32)
        for step in range(K):
            left = tl.load(x + i[:, None] * 16 * K + step * 16 + k[None, :])
            total = tl.dot(left, tl.load(y + (step * 16 + k[:, None]) * 16 + i[None, :]), total)
        tl.store(out + i[:, None] * 16 + k[None, :], total)


@pytest.mark.parametrize("mode", MODES)
def test_a_product_reads_what_its_program_stored_through_another_argument(mode):
    random = np.random.default_rng(0)
    x, y = (random.integers(-2, 3, shape).astype(np.float32) for shape in ((16, 32), (32, 16)))
    expected = y.copy()
    for _ in range(3):
        expected[:16] = x @ expected
    run(product_in_place, (1,), mode, x=x, y=y, out=y, rounds=3, K=2)
    np.testing.assert_array_equal(y, expected)


@triton.jit
def sums_of_carried_places(out, rounds):
    i = tl.arange(0, 16)
    place = i * 0 + tl.program_id(0)
    total = tl.zeros((16,), tl.int32)
    for _ in range(rounds):
        total += tl.cumsum(place, 0)
        place = place + 3
    tl.store(out + tl.program_id(0) * 16 + i, total + tl.cumsum(place, 0, reverse=True))


@pytest.mark.parametrize("mode", MODES)
def test_a_running_sum_takes_what_a_loop_carries_by_a_uniform_step(mode):
    out = np.zeros((3, 16), np.int32)
    run(sums_of_carried_places, (3,), mode, out=out, rounds=4)
    first, last = np.arange(3)[:, None] * 4 + 3 * (0 + 1 + 2 + 3), np.arange(3)[:, None] + 12
    np.testing.assert_array_equal(out, first * np.arange(1, 17) + last * np.arange(16, 0, -1))


@triton.jit
def there_and_back(x, out, BITS: tl.constexpr):
    i = tl.arange(0, 256)
    values = tl.load(x + i)
    whole = values.to(tl.int8) if BITS == 8 else values.to(tl.int32) if BITS == 32 else values.to(tl.int64)
    tl.store(out + (i ^ 1), whole.to(out.dtype.element_ty))  # one by one


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", [8, 32, 64])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_an_integer_has_no_negative_zero(mode, bits, kind):
    x, out = np.linspace(-2, 2, 256).astype(kind), np.ones(256, kind)
    run(there_and_back, (1,), mode, x=x, out=out, BITS=bits)
    np.testing.assert_array_equal(out, np.trunc(x)[np.arange(256) ^ 1])
    assert not np.signbit(out[out == 0]).any()


@triton.jit
def planes_of_short_rows(x, planes, sums, stride, n):
    i, j = tl.arange(0, 4), tl.arange(0, 8)
    place = i[:, None, None] * stride + j[None, :, None] * 4 + i[None, None, :]
    tile = tl.load(x + place, mask=i[None, None, :] < n, other=0)
    tl.store(sums + tl.reshape(tl.arange(0, 32), (1, 8, 4)), tl.sum(tile, 0, keep_dims=True))
    tl.store(planes + i[:, None, None] * 32 + j[None, :, None] * 4 + i[None, None, :], tile)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [0, 3, 4, 6])
def test_a_mask_of_short_rows_holds_for_each_row_if_one_loop_goes_over_many(mode, n):
    x = np.arange(128, dtype=np.int32)
    planes, sums = np.full(128, -1, np.int32), np.full(32, -1, np.int32)
    run(planes_of_short_rows, (1,), mode, x=x, planes=planes, sums=sums, stride=32, n=n)
    expected = np.where(np.arange(4) < n, x.reshape(4, 8, 4), 0)
    assert planes.reshape(4, 8, 4).tolist() == expected.tolist()
    assert sums.reshape(8, 4).tolist() == expected.sum(0).tolist()

"""Orders that a fused loop could get wrong: aliasing, carried values, branches, views, reductions of every kind."""
# pyright: reportCallIssue=false, reportOperatorIssue=false
# kernels are written as Triton authors write them

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, both, module_of, needs_compiler, run  # noqa: E402
from silo.errors import UnsupportedError  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c, lower  # noqa: E402
from silo.kinds.triton.cpu.loop_ir import dump  # noqa: E402
from silo.kinds.triton.cpu.schedule.block_schedule import NestGroup, describe  # noqa: E402
from silo.kinds.triton.cpu.schedule.function import plan_function  # noqa: E402

pytestmark = needs_compiler
RNG = np.random.default_rng(1)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape, dtype=np.float32).astype(dtype)


@triton.jit
def shift_left(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i + 1))


@triton.jit
def add_to(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


@triton.jit
def scatter_add(x, index, BLOCK: tl.constexpr):
    place = x + tl.load(index + tl.arange(0, BLOCK))
    tl.store(place, tl.load(place) + 1)


@triton.jit
def broadcast_in_place(x, BLOCK: tl.constexpr):
    place = x + tl.arange(0, BLOCK) * 0
    tl.store(place, tl.load(place) + tl.arange(0, BLOCK))


@pytest.mark.parametrize("mode", MODES)
def test_loads_come_before_stores_of_the_same_argument(mode):
    x = normal(65)
    found = x.copy()
    run(shift_left, (1,), mode, x=found, BLOCK=64)
    np.testing.assert_array_equal(found[:64], x[1:])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shift", [-7, -1, 0, 1, 5, 64])
def test_loads_come_before_stores_through_an_overlapping_argument(mode, shift):
    memory = normal(300)
    wanted = memory[100:164] + memory[200:264]
    x, y, out = memory[100:164], memory[200:264], memory[100 + shift : 164 + shift]
    run(add_to, (1,), mode, x=x, y=y, out=out, BLOCK=64)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("mode", MODES)
def test_scattered_places_are_read_before_any_is_written(mode):
    x, index = np.zeros(8, np.float32), np.array([0, 1, 1, 2, 2, 2, 7, 7] * 2, np.int32)
    run(scatter_add, (1,), mode, x=x, index=index, BLOCK=16)
    np.testing.assert_array_equal(x, [1, 1, 1, 0, 0, 0, 0, 1])


@pytest.mark.parametrize("mode", MODES)
def test_one_place_read_by_all_and_written_by_all(mode):
    x = np.array([10.0], np.float32)
    run(broadcast_in_place, (1,), mode, x=x, BLOCK=16)
    assert 10 <= x[0] <= 25  # one element's sum, never a running one


@triton.jit
def add_row(x, row, out, M: tl.constexpr, N: tl.constexpr):
    j = tl.arange(0, N)[None, :]
    place = tl.arange(0, M)[:, None] * N + j
    tl.store(out + place, tl.load(x + place) + tl.load(row + j))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", [0, 1, 3, 8])
def test_a_row_that_all_rows_read_lies_in_what_is_written(mode, row):
    memory = normal(9, 16)
    wanted = memory[:8] + memory[row]
    run(add_row, (1,), mode, x=memory, row=memory[row], out=memory, M=8, N=16)
    np.testing.assert_array_equal(memory[:8], wanted)


@triton.jit
def two_stores(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m)
    tl.store(out + i, v, mask=m)
    tl.store(out + i + 1, v * 2, mask=m)
    w = tl.load(out + i, mask=m)
    tl.store(x + i, w, mask=m)


@pytest.mark.parametrize("mode", MODES)
def test_stores_and_loads_of_one_argument_keep_their_order(mode):
    x, out = normal(32), np.zeros(40, np.float32)
    start = x.copy()
    run(two_stores, (1,), mode, x=x, out=out, n=30, BLOCK=32)
    wanted = np.concatenate([start[:1], start[:30] * 2])
    np.testing.assert_array_equal(out[:31], wanted)
    np.testing.assert_array_equal(x[:30], wanted[:30])
    np.testing.assert_array_equal(x[30:], start[30:])


@triton.jit
def load_between_stores(x, out, seen, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i + 1, v)
    w = tl.load(out + i)
    tl.store(out + i + 2, v)
    tl.store(seen + i, w)


@pytest.mark.parametrize("mode", MODES)
def test_a_load_between_two_stores_sees_the_first_only(mode):
    x, out, seen = normal(16), normal(18), np.zeros(16, np.float32)
    wanted = np.concatenate([out[:1], x[:15]])
    run(load_between_stores, (1,), mode, x=x, out=out, seen=seen, BLOCK=16)
    np.testing.assert_array_equal(seen, wanted)


@triton.jit
def carried(x, out, n, steps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = a * 2
    c = tl.zeros([BLOCK], tl.float32)
    d = tl.sum(a, 0)
    for k in range(n, steps):
        a, b = b, a + k
        c += tl.exp(a - d) * b
        d = d * 0.5 + tl.max(c, 0)
    tl.store(out + i, a + b)
    tl.store(out + BLOCK + i, c + d)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_carried_values_swap(steps):
    reference, optimized = both(
        carried, (1,), x=normal(32) * 0.1, out=np.zeros(64, np.float32), n=0, steps=steps, BLOCK=32
    )
    np.testing.assert_allclose(reference["out"], optimized["out"], rtol=1e-4)
    a, b = reference["x"], reference["x"] * 2
    for k in range(steps):
        a, b = b, a + k
    np.testing.assert_allclose(optimized["out"][:32], a + b, rtol=1e-5, atol=1e-6)


@triton.jit
def nested(x, out, n, m, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    place = x + i
    for r in range(n):
        row = place + r * BLOCK
        part = tl.zeros([BLOCK], tl.float32)
        for _ in range(m):
            part = part * 0.5 + tl.load(row)
            row += BLOCK
        total += part / (tl.sum(part, 0) + r)
    tl.store(out + i, total)


def test_nested_loops():
    x = np.abs(normal(8, 16)) + 1
    reference, optimized = both(nested, (1,), x=x, out=np.zeros(16, np.float32), n=4, m=3, BLOCK=16)
    np.testing.assert_allclose(reference["out"], optimized["out"], rtol=1e-5, atol=1e-6)
    total = np.zeros(16)
    for r in range(4):
        part = np.zeros(16)
        for s in range(3):
            part = part * 0.5 + x[r + s]
        total += part / (part.sum() + r)
    np.testing.assert_allclose(optimized["out"], total, rtol=1e-5, atol=1e-6)


@triton.jit
def loaded_outside(x, w, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    scale = tl.load(w + i)
    root = tl.sqrt(tl.abs(scale))
    for k in range(n):
        v = tl.load(x + k * BLOCK + i)
        tl.store(out + k * BLOCK + i, v * scale)
        tl.store(out + (n + k) * BLOCK + i, v * root + scale)
        tl.store(w + i, v)


def test_what_is_loaded_before_a_loop_stays_as_it_was():
    x, w = normal(3, 16), normal(16)
    reference, optimized = both(loaded_outside, (1,), x=x, w=w, out=np.zeros((6, 16), np.float32), n=3, BLOCK=16)
    np.testing.assert_allclose(reference["out"], optimized["out"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        optimized["out"], np.concatenate([x * w, x * np.sqrt(np.abs(w)) + w]), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(optimized["w"], x[2])


@triton.jit
def branches(x, out, flag, limit, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    s = tl.sum(v, 0)
    if s > limit:
        w = v * 2
        t = s + 1
    else:
        w = tl.exp(v)
        t = s * s
    if flag:
        tl.store(out + i, w + t)
    else:
        tl.store(out + i, v)


@pytest.mark.parametrize("limit", [-1000.0, 1000.0])
@pytest.mark.parametrize("flag", [0, 5])
def test_branches(flag, limit):
    x = normal(32)
    reference, optimized = both(branches, (1,), x=x, out=np.zeros_like(x), flag=flag, limit=limit, BLOCK=32)
    np.testing.assert_allclose(reference["out"], optimized["out"], rtol=1e-5, atol=1e-6)
    s = x.sum()
    wanted = (x * 2 + s + 1 if s > limit else np.exp(x) + s * s) if flag else x
    np.testing.assert_allclose(optimized["out"], wanted, rtol=1e-4, atol=1e-5)


@triton.jit
def early(x, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + pid * BLOCK + i)
    e = tl.exp(v)
    if pid >= n:
        return
    s = tl.sum(e, 0)
    if s < 0:
        return
    tl.store(out + pid * BLOCK + i, e / s + v)


def test_early_return():
    x = normal(4, 16)
    reference, optimized = both(early, (4,), x=x, out=np.zeros_like(x), n=2, BLOCK=16)
    np.testing.assert_allclose(reference["out"], optimized["out"], rtol=1e-5, atol=1e-6)
    e = np.exp(x)
    wanted = e / e.sum(1, keepdims=True) + x
    wanted[2:] = 0
    np.testing.assert_allclose(optimized["out"], wanted, rtol=1e-5, atol=1e-6)


@triton.jit
def collatz(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    count = tl.zeros([BLOCK], tl.int32)
    rounds = 0
    while tl.max(v, 0) > 1:
        go = v > 1
        v = tl.where(go, tl.where(v % 2 == 0, v // 2, 3 * v + 1), v)
        count += go.to(tl.int32)
        rounds += 1
    tl.store(out + i, count + rounds * 0)


def test_while():
    x = np.arange(1, 17, dtype=np.int32)
    reference, optimized = both(collatz, (1,), x=x, out=np.zeros_like(x), BLOCK=16)
    np.testing.assert_array_equal(reference["out"], optimized["out"])
    np.testing.assert_array_equal(optimized["out"], [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4])


@triton.jit
def reduce_all(x, out, M: tl.constexpr, N: tl.constexpr, OP: tl.constexpr):
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    v = tl.load(x + i[:, None] * N + j[None, :])
    if OP == "sum":
        a, b, c = tl.sum(v, 0), tl.sum(v, 1), tl.sum(v)
    elif OP == "max":
        a, b, c = tl.max(v, 0), tl.max(v, 1), tl.max(v)
    elif OP == "min":
        a, b, c = tl.min(v, 0), tl.min(v, 1), tl.min(v)
    else:
        a, b, c = tl.xor_sum(v, 0), tl.xor_sum(v, 1), tl.xor_sum(tl.reshape(v, [M * N]), 0)
    tl.store(out + j, a)
    tl.store(out + N + i, b)
    tl.store(out + N + M, c)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int8, np.int64])
@pytest.mark.parametrize("name", ["sum", "max", "min", "xor"])
def test_reductions(mode, dtype, name):
    if name == "xor" and np.dtype(dtype).kind != "i":
        pytest.skip("only integers have an exclusive or")
    x = np.round(normal(8, 16) * 20).astype(dtype)
    wide = np.int32 if dtype == np.int8 else dtype
    out = np.zeros(8 + 16 + 1, wide if name not in {"max", "min"} else dtype)
    run(reduce_all, (1,), mode, x=x, out=out, M=8, N=16, OP=name)
    function = {"sum": np.sum, "max": np.max, "min": np.min, "xor": np.bitwise_xor.reduce}[name]
    source = x.astype(np.float64) if np.dtype(dtype).kind != "i" else x.astype(np.int64)
    flat = source.reshape(-1)
    wanted = np.concatenate([function(source, axis=0), function(source, axis=1), [function(flat, axis=0)]])
    tolerance = {"float16": 1e-3, "bfloat16": 1e-2}.get(np.dtype(dtype).name, 1e-6)
    np.testing.assert_allclose(out.astype(np.float64), wanted.astype(np.float64), rtol=tolerance)


@triton.jit
def nan_rules(x, out, BLOCK: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out, tl.max(v, 0))
    tl.store(out + 1, tl.min(v, 0))
    tl.store(out + 2, tl.reduce(v, 0, _maximum))
    tl.store(out + 3, tl.reduce(v, 0, _minimum))


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@pytest.mark.parametrize("mode", MODES)
def test_nan_rules_of_reductions(mode):
    out = np.zeros(4, np.float32)
    x = normal(16)
    x[3] = np.nan
    run(nan_rules, (1,), mode, x=x, out=out, BLOCK=16)
    np.testing.assert_array_equal(out, [np.nanmax(x), np.nanmin(x), np.nan, np.nan])
    run(nan_rules, (1,), mode, x=np.full(16, np.nan, np.float32), out=out, BLOCK=16)
    assert np.isnan(out).all()
    run(nan_rules, (1,), mode, x=np.full(16, -np.inf, np.float32), out=out, BLOCK=16)
    np.testing.assert_array_equal(out, [-np.inf] * 4)


@triton.jit
def three_dimensions(x, out, n, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, A)[:, None, None]
    j = tl.arange(0, B)[None, :, None]
    k = tl.arange(0, C)[None, None, :]
    v = tl.load(x + i * B * C + j * C + k, mask=(i + j + k) < n, other=-1.0)
    s = tl.sum(v, 1)
    t = tl.trans(v, 2, 0, 1)
    r = tl.reshape(t, [A * C, B])
    w = tl.reshape(r + tl.max(r, 1)[:, None], [C, A, B])
    tl.store(out + k.reshape([C, 1, 1]) * A * B + i.reshape([1, A, 1]) * B + j.reshape([1, 1, B]), w)
    a = tl.arange(0, A)[:, None]
    c = tl.arange(0, C)[None, :]
    tl.store(out + A * B * C + a * C + c, s)


@pytest.mark.parametrize("mode", MODES)
def test_three_dimensions_and_reshapes(mode):
    x = normal(2, 4, 8)
    out = np.zeros(64 + 16, np.float32)
    run(three_dimensions, (1,), mode, x=x, out=out, n=9, A=2, B=4, C=8)
    i, j, k = np.ogrid[:2, :4, :8]
    v = np.where(i + j + k < 9, x, np.float32(-1))
    r = v.transpose(2, 0, 1).reshape(16, 4)
    np.testing.assert_allclose(out[:64], (r + r.max(1, keepdims=True)).reshape(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out[64:], v.sum(1).reshape(-1), rtol=1e-5, atol=1e-6)


@triton.jit
def dots(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    k = tl.arange(0, K)
    x = tl.load(a + i * K + k[None, :])
    y = tl.load(b + k[:, None] * N + j)
    s = tl.dot(x, y, out_dtype=c.dtype.element_ty)
    u = tl.dot(x, y, s, out_dtype=c.dtype.element_ty)
    tl.store(c + i * N + j, s + u)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("dtype", "total"),
    [
        (np.float32, tl.float32),
        (np.float16, tl.float32),
        (np.float16, tl.float16),
        (ml_dtypes.bfloat16, tl.float32),
        (np.int8, tl.int32),
        (np.float64, tl.float64),
    ],
)
def test_dots_of_every_type(mode, dtype, total):
    a, b = (normal(16, 32) * 3).astype(dtype), (normal(32, 24) * 3).astype(dtype)
    b = np.concatenate([b, b[:, :8]], 1)
    numpy_total = {tl.float32: np.float32, tl.float16: np.float16, tl.int32: np.int32, tl.float64: np.float64}[total]
    c = np.zeros((16, 32), numpy_total)
    run(dots, (1,), mode, a=a, b=b, c=c, M=16, N=32, K=32)
    wanted = 3 * (a.astype(np.float64) @ b.astype(np.float64))
    limit = {"float16": 2e-2, "float64": 1e-12}.get(c.dtype.name, 1e-3)
    np.testing.assert_allclose(c.astype(np.float64), wanted, rtol=limit, atol=limit * 10)


@triton.jit
def dot_after_store(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)[:, None]
    j = tl.arange(0, N)[None, :]
    x = tl.load(a + i * N + j)
    y = tl.load(b + i * N + j)
    tl.store(b + i * N + j, x * 0.0)
    tl.store(c + i * N + j, tl.dot(x, y, input_precision="ieee"))


@triton.jit
def dot_twice(a, b, c, n, N: tl.constexpr):
    i = tl.arange(0, N)[:, None]
    j = tl.arange(0, N)[None, :]
    total = tl.zeros([N, N], tl.float32)
    before = total
    for k in range(n):
        x = tl.load(a + i * N + j + k * N * N, mask=(i < N) & (k + j < N + 1), other=0.0)
        y = tl.load(b + (i % (N - 1)) * N + j % N)
        before = total * 2
        total = tl.dot(x, y, total)
        total = tl.dot(y, x, total)
    tl.store(c + i * N + j, total + before)


@pytest.mark.parametrize("mode", MODES)
def test_a_dot_sees_its_operands_as_they_were_loaded(mode):
    a, b, c = normal(32, 32), normal(32, 32), np.zeros((32, 32), np.float32)
    wanted = a @ b
    run(dot_after_store, (1,), mode, a=a, b=b, c=c, N=32)
    np.testing.assert_allclose(c, wanted, rtol=1e-4, atol=1e-4)
    assert not b.any()


@pytest.mark.parametrize("n", [1, 3])
def test_dots_in_a_chain_and_a_carried_total_that_is_also_read(n):
    a, b = normal(4, 16, 16), normal(16, 16)
    reference, optimized = both(dot_twice, (1,), a=a, b=b, c=np.zeros((16, 16), np.float32), n=n, N=16)
    np.testing.assert_allclose(reference["c"], optimized["c"], rtol=1e-3, atol=1e-4)


@triton.jit
def wrapping(x, out, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * 2147483647 + tl.arange(0, BLOCK)
    h = (i * 1103515245 + seed) ^ (i >> 3)
    tl.store(out + tl.arange(0, BLOCK), h, mask=h < n)


@pytest.mark.parametrize("program", [1, 2])
def test_integers_wrap_also_in_masks(program):
    out = np.zeros(64, np.int32)
    reference, optimized = both(wrapping, (3,), x=out, out=out, n=100, seed=2147483000, BLOCK=64)
    np.testing.assert_array_equal(reference["out"], optimized["out"])
    assert program


@triton.jit
def row_scale(x, w, out, rows, cols, sx, M: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.arange(0, N)
    m = (i[:, None] < rows) & (j[None, :] < cols)
    v = tl.load(x + i[:, None] * sx + j[None, :], mask=m, other=0.0)
    scale = tl.exp(tl.load(w + j % cols, mask=j >= 2, other=1.0))
    norm = tl.sqrt(tl.sum(v * v, 1) + 1.0)
    tl.store(out + i[:, None] * cols + j[None, :], v * scale[None, :] / norm[:, None], mask=m)


def test_two_dimensional_masks_and_broadcasts():
    x, w = normal(37, 50), normal(41)
    reference, optimized = both(
        row_scale, (3,), x=x, w=w, out=np.zeros((37, 41), np.float32), rows=37, cols=41, sx=50, M=16, N=64
    )
    np.testing.assert_allclose(reference["out"], optimized["out"], rtol=1e-5, atol=1e-6)
    v = x[:, :41].astype(np.float64)
    scale = np.exp(np.where(np.arange(41) >= 2, w, 1.0))
    np.testing.assert_allclose(
        optimized["out"], v * scale / np.sqrt((v * v).sum(1, keepdims=True) + 1), rtol=1e-4, atol=1e-6
    )


@triton.jit
def masked_rows(x, row, out, n, m, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    place = i[:, None] * N + j[None, :]
    bias = tl.load(row + i, mask=i < n, other=5.0)
    uniform = tl.load(row + tl.zeros_like(j), mask=j < m, other=7.0)
    v = tl.load(x + place, mask=(j < m)[None, :], other=0.0)
    tl.store(out + place, v + bias[:, None] + uniform[None, :])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n", "m"), [(8, 16), (5, 16), (8, 9), (3, 0), (0, 4)])
def test_masked_loads_that_leave_the_inner_loop_keep_their_mask(mode, n, m):
    x, row, out = normal(8, 16), normal(8), np.zeros((8, 16), np.float32)
    run(masked_rows, (1,), mode, x=x, row=row, out=out, n=n, m=m, M=8, N=16)
    i, j = np.arange(8)[:, None], np.arange(16)[None, :]
    wanted = np.where(j < m, x, 0) + np.where(i < n, row[:, None], 5) + np.where(j < m, row[0], 7)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)


@triton.jit
def unsupported(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [tl.load(x + i)], tl.float32, is_pure=True, pack=1)
    tl.atomic_add(out + i, v, sem="release")
    v = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [v], tl.float32, is_pure=True, pack=1)
    tl.store(out + i, v)


def test_every_unsupported_operation_is_listed():
    with pytest.raises(UnsupportedError) as caught:
        emit_c(module_of(unsupported, {"x": normal(16), "out": normal(16), "BLOCK": 16}))
    assert "tt.elementwise_inline_asm x2" in str(caught.value)


def test_softmax_like_kernels_are_a_few_nests():
    module = module_of(add_to, {"x": normal(64), "y": normal(64), "out": normal(64), "BLOCK": 64})
    (plan,) = plan_function(module.entry, CpuOptions())
    nests = [step for step in plan.steps if isinstance(step, NestGroup)]
    assert len(nests) == 1
    assert len(nests[0].checks) == 2  # both loads against the store
    assert "store" in describe(plan)
    program, _ = lower(module, CpuOptions())
    assert "simd" in dump(program)


def test_the_text_is_the_same_every_time():
    arguments = {"x": normal(64), "y": normal(64), "out": normal(64), "BLOCK": 64}
    assert emit_c(module_of(add_to, arguments)) == emit_c(module_of(add_to, arguments))

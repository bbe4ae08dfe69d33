# ruff: noqa: E402  # Triton may be absent, which comes first
"""Forms of the language that kernels of libraries use and few others do."""
# pyright: reportOperatorIssue=false

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
import silo
from cpu_samples import module_of, run
from silo.kinds.triton.front.mlir_text import parse_signature

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
modes = pytest.mark.parametrize("mode", cpu_samples.MODES)


# ---- pointers to what is constant


@triton.jit
def adds_first(x: tl.const, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.load(x))


@modes
def test_a_pointer_to_const(mode):
    x, out = np.arange(1, 17, dtype=np.float32), np.zeros(16, np.float32)
    run(adds_first, (1,), mode, x=x, out=out, BLOCK=16)
    np.testing.assert_array_equal(out, x + 1)


def test_address_spaces_are_numbers_or_words():
    plain = parse_signature("(!tt.ptr<f32>) -> tensor<4x!tt.ptr<f32>>")
    assert plain is not None
    assert parse_signature('(!tt.ptr<f32, "constant">) -> tensor<4x!tt.ptr<f32, "constant">>') == plain
    assert parse_signature("(!tt.ptr<f32, 1>) -> tensor<4x!tt.ptr<f32, 1>>") == plain
    assert parse_signature("(!tt.ptr<f32, what>) -> i32") is None


# ---- several returns


@triton.jit
def price(kind):
    if kind == 0:
        return 10
    if kind == 1:
        return 20
    if kind == 2:
        return 30
    return 40


@triton.jit(noinline=True)
def price_apart(kind):
    if kind == 0:
        return 10
    if kind == 1:
        return 20
    return 40


@triton.jit
def prices(x, out, apart):
    pid = tl.program_id(0)
    kind = tl.load(x + pid)
    tl.store(out + pid, price(kind))
    tl.store(apart + pid, price_apart(kind))


def test_a_chain_of_returns():
    x = np.arange(5, dtype=np.int32)
    for found in cpu_samples.both(prices, (5,), x=x, out=x * 0, apart=x * 0):
        assert found["out"].tolist() == [10, 20, 30, 40, 40]
        assert found["apart"].tolist() == [10, 20, 40, 40, 40]
    out, apart = x * 0, x * 0
    silo.check(prices)[(5,)](x, out, apart)
    assert out.tolist() == [10, 20, 30, 40, 40]


@triton.jit
def row_of(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    if n == 0:
        return v
    if n == 1:
        return v + 1
    return v - 1


@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, row_of(x, n, BLOCK) * row_of(x, n + 1, BLOCK))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_chain_of_returns_of_tiles(n):
    x = np.arange(32, dtype=np.float32)
    first, second = (x + {0: 0, 1: 1}.get(kind, -1) for kind in (n, n + 1))
    for found in cpu_samples.both(rows, (1,), x=x, out=x * 0, n=n, BLOCK=32):
        np.testing.assert_array_equal(found["out"], first * second)


# ---- values that are none


@triton.jit
def forgets(out, places, n):
    for i in range(n):
        tl.store(out + i, i)
    tl.store(out + n, i)
    for j in range(n):
        tl.store(out + j, j + 1)
    tl.store(places + tl.arange(0, 4), tl.arange(0, 4) + j)


def test_the_variable_of_a_loop_after_it():
    """Triton says that it has no value; a kernel that stores it must compile."""
    arguments = {"out": np.full(4, -1, np.int32), "places": np.zeros(4, np.int32)}
    assert "ub.poison" in {operation.name for operation in module_of(forgets, {**arguments, "n": 3}).walk()}
    for found in cpu_samples.both(forgets, (1,), n=3, **arguments):
        assert found["out"][:3].tolist() == [1, 2, 3]
        assert (np.diff(found["places"]) == 1).all()
    silo.check(forgets)[(1,)](*arguments.values(), 3)
    assert arguments["out"][:3].tolist() == [1, 2, 3]


# ---- pointers that are chosen


@triton.jit(noinline=True)
def chosen(x, y, which):
    if which > 0:
        return x, 1.5
    return y, 2.5


@triton.jit
def follows(x, y, out, n, turn, BLOCK: tl.constexpr):
    """Pointers out of functions, branches and loops, of tiles and alone."""
    i = tl.arange(0, BLOCK)
    first, factor = chosen(x, y, turn)
    place = y + i if turn > 1 else x + i
    count = 0
    total = tl.load(first + i) * factor
    while (count < n) & (tl.sum(total) < 1000.0):
        count += 1
        total += tl.load(place)
        place += 0 if count < 3 else 1
    last = y if count % 2 == 0 else x
    for step in range(2):
        if step == turn:
            last += 1
    tl.store(tl.where(total > 0, out + i, out + BLOCK + i), total)
    tl.store(out + 2 * BLOCK, tl.load(last))


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_pointers_go_through_functions_branches_and_loops(turn):
    x, y = np.random.default_rng(turn).standard_normal((2, 40)).astype(np.float32)
    wanted = np.zeros(65, np.float32)
    total = (x[:32] * 1.5 if turn > 0 else y[:32] * 2.5).astype(np.float64)
    source, at = (y if turn > 1 else x), 0
    for count in range(1, 6):
        total = total + source[at : at + 32]
        at += count >= 3
    wanted[:32], wanted[32:64] = np.where(total > 0, total, 0), np.where(total > 0, 0, total)
    wanted[64] = x[1 if turn < 2 else 0]
    for found in cpu_samples.both(follows, (1,), x=x, y=y, out=wanted * 0, n=5, turn=turn, BLOCK=32):
        np.testing.assert_allclose(found["out"], wanted, rtol=1e-4, atol=1e-5)

"""Loops over f16 that are cut into blocks: which are, and that they compute the same."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import both, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, LoopProgram  # noqa: E402
from silo.kinds.triton.cpu.lower.half_precision import convert_in_blocks  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def scale(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a, b = tl.load(x + i, mask=mask).to(tl.float32), tl.load(y + i, mask=mask).to(tl.float32)
    tl.store(out + i, (a * b + 0.25).to(tl.float16), mask=mask)


@triton.jit
def copy(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(tl.float32))


@triton.jit
def narrow(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(tl.float16))


@triton.jit
def row_sums(x, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(out + row, tl.sum(v, axis=0) + tl.max(v, axis=0))


def source(kernel, bits, **arguments):
    return emit_c(module_of(kernel, arguments), CpuOptions(vector_bits=bits)).source


@pytest.mark.parametrize("n", [1, 7, 255, 256, 257, 1000, 1024])
def test_blocks_and_what_is_left_of_them(n):
    x, y = np.random.default_rng(n).normal(size=(2, 1024)).astype(np.float16)
    out = np.full(1024, 9, np.float16)
    for result in both(scale, (1,), x=x, y=y, out=out, n=n, BLOCK=1024):
        wide = x.astype(np.float32) * y.astype(np.float32) + np.float32(0.25)
        np.testing.assert_allclose(result["out"][:n].astype(np.float32), wide[:n], rtol=1e-3, atol=1e-6)
        assert (result["out"][n:] == 9).all()


def test_results_may_take_the_place_of_an_operand():
    x, y = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float16)
    expected = (x.astype(np.float64) * y + 0.25).astype(np.float16)
    run(scale, (1,), "optimized", x=x, y=y, out=x, n=1000, BLOCK=1024)
    np.testing.assert_allclose(x.astype(np.float32), expected.astype(np.float32), rtol=2e-3, atol=1e-3)


def test_every_f16_in_blocks():
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = np.zeros(1 << 16, np.float32)
    run(copy, (1,), "optimized", x=bits.view(np.float16), out=wide, BLOCK=1 << 16)
    np.testing.assert_array_equal(wide, bits.view(np.float16).astype(np.float32))
    back = np.zeros(1 << 16, np.float16)
    near = np.nextafter(np.nan_to_num(wide, posinf=7e4, neginf=-7e4), np.float32(np.inf))
    run(narrow, (1,), "optimized", x=near, out=back, BLOCK=1 << 16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(back.view(np.uint16), near.astype(np.float16).view(np.uint16))


def test_reductions_go_on_from_block_to_block():
    x = np.random.default_rng(3).normal(size=(4, 700)).astype(np.float16)
    for result in both(row_sums, (4,), x=x, out=np.zeros(4, np.float32), n=700, BLOCK=1024):
        wide = x.astype(np.float64)
        np.testing.assert_allclose(result["out"], wide.sum(1) + wide.max(1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 40, 64, 200, 700])
def test_reductions_convert_a_vector_at_a_time(n):
    """Small integers, whose sums are exact, and NaN, infinities and subnormal numbers in rows of their own."""
    x = np.random.default_rng(n).integers(-9, 9, size=(6, n)).astype(np.float16)
    x[2, n // 2], x[3, 0], x[4, -1], x[5] = np.nan, np.inf, -np.inf, 2.0**-24
    block = triton.next_power_of_2(n + 1)
    for result in both(row_sums, (6,), x=x, out=np.zeros(6, np.float32), n=n, BLOCK=block):
        wide = x.astype(np.float32)
        most = np.nanmax(np.append(wide, np.zeros((6, 1), np.float32), 1), 1)  # the masked elements are 0
        np.testing.assert_array_equal(result["out"], wide.sum(1) + most)


def test_which_reductions_convert_a_vector_at_a_time():
    arguments = {"x": np.zeros(64, np.float16), "out": np.zeros(64, np.float32), "n": 60, "BLOCK": 64}
    vectors, blocks = source(row_sums, 512, **arguments), source(row_sums, 256, **arguments)
    assert "silo_widen_lanes_f16((void *)" in vectors
    assert "silo_widen_some_f16((void *)" in vectors
    assert "silo_widen_row_f16(wide" not in vectors
    assert "silo_widen_row_f16(wide" in blocks
    assert "silo_widen_lanes_f16((void *)" not in blocks


def test_levels_without_instructions_for_f16_convert_in_place():
    arguments = {"x": np.zeros(64, np.float16), "out": np.zeros(64, np.float32), "BLOCK": 64}
    assert "silo_widen_row_f16(wide" in source(copy, 256, **arguments)
    assert "silo_widen_row_f16" not in source(copy, 128, **arguments)
    arguments["x"] = np.zeros(64, np.float32)
    assert "silo_widen_row_f16(wide" not in source(copy, 256, **arguments)


@pytest.mark.parametrize(
    "body",
    [
        [Define("uint16_t", "t1", "p[i * 2]"), Assign("q[i]", "silo_f16_to_f32(t1)")],
        [Define("uint16_t", "t1", "p[i]"), Assign("q[i]", "silo_f16_to_f32(t1) + (float)t1")],
        [Define("uint16_t", "t1", "silo_f32_to_f16(x) | 1"), Assign("p[i]", "t1")],
        [Define("uint16_t", "t1", "silo_f32_to_f16(x)"), Assign("p[i]", "t1", "m")],
        [Define("uint16_t", "t1", "silo_f32_to_f16(x)"), Assign("p[k]", "t1")],
        [For("j", "0", "4", [])],
    ],
)
def test_what_is_not_plainly_converted_in_order_stays_as_it_is(body):
    program = LoopProgram("k", [], [], [], [For("i", "0", "n", body, simd=True)])
    assert not convert_in_blocks(program, 0)
    assert program.body == [For("i", "0", "n", body, simd=True)]

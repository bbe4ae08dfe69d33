"""Panels of right operands that the next program's same round uses again: never those of another tile."""
# kernels are written as Triton authors write them

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import module_of, needs_compiler, run  # noqa: E402
from silo.core.device import Target  # noqa: E402
from silo.drivers.cpu.levels import gather_facts, highest_level  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8]


@triton.jit
def rounds(
    a, b, out, order, heads, length, row, column,
    TURNS: tl.constexpr, WRITES: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The maxima over tiles of b of the products with the program's tile of a, folded so that no round is left out.

    Tiles are columns of b; which ones a round reads is in ``order``. Programs of a head read the same head of b.
    """
    block, head = tl.program_id(0), tl.program_id(1)
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + (head * tl.num_programs(0) + block) * M * K + m[:, None] * K + k[None, :])
    total = tl.zeros([M], dtype=tl.float32)
    for turn in range(TURNS):
        start = tl.load(order + block * TURNS + turn) * N
        place = b + head * length * K + k[:, None] * row + (start + n)[None, :] * column
        right = tl.load(place, mask=(start + n)[None, :] < length, other=0)
        scores = tl.dot(left, right).to(tl.float32)
        total = total * 0.5 + tl.max(scores, axis=1)
        if WRITES:
            tl.store(place, right, mask=(start + n)[None, :] < length)
    tl.store(out + (head * tl.num_programs(0) + block) * M + m, total)


def expected(a, b, order, blocks, heads, length, M, N):
    wide = [one.astype(np.float64) for one in (a, b)]
    out = np.zeros((heads, blocks, M))
    padded = np.zeros((heads, b.shape[1], -(-length // N) * N))
    padded[:, :, :length] = wide[1]
    for head in range(heads):
        for block in range(blocks):
            for tile in order[block]:
                scores = wide[0][head, block] @ padded[head, :, tile * N : (tile + 1) * N]
                out[head, block] = out[head, block] * 0.5 + scores.max(axis=1)
    return out


def check(
    dtype,
    *,
    length,
    blocks,
    heads,
    order,
    M=16,
    N=16,
    K=32,
    contiguous="k",
    writes=False,
    threads=1,
    level=None,
    units=2,
):
    """Run the kernel and compare; ``contiguous``: the axis along which b lies in order."""
    rng = np.random.default_rng(length)
    a = rng.integers(-4, 5, size=(heads, blocks, M, K)).astype(dtype)
    b = rng.integers(-4, 5, size=(heads, K, length)).astype(dtype)
    memory = np.ascontiguousarray(b.transpose(0, 2, 1) if contiguous == "k" else b)
    row, column = (1, K) if contiguous == "k" else (length, 1)
    out = np.zeros((heads, blocks, M), np.float32)
    arrays = {"a": a, "b": memory, "out": out, "order": order.astype(np.int32)}
    numbers = {"heads": heads, "length": length, "row": row, "column": column}
    shapes = {"TURNS": order.shape[1], "WRITES": writes, "M": M, "N": N, "K": K}
    options = {"cpu_threads": threads, "cpu_dot_units": units}
    run(rounds, (blocks, heads), "optimized", options=options, target=level, **arrays, **numbers, **shapes)
    np.testing.assert_allclose(out, expected(a, b, order, blocks, heads, length, M, N), rtol=1e-5)


def same(blocks, turns):
    return np.tile(np.arange(turns), (blocks, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("contiguous", ["k", "n"])
def test_programs_of_a_head_read_the_same_tiles_and_those_of_the_next_others(dtype, contiguous):
    check(dtype, length=64, blocks=5, heads=3, order=same(5, 4), contiguous=contiguous)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("contiguous", ["k", "n"])
def test_the_last_tile_is_cut_off_and_lies_in_a_buffer(dtype, contiguous):
    check(dtype, length=57, blocks=4, heads=3, order=same(4, 4), contiguous=contiguous)
    turned = same(4, 4)[:, ::-1].copy()
    check(dtype, length=57, blocks=4, heads=3, order=turned, contiguous=contiguous)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8])
def test_tiles_that_come_in_another_order_each_time(dtype):
    order = np.stack([np.random.default_rng(seed).permutation(6) for seed in range(40)])
    check(dtype, length=6 * 16, blocks=40, heads=2, order=order)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_more_rounds_than_there_are_slots(dtype):
    check(dtype, length=150 * 16 - 3, blocks=3, heads=2, order=same(3, 150))


HIGHEST = highest_level(gather_facts()) or ""
LEVELS = [level for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4") if HIGHEST.startswith("x86") and level <= HIGHEST]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("units", [0, 1])
def test_the_panels_of_every_level_and_unit(dtype, level, units):
    order = np.concatenate([same(3, 4), same(3, 4)[:, ::-1]])
    check(dtype, length=57, blocks=6, heads=2, order=order, level=Target.parse(f"cpu:{level}"), units=units)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_that_writes_its_operand_keeps_nothing(threads):
    check(np.float16, length=64, blocks=3, heads=4, order=same(3, 4), writes=True, threads=threads)
    assert "silo_next_slot" not in text(np.float16, writes=True)


def text(dtype, *, writes=False, K=32):
    arrays = {"a": np.zeros(1, dtype), "b": np.zeros(1, dtype), "out": np.zeros(1, np.float32)}
    numbers = {"order": np.zeros(1, np.int32), "heads": 3, "length": 57, "row": 33, "column": 77}
    shapes = {"TURNS": 4, "WRITES": writes, "M": 16, "N": 16, "K": K}
    module = module_of(rounds, {**arrays, **numbers, **shapes})
    return emit_c(module, CpuOptions(vector_bits=512)).source.partition("silo_next_slot(silo_slots")[2]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_loop_has_slots(dtype):
    assert "silo_next_slot" in text(dtype)

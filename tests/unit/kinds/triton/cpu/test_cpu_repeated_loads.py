"""An element that is read for a whole run of others, at ``i // d``, is what it was when the program read it."""

import re

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler
BLOCK, TIMES = 512, 3


@triton.jit
def in_a_loop(rows, out, times, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i // D)
    for k in range(times):
        tl.store(out + k * BLOCK + i, row + k)
        tl.store(rows + i, i + 100 * k + 100)


@triton.jit
def in_an_open_loop(rows, out, times, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i // D)
    k = 0
    while k < times:
        tl.store(out + k * BLOCK + i, row + k)
        tl.store(rows + i, i + 100 * k + 100)
        k += 1


@triton.jit
def after_a_loop(rows, out, times, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i // D)
    for k in range(times):
        tl.store(rows + i, i + k)
    for k in range(3):
        tl.store(out + k * BLOCK + i, row + k)


@triton.jit
def by_a_sum(rows, out, times, D: tl.constexpr, BLOCK: tl.constexpr):
    """A value that is made of it is used by two steps, with a store between them."""
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i // D) * 2 + 1
    for k in range(times):
        total = tl.sum(row, axis=0)
        tl.store(rows + i, i + total)
        tl.store(out + k * BLOCK + i, row)


@triton.jit
def in_a_branch(rows, out, times, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i // D)
    if times > 2:
        tl.store(rows + i, i + 100)
        tl.store(out + i, row)
    tl.store(out + BLOCK + i, row + 1)
    tl.store(out + 2 * BLOCK + i, row + 2)


@triton.jit(noinline=True)
def overwrite(rows, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(rows + i, i + 7)


@triton.jit
def round_a_call(rows, out, times, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i // D)
    tl.store(out + i, row)
    overwrite(rows, BLOCK)
    tl.store(out + BLOCK + i, row + 1)
    tl.atomic_add(rows + i, times)
    tl.store(out + 2 * BLOCK + i, row + 2)


@triton.jit
def each_time(rows, out, times, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for k in range(times):
        row = tl.load(rows + i // D)
        tl.store(rows + i, row + i + k)
        tl.store(out + k * BLOCK + i, row + tl.max(row, axis=0))


i = np.arange(BLOCK)


def first_row(rows, d):
    """What all kernels but one read once: ``out`` is that, and the number of the third."""
    return np.concatenate([rows[i // d] + k for k in range(TIMES)])


def each_row(rows, d):
    found = []
    for k in range(TIMES):
        row = rows[i // d].copy()
        rows[:] = row + i + k
        found.append(row + row.max())
    return np.concatenate(found)


EXPECTED = {
    in_a_loop: (first_row, lambda rows, d: i + 100 * TIMES),
    in_an_open_loop: (first_row, lambda rows, d: i + 100 * TIMES),
    after_a_loop: (first_row, lambda rows, d: i + TIMES - 1),
    by_a_sum: (
        lambda rows, d: np.tile(rows[i // d] * 2 + 1, TIMES),
        lambda rows, d: i + (rows[i // d] * 2 + 1).sum(),
    ),
    in_a_branch: (first_row, lambda rows, d: i + 100),
    round_a_call: (first_row, lambda rows, d: i + 7 + TIMES),
    each_time: (each_row, None),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("d", [16, 100, 128])
@pytest.mark.parametrize("kernel", EXPECTED, ids=lambda kernel: kernel.fn.__name__)
def test_what_was_read_stays_whatever_is_written_after_it(mode, d, kernel):
    rows = np.random.default_rng(d).integers(0, 50, BLOCK).astype(np.int32)
    before, out = rows.copy(), np.zeros(TIMES * BLOCK, np.int32)
    run(kernel, (1,), mode, rows=rows, out=out, times=TIMES, D=d, BLOCK=BLOCK)
    expected, left = EXPECTED[kernel]
    if left is not None:
        np.testing.assert_array_equal(rows, left(before, d))
    np.testing.assert_array_equal(out, expected(before, d))
    if left is None:
        np.testing.assert_array_equal(rows, before)


@triton.jit
def row_over_itself(x, out, shift, times, n, BLOCK: tl.constexpr):
    """A row that is needed again after stores which may reach it."""
    i = tl.arange(0, BLOCK)
    row = tl.load(x + i, mask=i < n, other=3)
    low = row - tl.max(row, axis=0)
    tl.store(x + shift + i, low * 2, mask=i < n)
    total = tl.sum(low, axis=0)
    for k in range(times):
        tl.store(x + shift + 1 + i, row + k, mask=i < n)
    tl.store(out + i, row + total, mask=i < n)
    tl.store(out + BLOCK + i, low - total)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [64, 50, 1])
@pytest.mark.parametrize("shift", [0, 1, 20, 64])
@pytest.mark.parametrize("times", [0, 2])
def test_a_row_is_what_it_was_when_it_was_read(mode, n, shift, times):
    x, out = np.random.default_rng(n).integers(-50, 50, 200).astype(np.int32), np.zeros(128, np.int32)
    row = np.where(np.arange(64) < n, x[:64], 3)
    run(row_over_itself, (1,), mode, x=x, out=out, shift=shift, times=times, n=n, BLOCK=64)
    low = row - row.max()
    np.testing.assert_array_equal(out[:n], (row + low.sum())[:n])
    np.testing.assert_array_equal(out[64:], low - low.sum())


@triton.jit
def normalized(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(x + i, mask=i < n, other=0.0)
    low = tl.where(i < n, row - tl.sum(row, axis=0) / n, 0.0)
    tl.store(out + i, low / tl.sum(low * low, axis=0), mask=i < n)


def test_a_row_is_read_again_and_not_copied():
    x = np.ones(256, np.float32)
    text = emit_c(module_of(normalized, {"x": x, "out": x, "n": 200, "BLOCK": 256}), CpuOptions()).source
    body = text.split("int32_t silo_")[-1].split("else {")[0]
    stored = [line for line in body.splitlines() if re.match(r" *b\d+\[i\d+\] =", line)]
    assert stored == []

"""Where masks leave nothing to store the loop ends; where numbers wrap on the way it does not."""

from __future__ import annotations

import re

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, both, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler
RNG = np.random.default_rng(11)
BLOCK = 64


@triton.jit
def copied(x, out, start, n, LAST: tl.constexpr, BLOCK: tl.constexpr):
    """``start + i`` wraps as Triton's 32-bit numbers do."""
    i = tl.arange(0, BLOCK)
    place = start + i
    inside = place <= n if LAST else place < n
    tl.store(out + i, tl.load(x + i, mask=inside, other=7.0) + 1, mask=inside)


@triton.jit
def tile(x, out, first, start, rows, columns, stride, BOTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    inside = (first + r < rows) & (start + c < columns)
    value = tl.load(x + r * stride + c, mask=inside, other=3.0)
    tl.store(out + r * stride + c, value * 2, mask=inside if BOTH else (start + c < columns))


@triton.jit
def two_stores(x, a, b, start, n, m, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=start + i < n, other=-1.0)
    tl.store(a + i, value, mask=start + i < n)
    tl.store(b + i, value, mask=start + i < m)


@triton.jit
def programs(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 3, mask=i < n)


def wrapped(start, count):
    return (np.arange(count, dtype=np.int64) + start).astype(np.int32)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


STARTS = [-(2**31), -(2**31) + 3, -70, -5, 0, 16, 100, 2**31 - 65, 2**31 - 64, 2**31 - 63, 2**31 - 16, 2**31 - 5]
BOUNDS = [-(2**31), -(2**31) + 20, -40, 0, 17, 64, 130, 2**31 - 30, 2**31 - 1]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("start", STARTS)
def test_numbers_that_wrap_are_compared_as_they_are(start, last):
    x, out = normal(BLOCK), normal(BLOCK)
    for n in BOUNDS:
        place = wrapped(start, BLOCK)
        inside = place <= n if last else place < n
        for made in both(copied, (1,), x=x, out=out, start=start, n=n, LAST=last, BLOCK=BLOCK):
            np.testing.assert_array_equal(made["out"], np.where(inside, x + 1, out), err_msg=f"{start} {n}")


@pytest.mark.parametrize("both_masks", [True, False])
@pytest.mark.parametrize("rows", [-3, 0, 5, 8, 2**31 - 1])
def test_rows_and_columns(rows, both_masks):
    x, out = normal(8, 32), normal(8, 32)
    given = {"x": x, "out": out, "stride": 32, "BOTH": both_masks, "ROWS": 8, "COLUMNS": 32}
    for first in (0, 2, 2**31 - 6):
        for start in (0, 3, 2**31 - 20):
            for columns in (0, 7, 31, 32, 50, 2**31 - 10):
                row = wrapped(first, 8)[:, None] < rows
                column = wrapped(start, 32)[None, :] < columns
                value = np.where(row & column, x, np.float32(3)) * 2
                wanted = np.where((row & column) if both_masks else np.broadcast_to(column, (8, 32)), value, out)
                for made in both(tile, (1,), first=first, start=start, rows=rows, columns=columns, **given):
                    np.testing.assert_array_equal(made["out"], wanted, err_msg=f"{first} {start} {columns}")


@pytest.mark.parametrize("start", [0, 9, 2**31 - 20])
def test_a_store_that_goes_on_behind_the_other(start):
    x, a, b = normal(BLOCK), normal(BLOCK), normal(BLOCK)
    for n, m in [(0, 64), (64, 0), (20, 40), (40, 20), (33, 33), (100, 2**31 - 7), (2**31 - 7, 30)]:
        place = wrapped(start, BLOCK)
        value = np.where(place < n, x, np.float32(-1))
        for made in both(two_stores, (1,), x=x, a=a, b=b, start=start, n=n, m=m, BLOCK=BLOCK):
            np.testing.assert_array_equal(made["a"], np.where(place < n, value, a))
            np.testing.assert_array_equal(made["b"], np.where(place < m, value, b))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 150, 256])
def test_several_programs(n):
    x, out = normal(4 * BLOCK), normal(4 * BLOCK)
    for made in both(programs, (4,), x=x, out=out, n=n, BLOCK=BLOCK):
        np.testing.assert_array_equal(made["out"], np.where(np.arange(4 * BLOCK) < n, x * 3, out))


@triton.jit
def under_a_read_bound(x, out, bound, start, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    n = tl.load(bound + i * 0)
    tl.store(out + i, tl.load(x + i, mask=start + i < 40, other=7.0) + 1, mask=start + i < n.to(tl.int32))


@pytest.mark.parametrize("start", [0, 30, 2**31 - 20, -(2**31)])
@pytest.mark.parametrize("shift", [1, 5, -3])
def test_stores_over_what_was_read_are_put_off_and_end_at_their_mask(start, shift):
    """Arrays that overlap without being the same: every element is read before the first is written."""
    memory = normal(BLOCK + 16)
    place, first = wrapped(start, BLOCK), 8 + shift
    for n in BOUNDS:
        wanted = memory.copy()
        wanted[first : first + BLOCK] = np.where(place < n, memory[8 : 8 + BLOCK] + 1, memory[first : first + BLOCK])
        for mode in MODES:
            made = memory.copy()
            run(copied, (1,), mode, x=made[8:], out=made[first:], start=start, n=n, LAST=False, BLOCK=BLOCK)
            np.testing.assert_array_equal(made, wanted, err_msg=f"{mode} {n}")


@pytest.mark.parametrize("start", [0, 30, 2**31 - 20])
def test_a_bound_that_is_read_from_memory_that_is_written(start):
    memory = np.full(BLOCK + 16, 50, np.float32)
    place = wrapped(start, BLOCK)
    value = np.where(place < 40, memory[8 : 8 + BLOCK], np.float32(7)) + 1
    wanted = memory.copy()
    wanted[9 : 9 + BLOCK] = np.where(place < 50, value, memory[9 : 9 + BLOCK])
    for mode in MODES:
        made = memory.copy()
        run(under_a_read_bound, (1,), mode, x=made[8:], out=made[9:], bound=made[9:], start=start, BLOCK=BLOCK)
        np.testing.assert_array_equal(made, wanted, err_msg=mode)


def test_a_store_alone_ends_at_its_mask_and_no_other_loop_does():
    x = normal(BLOCK)

    def ends(kernel, **more):
        text = emit_c(module_of(kernel, more), CpuOptions()).source.split("int32_t silo_")[-1]
        return len(re.findall(r"if \(!\(nest_fits", text))

    assert ends(programs, x=x, out=x, n=65, BLOCK=BLOCK)
    assert ends(copied, x=x, out=x, start=3, n=65, LAST=True, BLOCK=BLOCK)
    given = {"x": x, "out": x, "first": 2, "start": 3, "rows": 7, "columns": 31, "stride": 32, "ROWS": 8, "COLUMNS": 32}
    # Where the row is not loaded the value is another one: only a copy that is stored apart ends there.
    assert ends(tile, BOTH=True, **given) > ends(tile, BOTH=False, **given)

"""Loops that reduce tiles: rows are read whole, tiles are summed in their loop, columns in order of memory."""
# pyright: reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, both, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def row_sums(x, o, R, C, down, along, BR: tl.constexpr, BC: tl.constexpr):
    i = tl.program_id(0) * BR + tl.arange(0, BR)
    total = tl.zeros((BR,), tl.float32)
    for k in range(0, C, BC):
        j = k + tl.arange(0, BC)
        inside = (i[:, None] < R) & (j[None, :] < C)
        total += tl.sum(tl.load(x + i[:, None] * down + j[None, :] * along, mask=inside, other=0.0), 1)
    tl.store(o + i, total, mask=i < R)


@triton.jit
def row_sums_of_totals(x, o, R, C, down, along, BR: tl.constexpr, BC: tl.constexpr):
    i = tl.program_id(0) * BR + tl.arange(0, BR)
    total = tl.zeros((BR, BC), tl.float32)
    for k in range(0, C, BC):
        j = k + tl.arange(0, BC)
        inside = (i[:, None] < R) & (j[None, :] < C)
        total += tl.load(x + i[:, None] * down + j[None, :] * along, mask=inside, other=0.0)
    tl.store(o + i, tl.sum(total, 1), mask=i < R)


@triton.jit
def row_sums_by_pointers(x, o, R, C, down, along, BR: tl.constexpr, BC: tl.constexpr):
    i, j = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BC)
    at = x + i[:, None] * down + j[None, :] * along
    total = tl.zeros((BR,), tl.float32)
    for k in range(0, C, BC):
        total += tl.sum(tl.load(at, mask=(i[:, None] < R) & ((k + j)[None, :] < C), other=0.0), 1)
        at += BC * along
    tl.store(o + i, total, mask=i < R)


@triton.jit
def row_maxima(x, o, R, C, BR: tl.constexpr, BC: tl.constexpr):
    i = tl.program_id(0) * BR + tl.arange(0, BR)
    most = tl.full((BR, BC), -float("inf"), tl.float32)
    for k in range(0, C, BC):
        j = k + tl.arange(0, BC)
        inside = (i[:, None] < R) & (j[None, :] < C)
        most = tl.maximum(most, tl.load(x + i[:, None] * C + j[None, :], mask=inside, other=-float("inf")))
    tl.store(o + i, tl.max(most, 1), mask=i < R)


@triton.jit
def rows_that_wait(x, o, R, C, BR: tl.constexpr, BC: tl.constexpr):
    """Each iteration takes the sum of all rows of the one before."""
    i = tl.arange(0, BR)
    total = tl.zeros((BR,), tl.float32)
    for k in range(0, C, BC):
        j = k + tl.arange(0, BC)
        inside = (i[:, None] < R) & (j[None, :] < C)
        part = tl.sum(tl.load(x + i[:, None] * C + j[None, :], mask=inside, other=0.0), 1)
        total = total + part + tl.sum(total, 0)
    tl.store(o + i, total, mask=i < R)


@triton.jit
def softmax_of_rows(x, o, R, C, BR: tl.constexpr, BC: tl.constexpr):
    i, j = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BC)
    inside = (i[:, None] < R) & (j[None, :] < C)
    values = tl.load(x + i[:, None] * C + j[None, :], mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 1)[:, None])
    tl.store(o + i[:, None] * C + j[None, :], powers / tl.sum(powers, 1)[:, None], mask=inside)


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-8, 9, shape).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kernel", [row_sums, row_sums_of_totals, row_sums_by_pointers])
@pytest.mark.parametrize("shape", [(37, 1000), (16, 256), (5, 7), (33, 300)])
def test_rows(kernel, shape, turned, mode):
    x = integers(*shape)
    rows, columns = shape
    memory = np.ascontiguousarray(x.T) if turned else x
    o = np.full(rows, np.nan, np.float32)
    down, along = (1, rows) if turned else (columns, 1)
    run(kernel, (-(-rows // 16),), mode, x=memory, o=o, R=rows, C=columns, down=down, along=along, BR=16, BC=128)
    np.testing.assert_array_equal(o, x.sum(1))


@pytest.mark.parametrize("columns", [1, 63, 64, 200])
def test_maxima_pass_over_nan(columns):
    x = np.full((20, columns), np.nan, np.float32)
    for row in range(1, 20):
        x[row, row % columns] = row
    for found in both(row_maxima, (3,), x=x, o=np.zeros(20, np.float32), R=20, C=columns, BR=8, BC=64):
        # Behind the row -inf counts, which the load gives there: only a row of whole tiles of NaN is NaN.
        np.testing.assert_array_equal(found["o"][1:], np.arange(1, 20, dtype=np.float32))


def test_rows_that_need_each_other_go_together():
    x = integers(12, 100)
    one, other = both(rows_that_wait, (1,), x=x, o=np.zeros(12, np.float32), R=12, C=100, BR=16, BC=32)
    np.testing.assert_array_equal(one["o"], other["o"])


@pytest.mark.parametrize("columns", [3, 30, 64])
def test_the_value_behind_a_row_is_computed_once(columns):
    x = np.random.default_rng(0).standard_normal((21, columns)).astype(np.float32)
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    for found in both(softmax_of_rows, (3,), x=x, o=np.zeros_like(x), R=21, C=columns, BR=8, BC=64):
        np.testing.assert_allclose(found["o"], expected, rtol=2e-6)


def text(kernel, **arguments) -> str:
    x, o = np.zeros((64, 2000), np.float32), np.zeros(64, np.float32)
    return emit_c(
        module_of(kernel, {"x": x, "o": o, "R": 64, "C": 2000, **arguments}), CpuOptions(vector_bits=512)
    ).source


def loops_before_the_first_load(source: str) -> list[str]:
    """The headers of the loops round the first vector of a row, from the outermost."""
    kernel = source[source.index("int32_t silo_kernel") :]
    lines = kernel[: kernel.index("lanes1_vector")].splitlines()
    depth = lines[-1].index("silo_lanes_float")
    found: list[str] = []
    for line in reversed(lines):
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith("for (") and indent < depth:
            found.append(line.split()[2])
            depth = indent
    return found[::-1]


def test_only_rows_that_go_along_memory_are_the_outer_loop():
    sizes = {"BR": 16, "BC": 128}
    for kernel in (row_sums, row_sums_of_totals):
        *_, rows, tiles = loops_before_the_first_load(text(kernel, **sizes, down=2000, along=1))
        assert (rows[0], tiles[0]) == ("i", "n")
    source = text(row_sums, **sizes, down=1, along=64)
    assert "lanes1" not in source  # columns in the order of memory are added as vectors: nothing is folded


def test_totals_of_a_tile_are_no_memory():
    with_tile, without = (text(k, BR=16, BC=128, down=2000, along=1) for k in (row_sums_of_totals, row_sums))
    assert with_tile.count("scratch + ") == without.count("scratch + ")
